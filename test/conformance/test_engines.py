"""Engines that break their contract are found out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from test.engines.letters_child import babble
from timely_llm.conformance.check import Broken, Check, NotApplicable
from timely_llm.conformance.engines import ENGINE_CHECKS, EngineBench
from timely_llm.core.clock import VirtualClock
from timely_llm.core.errors import EngineError
from timely_llm.core.step import SequenceProgress, StepPlan, StepResult
from timely_llm.engines.contract import GREEDY, Decoding, Prefix
from timely_llm.engines.paces import step_time_profile
from timely_llm.engines.sequences import EngineLimits
from timely_llm.engines.simulated import SimulatedEngine

CHECKS = {check.name: check for check in ENGINE_CHECKS}


class Sound(SimulatedEngine):
    """Keeps the contract."""

    def __init__(self, limits: EngineLimits) -> None:
        super().__init__(step_time_profile("millisecond"), babble, VirtualClock(), limits)


class NoGrammars(Sound):
    def add(
        self,
        key: str,
        token_ids: Sequence[int],
        prefix: Prefix | None = None,
        decoding: Decoding = GREEDY,
    ) -> SequenceProgress:
        if decoding.grammar is not None:
            raise EngineError("this engine takes no grammar")
        return super().add(key, token_ids, prefix, decoding)


class Leaks(Sound):
    def remove(self, key: str) -> None:
        pass


class Restarts(Sound):
    """Says something else when others were served in between."""

    last = ""

    def submit(self, plan: StepPlan) -> Mapping[str, SequenceProgress]:
        progress = super().submit(plan)
        key = plan.entries[0][0]
        if key != self.last and key in self._answers:
            next(self._answers[key])
        self.last = key
        return progress


class TakesAnyPlan(Sound):
    def submit(self, plan: StepPlan) -> Mapping[str, SequenceProgress]:
        return super().submit(plan) if plan else {}


class Crashes(Sound):
    def submit(self, plan: StepPlan) -> Mapping[str, SequenceProgress]:
        if "who" in plan.keys:
            raise KeyError("who")
        return super().submit(plan)


class SaysNothing(Sound):
    def collect(self) -> StepResult:
        result = super().collect()
        return StepResult({}, result.computed, result.duration_s)


def broken(engine: type[Sound], name: str) -> Broken:
    bench = EngineBench(engine)
    with pytest.raises(Broken) as found:
        CHECKS[name](bench)
    bench.close()
    return found.value


@pytest.mark.parametrize("check", [*ENGINE_CHECKS], ids=lambda check: check.name)
def test_an_engine_without_grammars_keeps_every_promise(check: Check[EngineBench]) -> None:
    bench = EngineBench(NoGrammars)
    assert not bench.takes_grammars
    try:
        check(bench)
    except NotApplicable as why:
        assert str(why) == "the engine has one step in flight at most"
    bench.close()


@pytest.mark.parametrize(
    ("engine", "name", "happened"),
    [
        (Leaks, "removal", "free tokens of KV: "),
        (Restarts, "suspended-for-long", "the answer to a: "),
        (TakesAnyPlan, "impossible-plans", "the plan () is taken; it must raise EngineError"),
        (Crashes, "impossible-plans", "raises KeyError instead of EngineError"),
        (SaysNothing, "any-schedule", "keys with a new token after {'a': "),
    ],
)
def test_a_broken_promise_says_what_happened(engine: type[Sound], name: str, happened: str) -> None:
    assert happened in broken(engine, name).happened


def test_the_smallest_schedule_is_shown() -> None:
    found = broken(Restarts, "any-schedule")
    assert found.case[0].startswith("schedule = [{")
    assert len(found.case[0]) < 120, found.case


def test_other_checks_say_that_an_engine_does_not_answer_at_all() -> None:
    bench = EngineBench(SaysNothing)
    with pytest.raises(Broken):
        CHECKS["any-schedule"](bench)
    with pytest.raises(NotApplicable, match="does not answer"):
        CHECKS["prefill-in-chunks"](bench)


def test_a_broken_check_leaves_nothing_for_the_next_one() -> None:
    bench = EngineBench(TakesAnyPlan)
    for _ in range(2):
        with pytest.raises(Broken, match="the plan"):
            CHECKS["impossible-plans"](bench)
    CHECKS["removal"](bench)
