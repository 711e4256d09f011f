"""What is tried: each target reads one input, and may refuse it with certain errors only."""

from __future__ import annotations

import json
import warnings
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from timely_llm.cloud.chunk import error_words, read_chunk
from timely_llm.core.errors import PlanError, RequestError, SkillSetError, TimelyError
from timely_llm.core.events.reader import LineAssembler, LogError
from timely_llm.demo import stand_in
from timely_llm.serving.journal.file import JournalFile
from timely_llm.skills.checkers import cut, make_checker
from timely_llm.skills.rules import Budget, Rule
from timely_llm.skills.skill_set import SkillSet, parse_skill_set
from timely_llm.traces.files import read_jsonl
from timely_llm.traces.model import TraceError
from timely_llm.traces.recordings.bags import bag_messages
from timely_llm.traces.recordings.messages import decoded
from timely_llm.traces.recordings.recorded import job_of
from timely_llm.traces.streams import conversation_of
from tools.fuzz.served import ServedPlans, Undecoded

CORPUS = Path("test/corpus")


@dataclass(frozen=True)
class Reader:
    """Something that reads what others wrote.

    Attributes:
        read: reads an input.
        refuses: how it may refuse one; the error's text is one line for a person.
    """

    read: Callable[[bytes], object]
    refuses: tuple[type[Exception], ...] = ()


def _text(data: bytes) -> str:
    return data.decode(errors="surrogateescape")


@cache
def _skill_set(name: str) -> SkillSet:
    return parse_skill_set((CORPUS / "skill_set" / name).read_text())


@cache
def _served() -> ServedPlans:
    return ServedPlans(_skill_set("arm.yaml"))


@cache
def _folder() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="fuzz_")


def _written(data: bytes, name: str) -> Path:
    path = Path(_folder().name) / name
    path.write_bytes(data)
    return path


def _read_skill_set(data: bytes) -> None:
    made = parse_skill_set(_text(data))
    made.prompt_text()
    make_checker(made)


def _read_plan(data: bytes) -> None:
    """Cut a plan at once and in pieces, which must agree."""
    cut(_skill_set("arm.yaml"), _text(data))
    _in_pieces(_skill_set("arm.yaml"), _text(data))


def _read_words(data: bytes) -> None:
    """Cut a plan of a language of rules."""
    _in_pieces(_skill_set("rules.yaml"), _text(data))


def _in_pieces(skill_set: SkillSet, text: str) -> None:
    checker = make_checker(skill_set)
    for begin in range(0, len(text), 7):
        checker.feed(text[begin : begin + 7])
    checker.finish()


def _read_rule(data: bytes) -> None:
    pattern, _, text = _text(data).partition("\n")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rule = Rule(1, pattern)
    budget = Budget()
    budget.begin()
    rule.match(text, budget)
    rule.may_go_on(text, budget)


def _read_bag(data: bytes) -> None:
    for _ in bag_messages(_written(data, "fuzz.mcap"), lambda warning: None):
        pass


def _read_message(data: bytes) -> None:
    """Read the bytes of a recorded request: a digit for its kind, then CDR."""
    plan = data[:1] != b"1"
    kind = "timely_llm/msg/PlanRequest" if plan else "timely_llm/msg/StreamRequest"
    message: Any = decoded(data[1:], kind, Path("fuzz"))
    if plan:
        job_of(message, "name", 0.0)
    else:
        conversation_of(message, "name", 0.0)


def _read_report(data: bytes) -> None:
    """Read the bytes of an execution report, check its signature, and let a plan take it."""
    _served().report(data)


def _read_cancel(data: bytes) -> None:
    """Read the bytes of a call that cancels, check its signature, and cancel."""
    _served().cancel(data)


def _read_trace(data: bytes) -> None:
    read_jsonl(_written(data, "fuzz.jsonl"))


def _read_log(data: bytes) -> None:
    LineAssembler().feed(data)


def _read_journal(data: bytes) -> None:
    """Read a journal: three of four inputs with right checksums, or few records would be read."""
    if sum(data) % 4:
        lines = [line[9:] for line in data.split(b"\n")]
        data = b"\n".join(b"%08x %s" % (zlib.crc32(line), line) if line else b"" for line in lines)
    file = JournalFile(_written(data, "journal"), "corpus")
    for saved in file.saved.values():
        repr(saved)
    file.close()


def _read_http(data: bytes) -> None:
    body = stand_in._read(data, "a-model")
    stand_in._request("fuzz", body, True)


def _read_cloud(data: bytes) -> None:
    """Read an event of a cloud's answer, and the document of an error."""
    if (chunk := read_chunk(_text(data).encode(errors="replace").decode())) is not None:
        json.dumps([chunk.text, chunk.finish_reason, error_words(chunk.error)])


TARGETS: dict[str, Reader] = {
    "skill_set": Reader(_read_skill_set, (SkillSetError,)),
    "plan": Reader(_read_plan, (PlanError,)),
    "words": Reader(_read_words, (PlanError,)),
    "rule": Reader(_read_rule, (ValueError, PlanError)),
    "bag": Reader(_read_bag, (TraceError,)),
    "message": Reader(_read_message, (TraceError, RequestError)),
    "report": Reader(_read_report, (Undecoded, RequestError)),
    "cancel": Reader(_read_cancel, (Undecoded, RequestError)),
    "trace": Reader(_read_trace, (TraceError,)),
    "log": Reader(_read_log, (LogError,)),
    "journal": Reader(_read_journal),
    "http": Reader(_read_http, (stand_in._Refused,)),
    "cloud": Reader(_read_cloud),
}
"""By name, which is the folder of its corpus."""


def problem_of(target: Reader, error: Exception) -> str:
    """Return what is wrong about an error, in words; empty: the target may refuse so."""
    if not isinstance(error, target.refuses):
        return f"it raised {type(error).__name__}: {str(error)[:200]}"
    text = getattr(error, "message", "") or str(error)
    if not text.strip():
        return f"its {type(error).__name__} says nothing"
    if isinstance(error, TimelyError) and not text.isprintable():
        return f"its {type(error).__name__} is no line of text: {text[:200]!r}"
    return ""
