"""KV loads through the loop: the loading request waits, the others do not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from test.serving.scripted import ARM, PROFILE, Scene, request
from timely_llm.core.generation import Generation, State
from timely_llm.core.request import ErrorCode, ReportState
from timely_llm.core.step import Capacity, SequenceProgress, StepPlan, StepResult
from timely_llm.engines.sequences import AdmittedSequence, AdmittedStep
from timely_llm.engines.simulated import SimulatedEngine
from timely_llm.engines.swapping import SwappingEngine
from timely_llm.policies.fcfs import Stream
from timely_llm.serving.loop import LOOK_S

LOOK = "look();...pick('cup');place('box');->True;"
OPEN = "open();" * 20 + "->True;"


class Elsewhere(SimulatedEngine):
    """Stores whatever it computes elsewhere, and fetches what was given up; `load_s` later."""

    load_s = 0.2
    broken = False

    def __init__(self, profile: Any, script: Any, clock: Any, limits: Any) -> None:
        super().__init__(profile, script, clock, limits)
        self._clock = clock
        self._due_s: dict[str, float] = {}
        self.plans: list[StepPlan] = []

    def submit(self, plan: StepPlan) -> Mapping[str, SequenceProgress]:
        self.plans.append(plan)
        admitted = self._ledger.admit(plan, self._fetch)
        self._ledger.start(admitted)
        self._in_flight.add(admitted)
        return {}

    def step_s(self, admitted: AdmittedStep, elapsed_s: float) -> float:
        return super().step_s(admitted, elapsed_s) if admitted.sequences else 0.0

    def collect(self) -> StepResult:
        result = super().collect()
        loaded = {}
        for key in [key for key, due_s in self._due_s.items() if due_s <= self._clock.now()]:
            del self._due_s[key]
            sequence = self._sequences[key]
            loaded[key], sequence.loading = sequence.loading, 0
            if self.broken:
                sequence.computed -= loaded[key]
                loaded[key] = 0
        loading = tuple(key for key, _ in self.plans[-1].entries if key in self._due_s)
        touched = (*result.progress, *loaded, *loading)
        progress = {key: self._ledger.progress(self._sequences[key]) for key in touched}
        return replace(result, loaded=loaded, loading=loading, progress=progress)

    def remove(self, key: str) -> None:
        super().remove(key)
        self._due_s.pop(key, None)

    def _fetch(self, part: AdmittedSequence, wanted: int) -> AdmittedSequence | None:
        sequence = part.sequence
        tokens = min(sequence.most_computed, len(sequence.token_ids) - 1) - sequence.computed
        if self.broken or tokens < 1:
            return part
        sequence.loading = tokens
        sequence.computed += tokens
        self._due_s[sequence.key] = self._clock.now() + self.load_s
        return None


class InTurns(Stream):
    """Lets one plan after the other make a token, in place of all others."""

    def plan(self, now: float, generations: Any, step_time: Any, capacity: Capacity) -> StepPlan:
        first, *others = sorted(generations, key=lambda g: len(g.token_ids))
        return StepPlan(((first.key, first.to_compute),), tuple(g.key for g in others))


def test_the_step_time_model_does_not_learn_transfers_as_computing() -> None:
    scene = Scene(
        {"a": OPEN, "b": OPEN}, InTurns(), skill_set=ARM, engine=SwappingEngine, kv_tokens=650
    )
    for key in "ab":
        scene.loop.admit(request(key, skill_set="arm", task="tidy " * 60))
    scene.run()
    loads = [step for step in scene.sink.steps if step.loaded]
    assert len(loads) > 20 and all(step.transfer_s > 0.0 for step in loads)
    assert scene.loop.step_time.predict_s(1) == pytest.approx(PROFILE.step_s(1), rel=0.001)


class Watching(Stream):
    """Remembers the keys that it saw."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[set[str]] = []

    def plan(self, now: float, generations: Any, step_time: Any, capacity: Capacity) -> StepPlan:
        self.seen.append({generation.key for generation in generations})
        return super().plan(now, generations, step_time, capacity)


@pytest.fixture
def policy() -> Watching:
    return Watching()


