"""What the checks of an engine work with: engines with limits of their own, and their answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from timely_llm.conformance.check import NotApplicable, Suite, expect, refused
from timely_llm.conformance.engines.driver import (
    DECODINGS,
    GRAMMAR,
    MOST_IDLE,
    PROMPTS,
    TASKS,
    Driver,
    InFlightDriver,
)
from timely_llm.core.errors import EngineError
from timely_llm.engines.contract import Decoding, Engine
from timely_llm.engines.sequences import EngineLimits

MakeEngine = Callable[[EngineLimits], Engine]


class EngineBench:
    """Makes engines and keeps one of them for the checks that need no limits of their own.

    Args:
        make: makes an engine that takes no more than the limits say.
        seed: of random cases; None: others in each run.
        our_words: also compare the words of refusals with those of the package's engines.
    """

    def __init__(self, make: MakeEngine, seed: int | None = 0, our_words: bool = False) -> None:
        self.seed = seed
        self._make = make
        self._our_words = our_words
        self._kept: Engine | None = None
        self._small: Engine | None = None
        self._answers: dict[str, list[int]] | None = None
        self._grammars: bool | None = None
        self._cannot_answer = False

    def make(self, **limits: int) -> Engine:
        """Return a new engine."""
        return self._make(EngineLimits(**limits))

    @contextmanager
    def engine_with(self, **limits: int) -> Iterator[Driver]:
        """Drive an engine with limits of its own, which is closed at the end."""
        engine = self.make(**limits)
        try:
            yield self.driver_of(engine)
        finally:
            engine.close()

    def driver_of(self, engine: Engine) -> Driver:
        """Return a driver of an engine."""
        return Driver(engine, self.decodings)

    @property
    def engine(self) -> Engine:
        """The engine that checks share: 8 rows, and room for all that they add."""
        if self._kept is None:
            self._kept = self.make(max_rows=8)
        return self._kept

    @property
    def small(self) -> Engine:
        """An engine that checks share, with room for about two of the tasks."""
        if self._small is None:
            encode = self.engine.tokenizer.encode
            self._small = self.make(kv_tokens=2 * max(len(encode(p)) for p in PROMPTS.values()))
        return self._small

    @property
    def decodings(self) -> dict[str, Decoding]:
        """How each task is decoded: without its grammar, if the engine takes none."""
        if self._grammars is None:
            engine = self.engine
            try:
                engine.add("probe", engine.tokenizer.encode("tc(30);"), None, DECODINGS["d"])
            except EngineError:
                self._grammars = False
            else:
                self._grammars = True
                engine.remove("probe")
        if self._grammars:
            return DECODINGS
        return DECODINGS | {"d": Decoding(DECODINGS["d"].temperature, DECODINGS["d"].seed)}

    @property
    def takes_grammars(self) -> bool:
        """Whether the engine takes a grammar."""
        return self.decodings["d"].grammar == GRAMMAR

    @property
    def gives_logprobs(self) -> bool:
        """Whether the engine gives the log-probabilities of chosen tokens."""
        driver = self.driver_of(self.engine)
        driver.add("probe", "tc(30);", decoding=Decoding(logprobs=True))
        try:
            steps = (driver.step({"probe": 512}) for _ in range(MOST_IDLE))
            return next((bool(one.logprobs) for one in steps if one.tokens), False)
        finally:
            driver.remove_all()

    @property
    def answers(self) -> dict[str, list[int]]:
        """What each task is answered when it is served alone, and whole.

        Raises:
            NotApplicable: the engine could not answer before.
        """
        if self._cannot_answer:
            raise NotApplicable("the engine does not answer a sequence that is alone")
        if self._answers is None:
            self._cannot_answer = True
            driver = self.driver_of(self.engine)
            for key in TASKS:
                driver.add_task(key)
                driver.answer(key)
            driver.remove_all()
            self._answers = driver.said
            self._cannot_answer = False
        return self._answers

    def driver(self) -> AbstractContextManager[Driver]:
        """Drive the shared engine; at the end all its KV must be free again."""
        return self._driving(self.engine)

    def small_driver(self) -> AbstractContextManager[Driver]:
        """Drive the shared engine with room for two tasks, as `driver`."""
        return self._driving(self.small)

    @contextmanager
    def in_flight_driver(self) -> Iterator[InFlightDriver]:
        """Drive the shared engine with as many steps in flight as it has.

        Raises:
            NotApplicable: it has only one.
        """
        self.need_in_flight()
        with self.driver() as driver:
            yield InFlightDriver(driver)

    def need_in_flight(self) -> None:
        """Raise `NotApplicable` if an engine has one step in flight at most."""
        if self.engine.in_flight == 1:
            raise NotApplicable("the engine has one step in flight at most")

    def refused(self, what: str, words: str = "") -> AbstractContextManager[None]:
        """Raise `Broken` unless the block raises an EngineError of one sentence."""
        return refused(what, EngineError, words if self._our_words else "")

    def expect_words(self, what: str, text: str, words: str) -> None:
        """Raise `Broken` if a sentence is empty, or has other words than our engines' one."""
        expect(bool(text.strip()), f"{what} has no words")
        expect(not self._our_words or words in text, f"{what} does not say {words!r}: {text!r}")

    def close(self) -> None:
        """Close the shared engines."""
        for engine in (self._kept, self._small):
            if engine is not None:
                engine.close()
        self._kept = self._small = None

    @contextmanager
    def _driving(self, engine: Engine) -> Iterator[Driver]:
        driver = self.driver_of(engine)
        free = engine.capacity.free_tokens
        try:
            yield driver
            driver.remove_all()
            driver.expect_free(free)
        except NotApplicable:
            driver.remove_all()
            raise
        except Exception:
            self._renew()
            raise

    def _renew(self) -> None:
        """Close the shared engines after a check that is broken: sequences may be left."""
        try:
            self.close()
        except Exception:  # the check's own error is the one to report
            self._kept = self._small = None


ENGINE_CHECKS: Suite[EngineBench] = Suite()
"""The contract for engines; the modules `engine_*` add to it."""
