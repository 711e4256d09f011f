"""The closed loop: failures lead to new plans, values to the rest of a plan."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from test.examples import examples
from test.serving.scripted import ARM, FIND, Scene, request
from timely_llm.core.errors import RequestError
from timely_llm.core.generation import State
from timely_llm.core.request import ErrorCode, ExecutionReport, ReportState
from timely_llm.core.time_utility import URGENT
from timely_llm.policies.contract import Policy
from timely_llm.policies.fcfs import Fcfs, Stream
from timely_llm.policies.timely import Timely
from timely_llm.serving.limits import AdmissionLimits, Timeouts

AGAIN = "mf(50);mf(100);tp();->True;...mb(30);mf(100);->True;"


def test_a_failed_segment_leads_to_an_urgent_plan_with_the_history() -> None:
    scene = Scene({"r": AGAIN}, Timely(lead_s=0.2))
    scene.loop.admit(request("r"))
    scene.until_segments(2)
    scene.report("r", ReportState.FINISHED, 0, duration_s=2.0)
    scene.report("r", ReportState.FAILED, 1, value="a dog is passing by")
    generation = scene.plans[0]
    assert generation.epoch == 1
    assert generation.request.time_utility == URGENT
    assert generation.due_s == pytest.approx(scene.clock.now() + 0.2)
    asked = scene.prompts["r"][1]
    assert request("r").task in asked
    assert "You provided me with plan mf(50);mf(100);" in asked
    assert "but I failed because a dog is passing by. Execution history: mf(50);" in asked
    scene.run()
    fresh = [s for s in scene.sink.segments if s.epoch == 1]
    assert [(s.index, s.text) for s in fresh] == [(0, "mb(30);"), (1, "mf(100);"), (2, "->True;")]
    result = scene.sink.results["r"]
    assert (result.error_code, result.epoch) == (ErrorCode.NONE, 1)
    assert result.plan == "mb(30);mf(100);->True;"
    assert result.segments == 5
    assert result.waiting_s > result.response_s
    assert scene.loop.stats.replans == 1
    assert scene.loop.free_kv_tokens == scene.free_at_start


def test_reports_about_an_older_epoch_change_nothing() -> None:
    scene = Scene({"r": AGAIN}, Timely(lead_s=0.2))
    scene.loop.admit(request("r"))
    scene.until_segments(1)
    scene.report("r", ReportState.FAILED, 0, value="wind")
    scene.until_segments(2)
    generation = scene.plans[0]
    due_s = generation.due_s
    for state in (ReportState.FINISHED, ReportState.FAILED, ReportState.RETURNED):
        scene.report("r", state, 0, value="late")
        assert scene.loop.generations == [generation]
    assert generation.due_s == due_s
    scene.report("r", ReportState.FINISHED, 0, epoch=1)
    assert generation.due_s == scene.clock.now()


def test_reports_about_another_agents_request_change_nothing_and_are_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene({"r": AGAIN}, Timely(lead_s=0.2))
    scene.loop.admit(request("r"))
    scene.until_segments(1)
    generation = scene.plans[0]
    due_s = generation.due_s
    states = (ReportState.STARTED, ReportState.FINISHED, ReportState.FAILED, ReportState.RETURNED)
    for number in range(12):
        scene.loop.report(ExecutionReport("r", "thief", states[number % 4], 0, 1.0))
    assert scene.loop.generations == [generation]
    assert generation.due_s == due_s
    assert [record.getMessage() for record in caplog.records] == [
        f"{count} changed nothing: the last one was of 'thief' about request 'r' of another agent"
        for count in ("1 report", "10 reports")
    ]


@pytest.mark.parametrize("policy", [Timely(lead_s=0.2), Stream(), Fcfs()])
def test_no_segment_of_a_plan_that_failed_comes_after_the_failure(policy: Policy) -> None:
    scene = Scene({"r": AGAIN}, policy)
    scene.loop.admit(request("r"))
    scene.until_segments(1)
    if "r" in scene.sink.results:
        return  # whole plans are over when they come
    scene.report("r", ReportState.FAILED, 0, value="wind")
    old = [s for s in scene.sink.segments if s.epoch == 0]
    scene.run()
    assert [s for s in scene.sink.segments if s.epoch == 0] == old
    assert "".join(s.text for s in scene.sink.segments if s.epoch == 1) == AGAIN.split("...")[1]


def test_a_plan_that_fails_again_and_again_ends_with_the_robots_reason() -> None:
    scene = Scene({"r": "mf(50);...mf(50);...mf(50);"}, timeouts=Timeouts(max_replans=2))
    scene.loop.admit(request("r"))
    for epoch in range(3):
        scene.until_segments(epoch + 1)
        scene.report("r", ReportState.FAILED, 0, value="blocked", epoch=epoch)
    result = scene.sink.results["r"]
    assert result.error_code is ErrorCode.EXECUTION_FAILED
    assert result.error_msg == "segment 0 failed: blocked"
    assert result.epoch == 2
    assert scene.loop.free_kv_tokens == scene.free_at_start


def test_a_plan_that_goes_on_here_counts_epochs_from_its_requests() -> None:
    scene = Scene({"r": "mf(50);...mf(50);...mf(50);"}, timeouts=Timeouts(max_replans=1))
    scene.loop.admit(request("r", epoch=3))
    scene.until_segments(1)
    for epoch in (0, 2, 4):  # none is about this plan
        scene.report("r", ReportState.FAILED, 0, value="blocked", epoch=epoch)
    scene.report("r", ReportState.FAILED, 0, value="blocked", epoch=3)
    with pytest.raises(RequestError, match="has begun"):  # its new plan had no step yet
        scene.loop.cancel("r", ErrorCode.CANCELED, "it moves", unless_begun=True)
    scene.until_segments(2)
    scene.report("r", ReportState.FAILED, 0, value="blocked", epoch=4)
    assert [(s.epoch, s.index) for s in scene.sink.segments] == [(3, 0), (4, 0)]
    result = scene.sink.results["r"]
    assert (result.error_code, result.epoch) == (ErrorCode.EXECUTION_FAILED, 4)


def test_without_replans_the_first_failure_ends_the_request() -> None:
    scene = Scene({"r": FIND}, timeouts=Timeouts(max_replans=0))
    scene.loop.admit(request("r"))
    scene.until_segments(1)
    scene.report("r", ReportState.FAILED, 0)
    assert scene.sink.results["r"].error_msg == "segment 0 failed: no reason given"


def test_a_failure_that_cannot_be_put_into_words_ends_the_request() -> None:
    scene = Scene({"r": AGAIN}, max_model_len=20_000, max_step_tokens=20_000)
    scene.loop.admit(request("r", task="x" * 7900))
    scene.until_segments(1)
    scene.report("r", ReportState.FAILED, 0, value="y" * 500)
    result = scene.sink.results["r"]
    assert result.error_code is ErrorCode.EXECUTION_FAILED
    assert "no new plan could be asked for: the task has" in result.error_msg
    assert scene.loop.free_kv_tokens == scene.free_at_start


def test_a_new_plan_that_is_refused_counts_no_prompt_tokens() -> None:
    first = Scene({"r": AGAIN})
    first.loop.admit(request("r"))
    tokens = first.plans[0].prompt_tokens
    scene = Scene({"r": AGAIN}, admission=AdmissionLimits(max_prompt_tokens=tokens))
    scene.loop.admit(request("r"))
    scene.until_segments(1)
    scene.report("r", ReportState.FAILED, 0, value="wind")
    result = scene.sink.results["r"]
    assert result.error_code is ErrorCode.EXECUTION_FAILED
    assert f"at most {tokens} are allowed" in result.error_msg
    assert result.prompt_tokens == tokens
    assert scene.loop.stats.prompt_tokens == tokens


LOOK = "look();...pick('cup');place('box');->True;"


def arm_scene(
    plans: dict[str, str], policy: Policy | None = None, timeouts: Timeouts | None = None,
    **limits: Any,
) -> Scene:  # fmt: skip
    return Scene(plans, policy, timeouts, skill_set=ARM, **limits)


def admit_arm(scene: Scene, name: str) -> None:
    scene.loop.admit(request(name, skill_set="arm"))


@pytest.mark.parametrize("policy", [Timely(lead_s=0.2), Stream(), Fcfs()])
def test_a_blocking_skills_value_enters_the_context_and_nothing_is_recomputed(
    policy: Policy,
) -> None:
    scene = arm_scene({"r": LOOK}, policy)
    admit_arm(scene, "r")
    scene.until_segments(1)
    assert scene.sink.segments[0].blocking
    generation = scene.plans[0]
    assert generation.state is State.BLOCKED
    assert not scene.loop.turn().stepped
    scene.clock.advance(0.7)
    scene.report("r", ReportState.FINISHED, 0, duration_s=0.7, value="cup, {ball}\n")
    assert scene.plans[0].state is State.SUSPENDED
    assert scene.prompts["r"][1].endswith("look();=> cup, {ball}\n")
    assert generation.due_s == scene.clock.now()
    scene.run()
    result = scene.sink.results["r"]
    assert result.error_code is ErrorCode.NONE
    assert result.plan == "look();pick('cup');place('box');->True;"
    assert result.recomputed_tokens == 0
    assert scene.loop.free_kv_tokens == scene.free_at_start


PLAN_SYNTAX = st.lists(
    st.sampled_from([
        "->True;", "->False", "};", "}", "{", ";", "\n", "pick('knife');", "look();", "open();",
        "?look()=='x'{", "3{", "=> ", "'", "cup",
    ]),
    max_size=12,
).map("".join)  # fmt: skip


@examples(60)
@given(PLAN_SYNTAX)
@example("->True;")
@example("};};->False;\npick('knife');")
@example("'); pick('knife'); look();")
def test_a_value_with_plan_syntax_neither_ends_nor_extends_the_plan(value: str) -> None:
    scene = arm_scene({"r": LOOK}, Timely(lead_s=0.2))
    admit_arm(scene, "r")
    scene.until_segments(1)
    scene.report("r", ReportState.FINISHED, 0, duration_s=0.7, value=value)
    scene.run()
    shown = value.replace("\n", " ").strip() or "nothing"
    assert scene.prompts["r"][1].endswith(f"look();=> {shown}\n")
    delivered = [(s.index, s.text) for s in scene.sink.segments]
    rest = ["pick('cup');", "place('box');", "->True;"]
    assert delivered == list(enumerate(["look();", *rest]))
    assert [str(call) for s in scene.sink.segments for call in s.calls] == [
        "look()", "pick('cup')", "place('box')",
    ]  # fmt: skip
    result = scene.sink.results["r"]
    assert (result.error_code, result.plan) == (ErrorCode.NONE, "look();" + "".join(rest))


def test_only_the_value_of_the_blocking_segment_is_waited_for() -> None:
    scene = arm_scene({"r": "open();look();...->True;"}, Stream())
    admit_arm(scene, "r")
    scene.until_segments(2)
    generation = scene.plans[0]
    scene.report("r", ReportState.FINISHED, 0, duration_s=0.5)
    scene.report("r", ReportState.STARTED, 1)
    assert generation.state is State.BLOCKED
    scene.report("r", ReportState.FINISHED, 1, duration_s=0.5)
    assert scene.prompts["r"][1].endswith("=> nothing\n")
    scene.run()
    assert scene.sink.results["r"].error_code is ErrorCode.NONE


def test_a_robot_that_never_answers_times_out() -> None:
    scene = arm_scene({"r": LOOK, "s": "open();->True;"}, None, Timeouts(answer_timeout_s=5.0))
    admit_arm(scene, "r")
    admit_arm(scene, "s")
    scene.run()
    result = scene.sink.results["r"]
    assert result.error_code is ErrorCode.NO_ANSWER
    assert result.error_msg == (
        "'agent-r' did not report the value of look within 5 s of its predicted end"
    )
    assert scene.sink.results["s"].error_code is ErrorCode.NONE
    assert scene.loop.free_kv_tokens == scene.free_at_start


def test_a_blocked_plan_lends_its_memory_and_goes_on_afterwards() -> None:
    plans = {"r": LOOK, "s": "open();" * 20 + "->True;"}
    prefix_tokens = arm_scene({}).prefix_tokens
    scene = arm_scene(plans, Stream(), kv_tokens=prefix_tokens + 95)
    admit_arm(scene, "r")
    scene.until_segments(1)
    admit_arm(scene, "s")
    while "s" not in scene.sink.results:
        assert scene.loop.turn().stepped
    assert scene.sink.results["s"].error_code is ErrorCode.NONE
    assert scene.loop.stats.evictions == 1
    scene.report("r", ReportState.FINISHED, 0, duration_s=0.5, value="cup")
    scene.run()
    result = scene.sink.results["r"]
    assert result.error_code is ErrorCode.NONE
    assert result.recomputed_tokens > 0


def test_reports_teach_how_long_skills_take() -> None:
    plan = "mf(100);" * 30 + "->True;"
    scene = Scene({"r": plan}, Timely(lead_s=0.2))
    scene.loop.admit(request("r"))
    predicted = []
    for index in range(30):
        scene.until_segments(index + 1)
        predicted.append(scene.sink.segments[index].predicted_s)
        scene.report("r", ReportState.FINISHED, index, duration_s=4.0)
    assert predicted[0] == pytest.approx(1.8144 + 0.72)
    assert predicted[-1] == pytest.approx(4.0, rel=0.05)
    assert 0 < scene.loop.stats.duration_bias <= scene.loop.stats.duration_error < 0.4


def test_a_closed_loop_request_ends_with_its_execution() -> None:
    scene = Scene({"r": "mf(50);mf(100);->True;"}, Stream())
    scene.loop.admit(request("r", closed_loop=True))
    scene.until_segments(3)
    assert scene.loop.free_kv_tokens == scene.free_at_start
    assert scene.plans[0].state is State.EXECUTING
    assert not scene.loop.turn().stepped
    for index in range(3):
        assert scene.sink.results == {}
        scene.report("r", ReportState.FINISHED, index, duration_s=1.0)
    assert scene.sink.results["r"].error_code is ErrorCode.NONE


def test_also_the_failure_of_a_complete_plan_leads_to_a_new_one() -> None:
    scene = Scene({"r": "mf(50);->True;...mb(30);->True;"}, Fcfs())
    scene.loop.admit(request("r", closed_loop=True))
    scene.until_segments(2)
    scene.report("r", ReportState.FAILED, 0, value="wind")
    scene.until_segments(4)
    scene.report("r", ReportState.RETURNED, epoch=1)
    result = scene.sink.results["r"]
    assert (result.error_code, result.epoch, result.plan) == (ErrorCode.NONE, 1, "mb(30);->True;")
    assert scene.loop.free_kv_tokens == scene.free_at_start


def test_the_end_of_an_execution_is_not_waited_for_for_ever() -> None:
    scene = Scene({"r": "mf(50);->True;"}, timeouts=Timeouts(answer_timeout_s=5.0))
    scene.loop.admit(request("r", closed_loop=True))
    scene.run()
    result = scene.sink.results["r"]
    assert result.error_code is ErrorCode.NO_ANSWER
    assert "the end of segment 1 within 5 s" in result.error_msg


def test_draining_does_not_wait_for_robots() -> None:
    scene = Scene({"r": "mf(50);->True;", "s": "mf(50);->True;"}, Stream())
    scene.loop.admit(request("r", closed_loop=True))
    scene.until_segments(2)
    scene.loop.admit(request("s", closed_loop=True))
    scene.loop.drain(True)
    assert scene.sink.results["r"].error_code is ErrorCode.NONE
    scene.until_segments(4)
    assert scene.sink.results["s"].error_code is ErrorCode.NONE


def test_a_reason_of_five_megabytes_is_cut() -> None:
    scene = Scene({"r": AGAIN}, Timely(lead_s=0.2), Timeouts(max_replans=0))
    scene.loop.admit(request("r"))
    scene.until_segments(1)
    scene.report("r", ReportState.FAILED, 0, value="wind\n\ud800" * 1_000_000)
    message = scene.sink.results["r"].error_msg
    assert message.startswith("segment 0 failed: wind wind")
    assert len(message.encode()) < 1100


def test_a_reason_of_five_megabytes_still_leads_to_a_new_plan() -> None:
    scene = Scene({"r": AGAIN}, Timely(lead_s=0.2))
    scene.loop.admit(request("r"))
    scene.until_segments(1)
    scene.report("r", ReportState.FAILED, 0, value="wind " * 1_000_000)
    assert scene.plans[0].epoch == 1
    assert len(scene.prompts["r"][1]) < len(scene.prompts["r"][0]) + 2000