@pytest.fixture
def scene(policy: Watching) -> Scene:
    """A plan that was evicted while it was blocked, and that now loads its KV."""
    prefix_tokens = Scene({}, skill_set=ARM).prefix_tokens
    scene = Scene(
        {"r": LOOK, "s": OPEN, "s2": OPEN[14:]}, policy, skill_set=ARM, engine=Elsewhere,
        kv_tokens=prefix_tokens + 100,
    )  # fmt: skip
    scene.loop.admit(request("r", skill_set="arm"))
    scene.until_segments(1)
    scene.loop.admit(request("s", skill_set="arm"))
    while "s" not in scene.sink.results:
        assert scene.loop.turn().stepped
    assert scene.loop.stats.evictions == 1
    scene.report("r", ReportState.FINISHED, 0, duration_s=0.5, value="cup")
    scene.loop.turn()
    assert waiting(scene).loading
    return scene


def waiting(scene: Scene) -> Generation:
    (generation,) = (g for g in scene.loop.generations if g.key == "r")
    return generation


def test_it_goes_on_when_its_kv_is_there(scene: Scene) -> None:
    own = waiting(scene).to_compute
    steps, since_s = scene.loop.stats.steps, scene.clock.now()
    turns = 0
    while waiting(scene).loading:
        before_s = scene.clock.now()
        turn = scene.loop.turn()
        assert not turn.stepped
        assert waiting(scene).state is not State.RUNNING
        if waiting(scene).loading:
            assert turn.wake_s == pytest.approx(before_s + LOOK_S)
            scene.clock.advance(LOOK_S)
        turns += 1
    assert turns <= 2 + Elsewhere.load_s / LOOK_S
    assert scene.clock.now() - since_s == pytest.approx(Elsewhere.load_s, abs=2 * LOOK_S)
    assert scene.loop.stats.steps == steps  # to look is no step
    assert scene.loop.stats.loaded_tokens == waiting(scene).kv_tokens > 0
    assert waiting(scene).to_compute == own - waiting(scene).kv_tokens
    scene.run()
    result = scene.sink.results["r"]
    assert (result.error_code, result.recomputed_tokens) == (ErrorCode.NONE, 0)
    assert scene.loop.free_kv_tokens == scene.free_at_start


def test_others_go_on_meanwhile(scene: Scene, policy: Watching) -> None:
    engine: Any = scene.engine
    del policy.seen[:], engine.plans[:]
    scene.loop.admit(request("s2", skill_set="arm"))
    while waiting(scene).loading:
        assert scene.loop.turn().stepped
    assert all(plan.keys == {"s2"} for plan in engine.plans)
    assert all(seen == {"s2"} for seen in policy.seen)
    scene.loop.turn()
    assert policy.seen[-1] == {"r", "s2"}
    scene.run()
    assert scene.sink.results["r"].error_code is ErrorCode.NONE


def test_what_does_not_come_is_computed(scene: Scene) -> None:
    engine: Any = scene.engine
    engine.broken = True
    scene.run()
    result = scene.sink.results["r"]
    assert result.error_code is ErrorCode.NONE
    assert result.recomputed_tokens > 0
    assert scene.loop.stats.loaded_tokens == 0


def test_canceled_while_it_waits(scene: Scene) -> None:
    assert scene.loop.cancel("r", ErrorCode.CANCELED, "enough")
    assert scene.loop.free_kv_tokens == scene.free_at_start
    assert scene.loop.turn().wake_s > scene.clock.now() + 1.0


def test_no_request_is_stuck_behind_it(scene: Scene) -> None:
    """Memory that is being filled comes back: a request that needs it waits, and does not end."""
    engine: Any = scene.engine
    engine._due_s["r"] += 5.0
    scene.loop.admit(request("s2", skill_set="arm"))
    while scene.loop.turn().stepped:
        pass
    assert "s2" not in scene.sink.results
    assert scene.engine.capacity.free_tokens == 0
    assert waiting(scene).loading
    scene.run(limit=6000)
    assert scene.sink.results["s2"].error_code is ErrorCode.NONE
    assert scene.sink.results["r"].error_code is ErrorCode.NONE
