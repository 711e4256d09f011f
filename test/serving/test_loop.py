"""Admit, step, deliver: on the virtual clock, with the real policies and stop checker."""

from typing import Any

import pytest

from test.serving.scripted import DRONE, FIND, Scene, request
from timely_llm.core.errors import EngineError, RequestError
from timely_llm.core.generation import State
from timely_llm.core.request import (
    ChatMessage,
    ErrorCode,
    ExecutionReport,
    Rejected,
    ReportState,
    StreamRequest,
)
from timely_llm.core.step import SequenceProgress, StepResult
from timely_llm.core.time_utility import URGENT
from timely_llm.engines.contract import Decoding
from timely_llm.engines.simulated import SimulatedEngine
from timely_llm.policies.contract import Policy
from timely_llm.policies.fcfs import Fcfs, Stream
from timely_llm.policies.timely import Timely
from timely_llm.serving.limits import AdmissionLimits
from timely_llm.skills.minispec.grammar import plan_grammar


def test_a_plan_is_delivered_in_segments_that_make_up_its_text() -> None:
    scene = Scene({"r": FIND})
    scene.loop.admit(request("r"))
    scene.run()
    assert scene.sink.texts("r") == [
        "?s('cat'){", "g('cat');", "tp();", "->True;", "};->False;",
    ]  # fmt: skip
    assert [s.index for s in scene.sink.segments] == [0, 1, 2, 3, 4]
    assert [s.final for s in scene.sink.segments] == [False] * 4 + [True]
    result = scene.sink.results["r"]
    assert result.error_code is ErrorCode.NONE
    assert result.plan == FIND
    assert result.segments == 5
    assert result.utility == 1.0
    assert 0 < result.response_s < 1
    assert result.recomputed_tokens == 0


def test_a_segment_goes_out_in_the_step_that_completes_it() -> None:
    scene = Scene({"r": FIND}, Stream())
    scene.loop.admit(request("r"))
    while not scene.sink.segments:
        before = scene.clock.now()
        scene.loop.turn()
    assert scene.sink.results == {}
    generation = scene.plans[0]
    assert generation.tally.response_s == pytest.approx(scene.clock.now())
    assert generation.segments[0] is scene.sink.segments[0]
    assert before < scene.clock.now()


def test_whole_plans_come_at_their_end() -> None:
    scene = Scene({"r": FIND}, Fcfs())
    scene.loop.admit(request("r"))
    while not scene.sink.segments:
        scene.loop.turn()
    assert "".join(scene.sink.texts("r")) == FIND
    assert scene.sink.results["r"].response_s == pytest.approx(scene.clock.now())


def test_a_plan_without_return_ends_with_its_last_segment_marked_final() -> None:
    scene = Scene({"r": "?iv('cat'){g('cat');}"})
    scene.loop.admit(request("r"))
    scene.run()
    first, second, again = scene.sink.segments
    assert (first.text, second.text, second.final) == ("?iv('cat'){", "g('cat');", False)
    assert (again.index, again.text, again.final) == (1, "g('cat');}", True)
    assert scene.sink.results["r"].plan == "?iv('cat'){g('cat');}"


def test_the_next_segment_is_due_when_the_robot_will_be_idle() -> None:
    scene = Scene({"r": "mf(50);mf(100);->True;"})
    scene.loop.admit(request("r"))
    generation = scene.plans[0]
    assert generation.due_s == pytest.approx(1.0)
    while not scene.sink.segments:
        scene.loop.turn()
    delivered_s = scene.clock.now()
    assert generation.state is State.SUSPENDED
    assert generation.due_s == pytest.approx(delivered_s + 1.8144 + 0.36)
    while len(scene.sink.segments) < 2:
        scene.loop.turn()
    assert generation.due_s == pytest.approx(delivered_s + 2 * 1.8144 + 0.36 + 0.72)


