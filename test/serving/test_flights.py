"""Several steps in flight: what was planned before a stop was found is not lost, nor told early."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from test.serving.scripted import ARM, FIND, Scene, request
from test.serving.test_patience import Halting
from test.serving.test_streams import WORDS, ask
from timely_llm.core.errors import EngineError
from timely_llm.core.generation import State
from timely_llm.core.request import ErrorCode, ReportState
from timely_llm.engines.contract import StepResult
from timely_llm.engines.simulated import SimulatedEngine
from timely_llm.policies.contract import Policy
from timely_llm.policies.fcfs import Stream

AHEAD = partial(SimulatedEngine, in_flight=2, ahead=True)
MICRO_BATCHES = partial(SimulatedEngine, in_flight=2)
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
    assert scene.plans[0].coming == 1


def test_who_waits_for_a_token_leaves_the_next_step_to_others() -> None:
    scene = Scene({"p": PLAN, "q": PLAN}, Stream(), engine=MICRO_BATCHES)
    scene.loop.admit(request("p"))
    scene.loop.turn()
    scene.loop.admit(request("q"))
    scene.turns(6)
    assert [set(step.computed) for step in scene.sink.steps] == [{"p"}, {"q"}] * 3


def test_a_token_that_comes_after_the_stop_is_kept_and_told_when_the_plan_goes_on() -> None:
    policy = Halting()
    scene = scene_of({"p": PLAN}, policy)
    scene.loop.admit(request("p"))
    scene.until_segments(1)
    policy.halted = True
    (generation,) = scene.plans
    assert generation.state is State.SUSPENDED
    said = len(generation.token_ids)
    land(scene)
    assert len(generation.late_ids) == 1
    assert (len(generation.token_ids), generation.coming, generation.to_compute) == (said, 0, 1)
    assert scene.sink.texts("p") == ["mf(50);"]
    policy.halted = False
    scene.run()
    assert scene.sink.texts("p") == ["mf(50);", "tc(90);", "mf(100);", "->True;"]
    result = scene.sink.results["p"]
    assert (result.plan, result.recomputed_tokens) == (PLAN, 0)
    assert scene.loop.free_kv_tokens == scene.free_at_start


def test_who_is_left_out_is_told_what_was_planned_for_it() -> None:
    policy = Halting()
    scene = scene_of({"r": WORDS}, policy)
    scene.loop.admit(ask("r"))
    while not scene.sink.chunks:
        scene.loop.turn()
    policy.halted = True
    land(scene)
    assert len(scene.sink.chunks) == 2
    assert not scene.loop.generations[0].late_ids


@pytest.mark.parametrize("value", ["cup\n", "a ball and a cup\n"])
def test_what_comes_after_a_call_that_waits_is_forgotten(value: str) -> None:
    scene = scene_of({"r": "look();...pick('cup');->True;"}, skill_set=ARM)
    scene.loop.admit(request("r", skill_set="arm"))
    scene.until_segments(1)
    (generation,) = scene.plans
    land(scene)
    assert (generation.state, generation.coming, generation.to_compute) == (State.BLOCKED, 0, 1)
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


def test_an_answer_canceled_in_flight_is_part_of_what_was_said() -> None:
    scene = scene_of({"r": WORDS, "s": "Yes."})
    scene.loop.admit(ask("r", "first", conversation="c"))
    while len(scene.sink.chunks) < 3:
        scene.loop.turn()
    assert scene.loop.generations[0].coming
    assert scene.loop.cancel("r", ErrorCode.CANCELED, "enough")
    said = scene.sink.answers["r"].text
    scene.loop.admit(ask("s", "second", conversation="c", turn=1))
    scene.run()
    assert f"<assistant>\n{said}\n<user>\nsecond" in scene.prompts["s"][0]
    assert len(scene.sink.chunks) == 3 + scene.sink.answers["s"].generated_tokens


def test_who_needs_room_goes_alone() -> None:
    scene = scene_of({"r": "x" * 80, "s": "y" * 80}, kv_tokens=Scene({}).prefix_tokens + 60)
    for key in "rs":
        scene.loop.admit(ask(key, conversation=key))
    scene.run()
    assert [scene.sink.answers[key].text for key in "rs"] == ["x" * 80, "y" * 80]
    assert scene.loop.stats.evictions > 0
    assert scene.loop.free_kv_tokens == scene.free_at_start


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
    assert not scene.plans[0].coming
    scene.run()
    assert scene.sink.results["p"].plan == PLAN
