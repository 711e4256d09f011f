"""Plans written by hand: through checker, segments and reports, without the engine."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from test.serving.scripted import ARM, DRONE, FIND, Scene, request
from test.skills.plans import Written, plans
from timely_llm.core.errors import RequestError
from timely_llm.core.generation import State
from timely_llm.core.request import ChatMessage, ErrorCode, ReportState, StreamRequest
from timely_llm.core.segment import Segment
from timely_llm.policies.contract import Policy
from timely_llm.policies.fcfs import Fcfs
from timely_llm.policies.registry import POLICIES, make_policy
from timely_llm.policies.timely import Timely
from timely_llm.serving.limits import Timeouts
from timely_llm.skills.skill_set import parse_skill_set

LEAD_S = 0.5
ROBOT = parse_skill_set(
    r"""
name: rover
language: regex
prompt: You are a rover.
skills:
  drive:
    description: go ahead
    arguments: [{name: metres, type: integer, minimum: 1, maximum: 100}]
    duration: {polynomial: [0, 2.0]}
  look:
    description: describe the scene
    duration: {polynomial: [0.5]}
    returns: text
    blocking: true
rules: ['(?P<skill>drive|look)\((?P<arguments>[^)]*)\)']
""",
    "rover",
)


def give(scene: Scene, plan: str, name: str = "g", **fields: Any) -> None:
    scene.loop.admit(request(name, given_plan=plan, **fields))


def execute(scene: Scene, name: str = "g", value: str = "a cup") -> None:
    """Let time pass until the request has ended; a value that is waited for is reported."""
    for _ in range(2000):
        mine = [g for g in scene.plans if g.key == name]
        if not mine:
            return
        if mine[0].state in (State.BLOCKED, State.EXECUTING):
            last = len(mine[0].segments) - 1
            scene.report(name, ReportState.FINISHED, last, duration_s=1.0, value=value)
            continue
        scene.report(name, ReportState.ALIVE)
        turn = scene.loop.turn()
        if not turn.stepped and turn.wake_s < math.inf:
            scene.clock.advance(max(turn.wake_s - scene.clock.now(), 0.0))
    raise AssertionError("the request did not end")


def said(segments: Iterable[Segment], name: str) -> list[tuple[object, ...]]:
    """Return the segments of a request, the last one once."""
    made = {s.index: s for s in segments if s.request_id == name}
    return [(s.index, s.text, s.calls, s.predicted_s, s.final) for s in made.values()]


@settings(max_examples=60)
@given(written=plans(), policy=st.sampled_from(sorted(POLICIES)))
def test_a_given_plan_is_cut_as_the_same_text_of_a_model(written: Written, policy: str) -> None:
    text = written.text
    scene = Scene({"r": text}, make_policy(policy))
    scene.loop.admit(request("r", max_tokens=4096))
    give(scene, text)
    execute(scene)
    scene.run()
    assert said(scene.sink.segments, "g") == said(scene.sink.segments, "r")
    assert {s.given for s in scene.sink.segments if s.request_id == "g"} == {True}
    assert {s.given for s in scene.sink.segments if s.request_id == "r"} == {False}
    model, by_hand = scene.sink.results["r"], scene.sink.results["g"]
    assert (by_hand.error_code, by_hand.plan) == (ErrorCode.NONE, model.plan)
    assert (by_hand.given, model.given) == (True, False)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("look();", "pick('cup');place('box');->True;"),
        ("pick('cup');look();", "say('seen');"),
        ("2{pick('cup');place('box');}look();", "?place('x')==True{pick('y');}"),
        ("look();", ""),
        ("place('x');look();", " "),
    ],
)
def test_a_blocking_call_is_waited_for_as_in_a_models_plan(first: str, second: str) -> None:
    scene = Scene({"r": f"{first}...{second}"}, skill_set=ARM)
    scene.loop.admit(request("r", skill_set="arm"))
    execute(scene, "r")
    give(scene, first + second, skill_set="arm")
    scene.until_segments(len(scene.sink.segments) + 1)
    while scene.plans[0].state is not State.BLOCKED:
        scene.turns(1)
        scene.clock.advance(1.0)
    assert "".join(scene.sink.texts("g")) == first, "nothing after it before its value"
    execute(scene)
    model, by_hand = (said(scene.sink.segments, name) for name in "rg")
    assert [str(s[1]).strip() for s in by_hand] == [str(s[1]).strip() for s in model]
    assert [s[4] for s in by_hand] == [s[4] for s in model]
    assert scene.sink.results["g"].error_code is ErrorCode.NONE


def test_what_an_examples_plan_says_of_a_value_is_left_out() -> None:
    scene = Scene({}, skill_set=ARM)
    give(scene, ARM.examples[1].plan, skill_set="arm")
    execute(scene)
    assert scene.sink.results["g"].plan == ARM.examples[1].plan.replace("=> pen, blue ball\n", "")


def test_plans_in_the_users_language_are_given_too() -> None:
    scene = Scene({}, skill_set=ROBOT)
    give(scene, "drive(3)\nlook()\ndrive(5)", skill_set="rover")
    execute(scene)
    assert [s.text.strip() for s in scene.sink.segments] == ["drive(3)", "look()", "drive(5)"]
    assert scene.sink.results["g"].error_code is ErrorCode.NONE


def test_a_given_plan_takes_no_step_no_token_and_no_memory() -> None:
    scene = Scene({})
    give(scene, FIND)
    while "g" not in scene.sink.results:
        assert scene.loop.free_kv_tokens == scene.free_at_start
        turn = scene.loop.turn()
        assert not turn.stepped
        if turn.wake_s < math.inf:
            scene.clock.advance(max(turn.wake_s - scene.clock.now(), 0.0))
    result = scene.sink.results["g"]
    assert (result.prompt_tokens, result.generated_tokens, result.recomputed_tokens) == (0, 0, 0)
    assert scene.loop.stats.steps == 0
    assert scene.engine.capacity.free_tokens == scene.free_at_start


def test_segments_go_out_shortly_before_the_robot_will_be_idle() -> None:
    scene = Scene({})
    give(scene, "mf(100);mf(50);->True;")
    scene.loop.turn()
    (first,) = scene.sink.segments
    (generation,) = scene.plans
    assert generation.state is State.SUSPENDED
    turn = scene.loop.turn()
    assert turn.wake_s == pytest.approx(scene.clock.now() + first.predicted_s - LEAD_S)
    scene.clock.advance(turn.wake_s - scene.clock.now() - 0.01)
    scene.loop.turn()
    assert len(scene.sink.segments) == 1
    scene.clock.advance(0.02)
    scene.loop.turn()
    assert len(scene.sink.segments) == 2


def test_a_report_moves_the_time_of_the_next_segment() -> None:
    scene = Scene({})
    give(scene, "mf(500);mf(50);->True;")
    scene.loop.turn()
    scene.report("g", ReportState.FINISHED, 0, duration_s=0.1)
    scene.loop.turn()
    assert scene.sink.texts("g") == ["mf(500);", "mf(50);"]


@pytest.mark.parametrize("policy", [Fcfs(), Timely()])
def test_whole_plans_come_at_once(policy: Policy) -> None:
    scene = Scene({}, policy)
    give(scene, "mf(500);mf(50);->True;")
    scene.loop.turn()
    assert len(scene.sink.segments) == (3 if policy.whole_plans else 1)


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        ("mf(50);fly();", "unknown skill 'fly'"),
        ("mf(50);mf(9000);", "mf"),
        ("mf(50);?s('cat'){tp();", "'}' missing"),
        ("mf(50", "ends in the middle of a statement"),
        (" \n ", "the plan is empty"),
    ],
)
def test_a_plan_with_a_fault_ends_before_anything_reaches_the_robot(plan: str, reason: str) -> None:
    scene = Scene({})
    give(scene, plan)
    result = scene.sink.results["g"]
    assert result.error_code is ErrorCode.MALFORMED_PLAN
    assert reason in result.error_msg
    assert (result.given, scene.sink.segments, scene.loop.generations) == (True, [], [])


def test_a_failed_segment_ends_the_request_and_no_model_goes_on() -> None:
    scene = Scene({"g": "tp();"})
    give(scene, "mf(50);mf(100);->True;")
    scene.loop.turn()
    scene.report("g", ReportState.FAILED, 0, value="a wheel is stuck")
    result = scene.sink.results["g"]
    assert result.error_code is ErrorCode.EXECUTION_FAILED
    assert result.error_msg == (
        "segment 0 failed: a wheel is stuck; a plan written by hand is not replaced by one of the"
        " model's"
    )
    assert (result.given, scene.prompts, scene.loop.generations) == (True, {}, [])


@pytest.mark.parametrize("closed_loop", [False, True])
def test_a_request_ends_with_its_last_word_or_with_its_execution(closed_loop: bool) -> None:
    scene = Scene({}, Fcfs())
    give(scene, "tp();->True;", closed_loop=closed_loop)
    scene.loop.turn()
    assert ("g" in scene.sink.results) is not closed_loop
    if closed_loop:
        assert scene.plans[0].state is State.EXECUTING
        scene.report("g", ReportState.FINISHED, 1, duration_s=0.1)
    assert scene.sink.results["g"].error_code is ErrorCode.NONE


def test_a_canceled_plan_says_nothing_more() -> None:
    scene = Scene({})
    give(scene, "mf(500);mf(50);->True;")
    scene.loop.turn()
    assert scene.loop.cancel("g", ErrorCode.CANCELED, "canceled by a client")
    scene.clock.advance(100.0)
    scene.turns(3)
    assert scene.sink.texts("g") == ["mf(500);"]
    assert scene.sink.results["g"].error_code is ErrorCode.CANCELED


def test_a_draining_server_keeps_nothing_back() -> None:
    scene = Scene({})
    give(scene, "mf(500);mf(50);->True;")
    scene.loop.turn()
    scene.loop.drain(True)
    scene.loop.turn()
    assert scene.sink.results["g"].plan == "mf(500);mf(50);->True;"


def test_a_robot_that_does_not_answer_is_not_waited_for_for_ever() -> None:
    scene = Scene({}, timeouts=Timeouts(answer_timeout_s=5.0), skill_set=ARM)
    give(scene, "look();pick('cup');", skill_set="arm")
    scene.run()
    assert scene.sink.results["g"].error_code is ErrorCode.NO_ANSWER


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_requests_of_the_model_are_served_beside_waiting_given_plans(policy: str) -> None:
    prefix_tokens = Scene({}).prefix_tokens
    scene = Scene({"r": FIND}, make_policy(policy), kv_tokens=prefix_tokens + 150)
    for name in "abcdefgh":
        give(scene, "mf(500);tp();->True;", name)
    talk = StreamRequest("t", "person", (ChatMessage("user", "Hello."),), max_tokens=5)
    scene.loop.admit(talk)
    scene.loop.admit(request("r"))
    scene.run()
    assert {r.error_code for r in scene.sink.results.values()} == {ErrorCode.NONE}
    assert set(scene.sink.results) == set("abcdefghr")


def test_a_segment_that_cannot_be_delivered_ends_its_plan_alone() -> None:
    class Choosy:
        def __init__(self, inner: Any) -> None:
            self._inner = inner

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

        def segment(self, segment: Segment) -> None:
            if segment.request_id == "g":
                raise OSError("no room")
            self._inner.segment(segment)

    scene = Scene({"r": FIND})
    scene.loop.publisher._sink = Choosy(scene.sink)
    give(scene, FIND)
    scene.loop.admit(request("r"))
    scene.run()
    assert scene.sink.results["g"].error_code is ErrorCode.ENGINE_FAILED
    assert "OSError: no room" in scene.sink.results["g"].error_msg
    assert scene.sink.results["r"].error_code is ErrorCode.NONE


def test_a_given_plan_needs_no_task_and_others_do() -> None:
    scene = Scene({})
    give(scene, FIND, task="")
    execute(scene)
    assert scene.sink.results["g"].plan == FIND
    with pytest.raises(RequestError, match="the task is empty"):
        request("r", task=" ")


def test_its_skill_set_cannot_go_while_it_is_served() -> None:
    scene = Scene({})
    give(scene, "mf(500);tp();->True;")
    with pytest.raises(RequestError, match="1 request uses it"):
        scene.loop.unregister(DRONE.name)