def test_reports_replace_predictions() -> None:
    scene = Scene({"r": "mf(50);mf(100);->True;"}, Timely(lead_s=0.1))
    scene.loop.admit(request("r"))
    while not scene.sink.segments:
        scene.loop.turn()
    generation = scene.plans[0]
    scene.clock.advance(0.5)
    scene.loop.report(ExecutionReport("r", "agent-r", ReportState.STARTED, 0))
    assert generation.due_s == pytest.approx(scene.clock.now() + 1.8144 + 0.36)
    scene.loop.report(ExecutionReport("r", "agent-r", ReportState.FINISHED, 0, 0.1))
    assert generation.due_s == pytest.approx(scene.clock.now())
    late = generation.due_s
    for stranger in (
        ExecutionReport("r", "someone", ReportState.STARTED, 0),
        ExecutionReport("x", "agent-r", ReportState.STARTED, 0),
        ExecutionReport("r", "agent-r", ReportState.STARTED, 7),
    ):
        scene.loop.report(stranger)
    assert generation.due_s == late


def test_a_suspended_plan_rests_until_its_robot_needs_the_next_segment() -> None:
    scene = Scene({"r": "mf(50);mf(100);->True;"}, Timely(lead_s=0.5))
    scene.loop.admit(request("r"))
    while not scene.sink.segments:
        scene.loop.turn()
    due_s = scene.plans[0].due_s
    turn = scene.loop.turn()
    assert not turn.stepped
    assert turn.wake_s == pytest.approx(due_s - 0.5)
    scene.clock.advance(turn.wake_s - scene.clock.now())
    while len(scene.sink.segments) < 2:
        assert scene.loop.turn().stepped
    assert scene.clock.now() < due_s
    assert scene.plans[0].tally.waiting_s == pytest.approx(scene.plans[0].tally.response_s)


def test_an_urgent_request_overtakes_a_suspended_one() -> None:
    plans = {f"n{i}": "mf(50);mf(100);mf(50);->True;" for i in range(8)} | {"u": "mu(100);->True;"}
    scene = Scene(plans)
    for i in range(8):
        scene.loop.admit(request(f"n{i}"))
    scene.turns(4)
    scene.loop.admit(request("u", URGENT))
    scene.run()
    order = [s.request_id for s in scene.sink.segments]
    assert order.index("u") < 8
    assert scene.sink.results["u"].utility == 2.0


@pytest.mark.parametrize(
    ("plan", "words"),
    [("mf(9000);", "distance must be 10 to 500 cm"), ("jump(1);", "unknown skill"), ("mf(", "")],
)
def test_a_plan_that_breaks_the_rules_ends_with_a_clear_error(plan: str, words: str) -> None:
    scene = Scene({"bad": "tc(45);" + plan, "good": "mf(50);->True;"})
    scene.loop.admit(request("bad"))
    scene.loop.admit(request("good"))
    scene.run()
    result = scene.sink.results["bad"]
    assert result.error_code is ErrorCode.MALFORMED_PLAN
    assert words in result.error_msg
    assert result.plan == "tc(45);"
    assert scene.sink.results["good"].error_code is ErrorCode.NONE


def test_a_plan_that_does_not_end_is_cut_off() -> None:
    scene = Scene({"r": "tc(45);" * 50})
    scene.loop.admit(request("r", max_tokens=30))
    scene.run()
    result = scene.sink.results["r"]
    assert result.error_code is ErrorCode.TOO_LONG
    assert result.generated_tokens == 30


def test_a_canceled_request_frees_its_memory_before_the_next_step() -> None:
    scene = Scene({"r": FIND})
    scene.loop.admit(request("r"))
    scene.turns(3)
    assert scene.loop.free_kv_tokens < scene.free_at_start
    assert scene.loop.cancel("r", ErrorCode.CANCELED, "canceled by a client")
    assert scene.loop.free_kv_tokens == scene.free_at_start
    assert scene.sink.results["r"].error_code is ErrorCode.CANCELED
    assert not scene.loop.cancel("r", ErrorCode.CANCELED, "")
    assert not scene.loop.turn().stepped


