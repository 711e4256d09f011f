"""Several steps in flight: tokens after a stop are not lost, and not published early."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from test.policies.micro_batches.served import pipelined
from test.serving.scripted import ARM, FIND, PROFILE, Scene, request
from test.serving.test_limits import Halting
from test.serving.test_streams import WORDS, ask
from timely_llm.core.errors import EngineError
from timely_llm.core.generation import Generation, State
from timely_llm.core.request import ErrorCode, ReportState
from timely_llm.core.step import Capacity, SequenceProgress, StepPlan, StepResult
from timely_llm.engines.pipelined import PipelinedEngine, PipelineProfile, StageLink
from timely_llm.engines.sequences import AdmittedStep
from timely_llm.engines.simulated import SimulatedEngine
from timely_llm.policies.contract import Policy
from timely_llm.policies.fcfs import Stream
from timely_llm.policies.micro_batches.policy import MicroBatches, Mode
from timely_llm.policies.pipeline_time import PipelineTime
from timely_llm.policies.step_time import StepTime

AHEAD = partial(SimulatedEngine, in_flight=2, async_scheduling=True)
MICRO_BATCHES = partial(SimulatedEngine, in_flight=2)
PIPELINE = partial(pipelined, 2)
PLAN = "mf(50);tc(90);mf(100);->True;"


def scene_of(plans: dict[str, str], policy: Policy | None = None, **options: Any) -> Scene:
    return Scene(plans, policy or Stream(), engine=AHEAD, **options)


def land(scene: Scene) -> None:
    """Collect what is in flight; the policy plans nothing more."""
    while scene.loop.turn().stepped:
        pass


@pytest.mark.parametrize("engine", [AHEAD, MICRO_BATCHES])
def test_the_same_segments_and_answers_as_one_step_at_a_time(engine: Any) -> None:
    told = []
    for made in (SimulatedEngine, engine):
        scene = Scene({"p": PLAN, "q": FIND, "r": WORDS}, Stream(), engine=made)
        for key in "pq":
            scene.loop.admit(request(key))
        scene.loop.admit(ask("r"))
        scene.run()
        told.append(([scene.sink.texts(key) for key in "pq"], scene.sink.answers["r"].text))
        assert scene.loop.free_kv_tokens == scene.free_at_start
    assert told[0] == told[1]


def test_two_steps_are_in_flight() -> None:
    scene = scene_of({"p": PLAN})
    scene.loop.admit(request("p"))
    scene.loop.turn()
    assert not scene.sink.steps
    scene.loop.turn()
    assert len(scene.sink.steps) == 1
    assert scene.plans[0].pending_tokens == 1


def test_a_plan_that_waits_for_a_token_leaves_the_next_step_to_others() -> None:
    scene = Scene({"p": PLAN, "q": PLAN}, Stream(), engine=MICRO_BATCHES)
    scene.loop.admit(request("p"))
    scene.loop.turn()
    scene.loop.admit(request("q"))
    scene.turns(6)
    assert [set(step.computed) for step in scene.sink.steps] == [{"p"}, {"q"}] * 3


def test_a_token_that_comes_after_the_stop_is_kept_and_read_when_the_plan_goes_on() -> None:
    policy = Halting()
    scene = scene_of({"p": PLAN}, policy)
    scene.loop.admit(request("p"))
    scene.until_segments(1)
    policy.halted = True
    (generation,) = scene.plans
    assert generation.state is State.SUSPENDED
    said = len(generation.token_ids)
    land(scene)
    assert len(generation.deferred_ids) == 1
    assert (len(generation.token_ids), generation.pending_tokens, generation.to_compute) == (
        said,
        0,
        1,
    )
    assert scene.sink.texts("p") == ["mf(50);"]
    policy.halted = False
    scene.run()
    assert scene.sink.texts("p") == ["mf(50);", "tc(90);", "mf(100);", "->True;"]
    result = scene.sink.results["p"]
    assert (result.plan, result.recomputed_tokens) == (PLAN, 0)
    assert scene.loop.free_kv_tokens == scene.free_at_start


def test_a_plan_that_is_left_out_gets_the_tokens_planned_for_it() -> None:
    policy = Halting()
    scene = scene_of({"r": WORDS}, policy)
    scene.loop.admit(ask("r"))
    while not scene.sink.chunks:
        scene.loop.turn()
    policy.halted = True
    land(scene)
    assert len(scene.sink.chunks) == 2
    assert not scene.loop.generations[0].deferred_ids


@pytest.mark.parametrize("value", ["cup\n", "a ball and a cup\n"])
def test_what_comes_after_a_call_that_waits_is_forgotten(value: str) -> None:
    scene = scene_of({"r": "look();...pick('cup');->True;"}, skill_set=ARM)
    scene.loop.admit(request("r", skill_set="arm"))
    scene.until_segments(1)
    (generation,) = scene.plans
    land(scene)
    assert (generation.state, generation.pending_tokens, generation.to_compute) == (
        State.BLOCKED,
        0,
        1,
    )
    scene.report("r", ReportState.FINISHED, 0, duration_s=0.7, value=value)
    scene.run()
    assert scene.prompts["r"][1].endswith(f"look();=> {value}")
    result = scene.sink.results["r"]
    assert result.plan == "look();pick('cup');->True;"
    assert scene.loop.free_kv_tokens == scene.free_at_start


def test_the_next_turn_of_a_conversation_has_nothing_that_came_after_its_end() -> None:
    prompts = []
    for made in (SimulatedEngine, AHEAD):
        scene = Scene({"r": WORDS, "s": "Yes."}, Stream(), engine=made)
        scene.loop.admit(ask("r", conversation="c"))
        scene.run()
        scene.loop.admit(ask("s", "And?", conversation="c", turn=1))
        scene.run()
        answer = scene.sink.answers["s"]
        prompts.append((scene.prompts["s"], answer.prompt_tokens, answer.text))
    assert prompts[0] == prompts[1]


def test_an_answer_of_as_many_tokens_as_fit() -> None:
    scene = scene_of({"r": "so " * 999}, max_model_len=Scene({}).prefix_tokens + 20)
    scene.loop.admit(ask("r", max_tokens=2000))
    scene.run()
    answer = scene.sink.answers["r"]
    assert (answer.error_code, answer.cut) == (ErrorCode.NONE, True)
    assert answer.prompt_tokens + answer.generated_tokens == scene.prefix_tokens + 20
    land(scene)
    assert len(scene.sink.steps) == answer.generated_tokens, "none is made for nothing"


def test_an_answer_canceled_in_flight_is_part_of_the_conversation() -> None:
    scene = scene_of({"r": WORDS, "s": "Yes."})
    scene.loop.admit(ask("r", "first", conversation="c"))
    while len(scene.sink.chunks) < 3:
        scene.loop.turn()
    assert scene.loop.generations[0].pending_tokens
    assert scene.loop.cancel("r", ErrorCode.CANCELED, "enough")
    said = scene.sink.answers["r"].text
    scene.loop.admit(ask("s", "second", conversation="c", turn=1))
    scene.run()
    assert f"<assistant>\n{said}\n<user>\nsecond" in scene.prompts["s"][0]
    assert len(scene.sink.chunks) == 3 + scene.sink.answers["s"].generated_tokens


@pytest.mark.parametrize("engine", [AHEAD, MICRO_BATCHES, PIPELINE])
def test_steps_that_evict_lose_no_token_of_steps_in_flight(engine: Any) -> None:
    texts = {"r": "x" * 80, "s": "y" * 80, "t": "z" * 80}
    kv_tokens = Scene({}).prefix_tokens + 60
    scene = Scene(texts, Stream(), engine=engine, kv_tokens=kv_tokens)
    for key in texts:
        scene.loop.admit(ask(key, conversation=key))
    scene.run()
    assert {key: scene.sink.answers[key].text for key in texts} == texts
    assert scene.loop.stats.evictions > 0
    land(scene)
    assert scene.loop.free_kv_tokens == scene.free_at_start


class Planned:
    """Plans what the test says: of these sequences, all that can be computed."""

    whole_plans = False

    def __init__(self) -> None:
        self.step: tuple[str, ...] = ()
        self.evictable: tuple[str, ...] = ()

    def plan(self, now: float, generations: Any, step_time: Any, capacity: Any) -> StepPlan:
        able = {one.key: one.to_compute for one in generations}
        entries = tuple((key, able[key]) for key in self.step if key in able)
        return StepPlan(entries, self.evictable, now + 1.0)


def three_prompts(free_tokens: int) -> tuple[Scene, Planned]:
    """Return a server with room for two prompts and a few tokens; the first one has been computed,
    the second one is in flight."""
    policy = Planned()
    prompt = Scene({}).engine.tokenizer.encode_chat([{"role": "user", "content": "What is new?"}])
    kv_tokens = Scene({}).prefix_tokens + 2 * len(prompt) + free_tokens
    scene = Scene(
        dict.fromkeys("abc", WORDS), policy, engine=partial(PIPELINE, micro_batches=3),
        kv_tokens=kv_tokens,
    )  # fmt: skip
    for key in "abc":
        scene.loop.admit(ask(key, "What is new?"))
    policy.step = ("a",)
    scene.loop.turn()
    policy.step = ()
    land(scene)
    policy.step = ("b",)
    scene.loop.turn()
    assert [one.kv_tokens for one in scene.loop.generations] == [len(prompt)] * 2 + [0]
    return scene, policy


def test_a_step_that_evicts_what_rests_begins_while_another_one_is_in_flight() -> None:
    scene, policy = three_prompts(free_tokens=3)
    (first, _, third), steps = scene.loop.generations, len(scene.sink.steps)
    policy.step, policy.evictable = ("c",), ("a",)
    scene.loop.turn()
    assert len(scene.sink.steps) == steps, "nothing was waited for"
    assert third.pending_tokens == 1
    # The evicted one can be planned again at once: its prompt, and its first token.
    assert (first.kv_tokens, first.to_compute) == (0, first.prompt_tokens + 1)
    sequence = scene.engine._sequences["a"]
    assert first.progress == scene.engine._ledger.progress(sequence)


def test_a_step_that_needs_the_memory_of_a_step_in_flight_waits_for_it() -> None:
    scene, policy = three_prompts(free_tokens=3)
    (_, second, third), steps = scene.loop.generations, len(scene.sink.steps)
    policy.step, policy.evictable = ("c",), ("b",)
    scene.loop.turn()
    assert len(scene.sink.steps) == steps + 1
    assert (len(second.token_ids), third.pending_tokens) == (1, 0)
    scene.loop.turn()
    assert third.pending_tokens == 1
    assert second.kv_tokens == 0


def test_a_step_that_could_evict_and_need_not_waits_for_none() -> None:
    scene, policy = three_prompts(free_tokens=90)
    first, second, third = scene.loop.generations
    policy.step, policy.evictable = ("c",), ("a", "b")
    scene.loop.turn()
    assert third.pending_tokens == 1
    assert first.kv_tokens == second.kv_tokens > 0


class Sees(Stream):
    """Remembers what it was shown."""

    def __init__(self, sees_in_flight: bool) -> None:
        super().__init__()
        self.sees_in_flight = sees_in_flight
        self.shown: list[tuple[set[str], Capacity]] = []
        self.step_times: list[StepTime] = []

    def plan(
        self,
        now: float,
        generations: Collection[Generation],
        step_time: StepTime,
        capacity: Capacity,
    ) -> StepPlan:
        self.shown.append(({one.key for one in generations}, capacity))
        self.step_times.append(step_time)
        able = [one for one in generations if one.to_compute > 0]
        return super().plan(now, able, step_time, capacity)


@pytest.mark.parametrize("sees_in_flight", [True, False])
def test_generations_in_flight_are_shown_to_policies_that_ask(sees_in_flight: bool) -> None:
    policy = Sees(sees_in_flight)
    scene = Scene({"p": PLAN, "q": PLAN}, policy, engine=PIPELINE)
    scene.loop.admit(request("p"))
    scene.loop.turn()
    scene.loop.admit(request("q"))
    scene.loop.turn()
    shown, capacity = policy.shown[1]
    assert shown == ({"p", "q"} if sees_in_flight else {"q"})
    assert capacity.steps_in_flight == 1
    assert (capacity.stages, capacity.micro_batches) == (2, 2)
    (flight,) = capacity.in_flight
    assert (flight.rows, flight.prompts) == (0, 1)
    assert flight.prompt_tokens > 1
    assert flight.context_tokens == scene.prefix_tokens
    scene.run()
    assert [scene.sink.results[key].plan for key in "pq"] == [PLAN, PLAN]


@pytest.mark.parametrize("sees_in_flight", [True, False])
def test_policies_that_see_one_step_get_its_seconds_beside_those_in_flight(
    sees_in_flight: bool,
) -> None:
    policy = Sees(sees_in_flight)
    scene = Scene({"p": PLAN, "q": PLAN}, policy, engine=PIPELINE)
    for key in "pq":
        scene.loop.admit(request(key))
        scene.loop.turn()
    assert all((one is scene.loop.step_time) is sees_in_flight for one in policy.step_times)
    if not sees_in_flight:
        at_start, in_flight = PipelineTime.unknown(2), policy.shown[1][1].in_flight
        alone_s, beside_s = [one.first_s(8, 40, 900) for one in policy.step_times[:2]]
        assert alone_s == at_start.latency_s(8, 40, 900)
        assert alone_s < beside_s == at_start.beside(in_flight).first_s(8, 40, 900)


@pytest.mark.parametrize("sees_in_flight", [True, False])
def test_one_stage_is_asked_as_before(sees_in_flight: bool) -> None:
    policy = Sees(sees_in_flight)
    scene = Scene({"p": PLAN}, policy)
    scene.loop.admit(request("p"))
    scene.run()
    assert all(shown == {"p"} for shown, _ in policy.shown)
    assert {capacity.steps_in_flight for _, capacity in policy.shown} == {0}
    assert all(shown is scene.loop.step_time for shown in policy.step_times)


def test_a_server_that_drains_plans_nothing_that_waits_for_a_step() -> None:
    policy = MicroBatches(Stream())
    scene = Scene({"p": PLAN, "q": PLAN}, policy, engine=PIPELINE)
    for key in "pq":
        scene.loop.admit(request(key))
    scene.turns(2)
    scene.loop.drain(True)
    scene.run()
    assert [scene.sink.results[key].plan for key in "pq"] == [PLAN, PLAN]


def test_a_failed_step_fails_all_in_flight_and_the_server_lives_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene({"a": FIND, "b": FIND, "c": FIND}, Stream(), engine=MICRO_BATCHES)
    scene.loop.admit(request("a"))
    scene.loop.turn()
    scene.loop.admit(request("b"))

    def fail() -> StepResult:
        raise EngineError("out of memory")

    with monkeypatch.context() as broken:
        broken.setattr(scene.engine, "collect", fail)
        assert scene.loop.turn().stepped
    for key in "ab":
        assert scene.sink.results[key].error_code is ErrorCode.ENGINE_FAILED
        assert "out of memory" in scene.sink.results[key].error_msg
    while True:  # the engine of this test still has them
        try:
            scene.engine.collect()
        except EngineError:
            break
    assert scene.loop.free_kv_tokens == scene.free_at_start
    scene.loop.admit(request("c"))
    scene.run()
    assert scene.sink.results["c"].error_code is ErrorCode.NONE


def test_a_skill_set_is_registered_between_two_steps() -> None:
    scene = scene_of({"p": PLAN})
    scene.loop.admit(request("p"))
    scene.turns(2)
    assert scene.loop.register(ARM) > 0
    assert not scene.plans[0].pending_tokens
    scene.run()
    assert scene.sink.results["p"].plan == PLAN


@pytest.mark.parametrize("engine", [SimulatedEngine, AHEAD, MICRO_BATCHES, PIPELINE])
def test_after_each_turn_the_loop_holds_the_progress_that_the_engine_counts(engine: Any) -> None:
    texts = {"p": "look();...pick('cup');->True;", "q": "open();" * 9, "r": WORDS, "s": WORDS}
    kv_tokens = Scene({}, skill_set=ARM).prefix_tokens + 90
    scene = Scene(texts, Stream(), engine=engine, skill_set=ARM, kv_tokens=kv_tokens)
    for key in "pq":
        scene.loop.admit(request(key, skill_set="arm"))
    for key in "rs":
        scene.loop.admit(ask(key, conversation=key))
    turns = reported = 0
    while scene.loop.generations and turns < 500:
        turns += 1
        scene.loop.turn()
        for generation in scene.loop.generations:
            if generation.state is not State.EXECUTING:
                sequence = scene.engine._sequences[generation.key]
                assert generation.progress == scene.engine._ledger.progress(sequence)
            if generation.state is State.BLOCKED:
                reported += 1
                scene.report("p", ReportState.FINISHED, 0, duration_s=0.7, value="cup\n")
    assert reported
    assert scene.loop.stats.evictions


class LaterFails(SimulatedEngine):
    """Fails the step after the one that is to bring the semicolon of `look();`."""

    failed = False

    def submit(self, plan: StepPlan) -> Mapping[str, SequenceProgress]:
        text = self.tokenizer.decode(self._sequences["p"].token_ids)
        if not (len(self._in_flight) and text.endswith("look()")):
            return super().submit(plan)
        self.failed = True
        refused = AdmittedStep((), (), dict.fromkeys(plan.keys, "no room"))
        self._in_flight.add(refused)
        return self._ledger.planned(plan, refused)


def test_a_failure_in_a_later_step_is_void_if_the_plan_has_stopped_since() -> None:
    engine = partial(LaterFails, in_flight=2, async_scheduling=True)
    scene = Scene({"p": "look();->True;"}, Stream(), engine=engine, skill_set=ARM)
    scene.loop.admit(request("p", skill_set="arm"))
    scene.until_segments(1)
    land(scene)
    assert isinstance(scene.engine, LaterFails) and scene.engine.failed
    assert scene.plans[0].state is State.BLOCKED
    assert "p" not in scene.sink.results


class Untimed(PipelinedEngine):
    """Says nothing of its stages."""

    def collect(self) -> StepResult:
        return replace(super().collect(), stages=None)


def test_a_step_without_times_of_stages_that_waited_for_others_teaches_no_longer_latency() -> None:
    profile = PipelineProfile("made", "up", (PROFILE,) * 2, (StageLink(0.002, 0.0001),))
    answers = {f"r{place}": " ".join(["so"] * 60) for place in range(8)}
    engine = partial(Untimed, profile, micro_batches=6)
    policy = MicroBatches(Stream(), Mode.BUDGET_ONLY)
    scene = Scene(answers, policy, engine=lambda _, *rest: engine(*rest))
    for key in answers:
        scene.loop.admit(ask(key))
    scene.run()
    learned, known = scene.loop.step_time, profile.step_time()
    assert isinstance(learned, PipelineTime)
    assert learned.latency_s(1) < 1.01 * known.latency_s(1)
