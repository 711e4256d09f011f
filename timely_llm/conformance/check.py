"""Checks of a contract: each has a name and one promise, and says what happened if it is broken."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import FrameType
from typing import Generic, TypeVar

from timely_llm.core.errors import TimelyError
from timely_llm.core.object_reference import raised

Subject = TypeVar("Subject")
MOST = 400
"""Characters of a value in a sentence."""


class Broken(AssertionError):
    """A promise was not kept.

    Attributes:
        happened: what happened instead, one sentence.
        case: the smallest case in which it happens, one line each; empty if there is only one.
    """

    def __init__(self, happened: str, case: tuple[str, ...] = ()) -> None:
        super().__init__("\n".join((happened, *case)))
        self.happened = happened
        self.case = case


class NotApplicable(Exception):
    """A check has nothing to look at; the text says why."""


@dataclass(frozen=True)
class Check(Generic[Subject]):
    """One promise of a contract.

    Attributes:
        name: words with hyphens.
        promise: one sentence.
        body: raises `Broken` if the promise is not kept, and `NotApplicable`.
    """

    name: str
    promise: str
    body: Callable[[Subject], None]

    def __call__(self, subject: Subject) -> None:
        """Check a subject."""
        self.body(subject)


class Suite(Generic[Subject]):
    """The checks of a contract, in the order in which they are run."""

    def __init__(self) -> None:
        self._checks: dict[str, Check[Subject]] = {}

    def check(self, body: Callable[[Subject], None]) -> Callable[[Subject], None]:
        """Add a function: its name is the check's, its docstring's first paragraph the promise."""
        name = body.__name__.replace("_", "-")
        promise = " ".join((body.__doc__ or "").split("\n\n")[0].split())
        if name in self._checks or not promise:
            raise ValueError(f"{name} needs a name of its own and a promise")
        self._checks[name] = Check(name, promise, body)
        return body

    def __iter__(self) -> Iterator[Check[Subject]]:
        """Return the checks in order."""
        return iter(self._checks.values())


def clipped(value: object) -> str:
    """Return a value's text, cut if it is long."""
    text = repr(value)
    return text if len(text) <= MOST else f"{text[: MOST - 4]} ..."


def expect(kept: bool, happened: str) -> None:
    """Raise `Broken` unless something holds.

    Args:
        kept: whether it holds.
        happened: what happened if it does not.
    """
    if not kept:
        raise Broken(happened)


def expect_same(what: str, found: object, expected: object) -> None:
    """Raise `Broken` unless a value is the expected one.

    Args:
        what: a noun, such as "the tokens computed in the step".
        found: the value.
        expected: what it must be.
    """
    if found != expected:
        raise Broken(f"{what}: {clipped(found)}, expected {clipped(expected)}")


@contextmanager
def refused(what: str, error: type[TimelyError], words: str = "") -> Iterator[None]:
    """Raise `Broken` unless the block raises an error of one sentence.

    Args:
        what: what is asked in the block: a noun.
        error: the error's type.
        words: that the sentence must have; empty: any.
    """
    try:
        yield
    except error as refusal:
        text = str(refusal)
        expect(bool(text.strip()), f"{what} is refused by a {error.__name__} without words")
        expect(words in text, f"{what} is refused without the words {words!r}: {text!r}")
    except Broken:
        raise
    except Exception as other:
        name = type(other).__name__
        raise Broken(f"{what} raises {name} instead of {error.__name__}: {other}") from other
    else:
        raise Broken(f"{what} is taken; it must raise {error.__name__}")


AGAIN_S = 0.5
_LOG = logging.getLogger("timely_llm")


class Ending(Enum):
    """How a check ended."""

    KEPT = "kept"
    BROKEN = "broken"
    NOT_APPLICABLE = "not applicable"


@dataclass(frozen=True)
class CheckOutcome:
    """What a check found.

    Attributes:
        name: the check's.
        promise: the check's.
        ending: how it ended.
        happened: what happened if the promise is broken, why the check is not applicable if it is
            not, else empty.
        case: the smallest case in which a promise is broken, one line each.
        seconds: how long it took.
    """

    name: str
    promise: str
    ending: Ending
    happened: str = ""
    case: tuple[str, ...] = ()
    seconds: float = 0.0


class _TooLong(BaseException):
    """A check takes too long: no `except Exception` of a user may keep it going."""


def run(
    checks: Iterable[Check[Subject]],
    subject: Subject,
    limit_s: float,
    said: Callable[[CheckOutcome], None] = lambda outcome: None,
) -> list[CheckOutcome]:
    """Run checks one after the other, in the main thread.

    Args:
        checks: what is checked.
        subject: what they are given.
        limit_s: a check that takes longer is broken, seconds.
        said: called with each outcome as it comes.
    """
    outcomes = []
    for check in checks:
        start_s = time.monotonic()
        ending, happened, case = _run(check, subject, limit_s)
        outcome = CheckOutcome(
            check.name, check.promise, ending, happened, case, time.monotonic() - start_s
        )
        outcomes.append(outcome)
        said(outcome)
    return outcomes


def _run(
    check: Check[Subject], subject: Subject, limit_s: float
) -> tuple[Ending, str, tuple[str, ...]]:
    try:
        with _without_logs(), _limit(limit_s):
            check(subject)
    except NotApplicable as why:
        return Ending.NOT_APPLICABLE, str(why), ()
    except Broken as broken:
        _pass_on_interrupts(broken)
        return Ending.BROKEN, broken.happened, broken.case
    except _TooLong as error:
        return Ending.BROKEN, f"it takes longer than {limit_s:g} s: it was at {error}", ()
    except Exception as error:  # whatever a user's code raises
        _pass_on_interrupts(error)
        return Ending.BROKEN, f"it raises {raised(error)}", ()
    return Ending.KEPT, "", ()


def _pass_on_interrupts(error: BaseException) -> None:
    """Raise what asks the process to end, such as Ctrl-C, if an error came of it."""
    seen: set[int] = set()
    todo: list[BaseException | None] = [error]
    while todo:
        one = todo.pop()
        if one is None or id(one) in seen:
            continue
        if not isinstance(one, Exception | BaseExceptionGroup | _TooLong):
            raise one
        seen.add(id(one))
        todo += [one.__cause__, one.__context__, *getattr(one, "exceptions", ())]


@contextmanager
def _without_logs() -> Iterator[None]:
    """Keep the serving loop from logging failures: a check says what happened itself."""
    level = _LOG.level
    _LOG.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        _LOG.setLevel(level)


@contextmanager
def _limit(seconds: float) -> Iterator[None]:
    """Raise `_TooLong` in the block after some seconds."""

    def over(signum: int, frame: FrameType | None) -> None:
        code = frame.f_code if frame is not None else over.__code__
        line = frame.f_lineno if frame is not None else 0
        raise _TooLong(f"{Path(code.co_filename).name}, line {line}, in {code.co_qualname}")

    before = signal.signal(signal.SIGALRM, over)
    # Again and again: what is raised in a callback of the interpreter is lost.
    signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