def test_a_request_that_has_begun_is_not_withdrawn() -> None:
    scene = Scene({"r": "tp();->True;", "s": FIND}, Fcfs())
    for key in ("r", "s"):
        scene.loop.admit(request(key))
    assert scene.loop.cancel("s", ErrorCode.CANCELED, "it moves", unless_begun=True)
    assert scene.sink.results["s"].error_code is ErrorCode.CANCELED
    scene.turns(1)
    with pytest.raises(RequestError, match="request 'r' has begun, and goes on here"):
        scene.loop.cancel("r", ErrorCode.CANCELED, "it moves", unless_begun=True)
    scene.run()
    assert scene.sink.results["r"].error_code is ErrorCode.NONE
    assert not scene.loop.cancel("r", ErrorCode.CANCELED, "it moves", unless_begun=True)


def test_a_robot_that_returned_needs_no_more_segments() -> None:
    scene = Scene({"r": FIND}, Timely(lead_s=0.1))
    scene.loop.admit(request("r"))
    while not scene.sink.segments:
        scene.loop.turn()
    scene.loop.report(ExecutionReport("r", "agent-r", ReportState.RETURNED))
    assert scene.sink.results["r"].error_code is ErrorCode.NONE
    assert scene.loop.free_kv_tokens == scene.free_at_start


def test_a_failed_step_fails_its_requests_and_the_server_lives_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene({"a": FIND, "b": FIND})
    scene.loop.admit(request("a"))

    collect = scene.engine.collect

    def fail() -> StepResult:
        collect()
        raise EngineError("out of memory")

    with monkeypatch.context() as broken:
        broken.setattr(scene.engine, "collect", fail)
        assert scene.loop.turn().stepped
    result = scene.sink.results["a"]
    assert result.error_code is ErrorCode.ENGINE_FAILED
    assert "out of memory" in result.error_msg
    assert scene.loop.free_kv_tokens == scene.free_at_start
    scene.loop.admit(request("b"))
    scene.run()
    assert scene.sink.results["b"].error_code is ErrorCode.NONE


def test_a_second_request_of_the_same_id_is_refused() -> None:
    scene = Scene({"r": FIND})
    scene.loop.admit(request("r"))
    with pytest.raises(Rejected, match="a request 'r' is being served already") as refused:
        scene.loop.admit(request("r"))
    assert refused.value.code is ErrorCode.DUPLICATE_REQUEST


def test_all_memory_is_free_when_all_have_ended_and_the_prefix_was_computed_once() -> None:
    plans = {f"r{i}": FIND for i in range(20)}
    scene = Scene(plans)
    for name in plans:
        scene.loop.admit(request(name))
    scene.run()
    assert scene.loop.free_kv_tokens == scene.free_at_start
    stats = scene.loop.stats
    assert (stats.requests, stats.ended, stats.failed) == (20, 20, 0)
    assert stats.recomputed_tokens == 0


def test_memory_pressure_delays_but_never_changes_plans() -> None:
    plans = {f"r{i}": "mf(50);tc(45);" * 4 + "->True;" for i in range(12)}
    roomy = Scene(plans, Stream())
    tight = Scene(plans, Timely(), kv_tokens=roomy.prefix_tokens + 400)
    for scene in (roomy, tight):
        for name in plans:
            scene.loop.admit(request(name))
        scene.run(5000)
    for name, plan in plans.items():
        assert roomy.sink.results[name].plan == tight.sink.results[name].plan == plan


@pytest.mark.parametrize("policy", [Timely(), Stream()])
def test_a_prompt_that_can_never_fit_ends_instead_of_waiting_for_ever(policy: Policy) -> None:
    prefix_tokens = Scene({}).prefix_tokens
    scene = Scene({"l" * 120: FIND, "r": FIND}, policy, kv_tokens=prefix_tokens + 60)
    scene.loop.admit(request("l" * 120, agent="a"))
    scene.loop.admit(request("r"))
    scene.run()
    (key, result), _ = sorted(scene.sink.results.items())
    assert key.startswith("ll")
    assert result.error_code is ErrorCode.NO_MEMORY
    assert "tokens of KV" in result.error_msg
    assert scene.sink.results["r"].plan == FIND


def test_a_robot_that_is_still_searching_does_not_wait() -> None:
    scene = Scene({"r": FIND}, Timely(lead_s=0.1))
    scene.loop.admit(request("r"))
    while not scene.sink.segments:
        scene.loop.turn()
    generation = scene.plans[0]
    scene.loop.report(ExecutionReport("r", "agent-r", ReportState.STARTED, 0))
    scene.clock.advance(8.0)  # predicted by its lower bound, 1.5 s
    while len(scene.sink.segments) < 2:
        scene.loop.turn()
    assert generation.tally.waiting_s == pytest.approx(generation.tally.response_s)


def test_a_token_that_cannot_be_read_is_one_requests_trouble(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene({"a": FIND, "b": FIND}, Stream())
    for name in ("a", "b"):
        scene.loop.admit(request(name))
    stream = scene.loop._pool["a"]._stream

    def fail(token_id: int) -> str:
        raise ValueError("no such token")

    monkeypatch.setattr(stream, "push", fail)
    scene.run()
    assert scene.sink.results["a"].error_code is ErrorCode.ENGINE_FAILED
    assert "no such token" in scene.sink.results["a"].error_msg
    assert scene.sink.results["b"].plan == FIND
    assert scene.loop.free_kv_tokens == scene.free_at_start


def test_a_plan_is_cut_off_where_the_model_ends() -> None:
    scene = Scene({"r": "tc(45);" * 50}, max_model_len=650)
    scene.loop.admit(request("r"))
    scene.run()
    assert scene.sink.results["r"].error_code is ErrorCode.TOO_LONG


def test_a_constrained_loop_gives_the_engine_its_skill_sets_grammar(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Decoding] = []
    add = SimulatedEngine.add

    def watch(engine: SimulatedEngine, *given: Any) -> SequenceProgress:
        asked.append(given[3])
        return add(engine, *given)

    monkeypatch.setattr(SimulatedEngine, "add", watch)
    scene = Scene({"r": FIND, "s": FIND}, admission=AdmissionLimits(constrained=True))
    scene.loop.admit(request("r", temperature=0.5, seed=7))
    warm_up, decoding = asked
    assert (decoding.temperature, decoding.seed) == (0.5, 7)
    assert decoding.grammar == warm_up.grammar == plan_grammar(DRONE)
    assert scene.loop.free_kv_tokens == scene.free_at_start


def test_a_prompt_that_is_too_long_is_refused() -> None:
    scene = Scene({"r": FIND}, admission=AdmissionLimits(max_prompt_tokens=50))
    scene.loop.admit(request("r"))
    result = scene.sink.results["r"]
    assert result.error_code is ErrorCode.INVALID_REQUEST
    assert "tokens, at most 50 are allowed" in result.error_msg
    assert not scene.loop.generations


def test_what_can_be_no_prompt_is_refused_before_it_is_made_tokens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene({"r": FIND}, admission=AdmissionLimits(max_prompt_tokens=700))
    encoded: list[int] = []
    tokenizer = scene.engine.tokenizer
    encode_chat = tokenizer.encode_chat

    def counting(messages: Any) -> list[int]:
        encoded.append(len(messages))
        return encode_chat(messages)

    monkeypatch.setattr(tokenizer, "encode_chat", counting)
    scene.loop.admit(request("r", task="x" * 5601))
    assert scene.sink.results["r"].error_msg == (
        "the task has 5601 characters, at most 5600 are taken where prompts may have 700 tokens"
    )
    messages = (ChatMessage("user", "x" * 5601),)
    scene.loop.admit(StreamRequest("s", "a", messages))
    assert scene.sink.answers["s"].error_msg.startswith("the message has 5601 characters, at most")
    assert not encoded
