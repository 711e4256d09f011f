"""Requests that cannot begin in time are refused at once, with the seconds to wait."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from test.examples import examples
from test.serving.scripted import FIND, Scene, request
from test.serving.test_streams import WORDS, ask
from timely_llm.core.generation import Generation, PlanGeneration, State, StreamGeneration
from timely_llm.core.request import ChatMessage, ErrorCode, PlanRequest, Rejected, StreamRequest
from timely_llm.core.slo import REAL_TIME, TEXT, VOICE, Slo
from timely_llm.core.time_utility import TimeUtility
from timely_llm.policies.engine_share import UTIL, long_room
from timely_llm.policies.fcfs import Stream
from timely_llm.policies.lengths import ENOUGH
from timely_llm.policies.step_time import StepTime
from timely_llm.serving.busy import GATES, LONGEST_RETRY_S, BusyGate

STEP_TIME = StepTime(base_s=0.1, row_s=0.0, prefill_token_s=0.0)
"""Ten tokens a second for each of any number of rows."""
COSTLY = StepTime(base_s=0.0, row_s=0.1, prefill_token_s=0.0)
"""Ten tokens a second for all rows together."""
SLOW = Slo(ttft_s=1.0, tpot_s=0.5)
FAST = Slo(ttft_s=1.0, tpot_s=0.2)


def stream(
    request_id: str, slo: Slo = SLOW, tokens: int = 20, weight: float = 1.0
) -> StreamRequest:
    return ask(request_id, slo=slo, max_tokens=tokens, agent=request_id, weight=weight)


def answer(asked: StreamRequest, arrival_s: float = 0.0, out: int = 1) -> StreamGeneration:
    made = StreamGeneration(asked.request_id, asked, arrival_s, 10, 1)
    made.token_ids = [0] * out
    made.first_s = made.last_s = arrival_s
    return made


def refusal(
    asked: StreamRequest | PlanRequest, served: Sequence[Generation], step_time: StepTime = COSTLY,
    gate: BusyGate | None = None, now: float = 0.0, max_rows: int = 256,
) -> Rejected | None:  # fmt: skip
    try:
        (gate or BusyGate()).check(asked, now, served, step_time, max_rows)
    except Rejected as error:
        assert error.code is ErrorCode.BUSY
        return error
    return None


def test_requests_pass_until_their_rates_fill_the_engine() -> None:
    served = [answer(stream(str(n))) for n in range(4)]  # two tokens a second each
    assert refusal(stream("new"), served[:3]) is None
    error = refusal(stream("new"), served)
    assert error is not None
    assert "4 requests" in str(error) and f"try again in {error.retry_after_s:g} s" in str(error)


def test_rows_that_share_steps_are_cheap() -> None:
    served = [answer(stream(str(n))) for n in range(50)]
    assert refusal(stream("new"), served, STEP_TIME) is None


def test_more_requests_than_rows_take_turns() -> None:
    served = [answer(stream(str(n))) for n in range(9)]  # two tokens a second each, in free rows
    assert refusal(stream("new"), served, STEP_TIME) is None
    assert refusal(stream("new"), served, STEP_TIME, max_rows=4) is None
    fast = [answer(stream(str(n), FAST)) for n in range(9)]  # five a second
    assert refusal(stream("new", FAST), fast, STEP_TIME) is None
    assert refusal(stream("new", FAST), fast, STEP_TIME, max_rows=1) is not None


def test_where_rows_lack_a_request_passes_that_is_in_time_in_its_turn() -> None:
    def passes(ttft_s: float, served: list[StreamGeneration]) -> bool:
        asked = stream("new", Slo(ttft_s=ttft_s, tpot_s=0.11))
        return refusal(asked, served, STEP_TIME, max_rows=1) is None

    begun = answer(stream("a", Slo(tpot_s=0.11)), out=1)  # 19 tokens to go, 0.1 s each
    assert passes(2.0, [begun]) and not passes(1.5, [begun])
    patient = answer(stream("b", Slo(ttft_s=5.0, tpot_s=0.11)), out=0)
    assert passes(2.0, [begun, patient]), "the other one can wait for both"
    waiting = answer(stream("b", Slo(ttft_s=2.5, tpot_s=0.11)), out=0)
    assert not passes(2.0, [begun, waiting]), "it makes the other one late"
    late = answer(stream("b", Slo(ttft_s=2.0, tpot_s=0.11)), arrival_s=-3.0, out=0)
    assert passes(2.0, [begun, late])


LONG = StepTime(base_s=0.0785, row_s=0.0009, prefill_token_s=0.0)
"""Of a Jetson AGX Orin: a step takes most of the time of a token."""
TENTH = Slo(ttft_s=1.0, tpot_s=0.1)


def test_where_steps_are_long_more_of_the_engine_is_given_away() -> None:
    def takes(rows: int) -> bool:
        served = [answer(stream(str(n), TENTH)) for n in range(rows - 1)]
        return refusal(stream("new", TENTH), served, LONG) is None

    long_util = UTIL + long_room(0.0)
    most = next(rows for rows in range(1, 50) if not takes(rows)) - 1
    assert UTIL < LONG.predict_s(most) / TENTH.tpot_s <= long_util
    assert LONG.predict_s(most + 1) / TENTH.tpot_s > long_util


def usual_tasks(served: list[Generation]) -> BusyGate:
    """Return a gate that has seen a task with a deadline every second for 30 s, until 40.0."""
    gate = BusyGate()
    for second in range(10, 40):
        task = stream("m", Slo(deadline_s=1.5), tokens=15)
        refusal(task, served, LONG, gate, now=float(second))
    return gate


def test_usual_work_with_deadlines_takes_rows_of_that() -> None:
    served: list[Generation] = [answer(stream(str(n), TENTH)) for n in range(21)]
    assert refusal(stream("before", TENTH), served, LONG) is None
    gate = usual_tasks(served)
    assert refusal(stream("one more", TENTH), served[:18], LONG, gate, now=40.0) is None
    assert refusal(stream("too many", TENTH), served, LONG, gate, now=40.0) is not None


def test_an_answer_beyond_the_engine_waits_until_usual_work_with_deadlines_has_ended() -> None:
    fast = stream("fast", Slo(ttft_s=1.0, tpot_s=0.05))
    served: list[Generation] = [answer(stream(str(n), TENTH)) for n in range(6)]
    assert refusal(fast, served, LONG) is None
    gate = usual_tasks(served)
    assert refusal(fast, served, LONG, gate, now=40.0) is not None
    assert refusal(stream("new", TENTH), served, LONG, gate, now=40.0) is None
    assert refusal(fast, served, LONG, gate, now=140.0) is None


def test_an_idle_engine_takes_all() -> None:
    impossible = Slo(ttft_s=1e-3, tpot_s=1e-3)
    assert refusal(stream("new", impossible), []) is None
    machine = Slo(deadline_s=1e-3)
    assert refusal(stream("new", machine), [], gate=BusyGate(plans=True)) is None


def test_it_is_time_to_ask_again_when_enough_answers_have_ended() -> None:
    # Five answers take all of the engine; the first two end after 5 and 9 s.
    served = [answer(stream(str(n), tokens=11 + 8 * n)) for n in range(5)]
    error = refusal(stream("small", tokens=30), served)
    assert error is not None and error.retry_after_s == 9.0  # one is over what UTIL leaves
    served = [answer(stream(str(n), tokens=4000)) for n in range(5)]
    error = refusal(stream("new", tokens=4000), served)
    assert error is not None and error.retry_after_s == LONGEST_RETRY_S


def test_an_answer_that_is_worth_more_a_token_counts_others_with_a_quarter() -> None:
    served = [answer(stream(str(n), FAST)) for n in range(2)]  # all of the engine
    assert refusal(stream("equal", FAST), served) is not None
    assert refusal(stream("expensive", FAST, weight=2.0), served) is None
    assert refusal(stream("cheap", FAST, weight=0.5), served) is not None
    assert refusal(stream("short", FAST, tokens=10), served) is None
    assert refusal(stream("long and expensive", FAST, tokens=200, weight=10.0), served) is not None


def test_answers_of_no_worth_do_not_give_way_to_each_other() -> None:
    served = [answer(stream(str(n), FAST, weight=0.0)) for n in range(2)]
    assert refusal(stream("new", FAST, weight=0.0), served) is not None
    assert refusal(stream("expensive", FAST, weight=0.1), served) is None


def test_short_answers_with_a_deadline_are_let_in_beside_long_ones_of_their_worth() -> None:
    machine = Slo(deadline_s=2.0)
    served = [answer(stream(str(n), FAST, tokens=400)) for n in range(2)]
    assert refusal(stream("short", machine, tokens=10), served) is None
    both = [*served, answer(stream("begun", machine, tokens=10))]
    assert refusal(stream("new", FAST, tokens=400), both) is not None, "the short one gives no way"


def test_prompts_that_are_not_computed_take_their_time() -> None:
    slow_prompts = StepTime(base_s=0.1, row_s=0.0, prefill_token_s=0.01)
    waiting = answer(stream("waiting"), out=0)
    waiting.to_compute = 100  # all of the second to the first token
    assert refusal(stream("new"), [waiting], slow_prompts) is not None
    waiting.to_compute = 20
    assert refusal(stream("new"), [waiting], slow_prompts) is None


def test_plans_count_until_their_robots_wait_for_no_segment() -> None:
    plans = [
        PlanGeneration(f"r{n}", request(f"r{n}", TimeUtility(1.0, -1.0, 1.0)), 0.0, 9, 1)
        for n in range(3)
    ]
    assert refusal(stream("new"), plans) is not None  # ten tokens within three seconds, three times
    for plan in plans:
        plan.state = State.EXECUTING
    assert refusal(stream("new"), plans) is None


def test_plans_are_refused_only_if_asked_for() -> None:
    urgent = request("plan", TimeUtility(1.0, -1.0, 1.0))  # worth nothing after two seconds
    # Worth as much a token as the plan's ten.
    served = [answer(stream(str(n), FAST, weight=2.0)) for n in range(2)]
    assert refusal(urgent, served) is None
    assert refusal(urgent, served, gate=BusyGate(plans=True)) is not None
    people = [answer(stream(str(n), FAST)) for n in range(2)]
    assert refusal(urgent, people, gate=BusyGate(plans=True)) is None
    patient = replace(urgent, time_utility=TimeUtility(1.0, 0.0, 1.0))
    assert refusal(patient, served, gate=BusyGate(plans=True)) is None
    by_hand = replace(urgent, given_plan="tp();")
    assert refusal(by_hand, served, gate=BusyGate(plans=True)) is None


def test_lengths_of_answers_are_learned() -> None:
    gate, machine = BusyGate(), Slo(tpot_s=1 / 9, deadline_s=1.0)
    served: list[Generation] = [answer(stream("other"))]
    assert refusal(stream("long", machine, tokens=100), served, gate=gate) is not None
    for n in range(10):  # its class has answers of two tokens
        short = answer(stream(f"{n}", machine, tokens=100), out=2)
        refusal(stream("x", machine, tokens=100), [*served, short], gate=gate)
        short.state = State.ENDED
    assert refusal(stream("short", machine, tokens=100), served, gate=gate) is None


def test_lengths_are_learned_from_one_request_after_the_other_too() -> None:
    gate, machine = BusyGate(), Slo(tpot_s=1 / 9, deadline_s=1.0)
    for n in range(ENOUGH):
        short = answer(stream(f"{n}", machine, tokens=100), out=2)
        assert refusal(short.request, [], gate=gate) is None
        gate.admitted(short)
        short.state = State.ENDED
    served = [answer(stream("other"))]
    assert refusal(stream("short", machine, tokens=100), served, gate=gate) is None
    assert refusal(stream("short", machine, tokens=100), served) is not None


def test_a_machine_counts_with_its_declared_rate_until_lengths_are_known() -> None:
    # 256 tokens in 1.5 s would be 171 a second; the class declares 20.
    machines = [answer(stream(f"m{n}", REAL_TIME.slo, tokens=256)) for n in range(3)]
    assert refusal(stream("ann", TEXT.slo, tokens=256), machines, StepTime()) is None


def test_step_times_that_are_not_learned_pass_all_at_a_usual_load() -> None:
    people = [answer(stream(str(n), TEXT.slo, tokens=256)) for n in range(30)]
    plans = [PlanGeneration(f"r{n}", request(f"r{n}"), 0.0, 200, 40) for n in range(30)]
    assert refusal(stream("ann", VOICE.slo, tokens=256), [*people, *plans], StepTime()) is None


def test_a_slow_engine_takes_several_at_a_rate_that_it_could_not_even_keep_for_one() -> None:
    slow_rows = StepTime(base_s=0.0, row_s=0.3, prefill_token_s=0.0)
    shared_rows = StepTime(base_s=0.3, row_s=0.01, prefill_token_s=0.0)
    people = [answer(stream(str(n), TEXT.slo)) for n in range(9)]
    assert refusal(stream("ann", TEXT.slo), people[:1], slow_rows) is None
    assert refusal(stream("ann", TEXT.slo), people[:2], slow_rows) is not None
    assert refusal(stream("ann", TEXT.slo), people, shared_rows) is None


def test_a_prompt_that_is_too_long_for_its_time_to_the_first_token_may_join_others() -> None:
    slow_prompts = StepTime(base_s=0.02, row_s=0.0, prefill_token_s=0.01)
    long = replace(stream("long", TEXT.slo), messages=(ChatMessage("user", "word " * 400),))
    assert refusal(long, [answer(stream("other", TEXT.slo))], slow_prompts) is None
    waiting = answer(stream("waiting", TEXT.slo), out=0)
    waiting.to_compute = 2000
    assert refusal(long, [waiting], slow_prompts) is not None


def test_conversations_leave_what_real_time_requests_have_lately_used() -> None:
    gate, machine = BusyGate(), Slo(deadline_s=1.0)
    other = answer(stream("other"))
    for n in range(40):  # half of the engine, all the time
        one = answer(stream(f"m{n}", machine, tokens=5), arrival_s=float(n), out=0)
        refusal(stream(f"n{n}", machine, tokens=1), [one], gate=gate, now=float(n))
    assert refusal(stream("fast", FAST), [other], gate=gate, now=41.0) is not None
    assert refusal(stream("fast", FAST), [other], gate=BusyGate(), now=41.0) is None


@examples(100)
@given(
    st.lists(
        st.tuples(st.floats(0.02, 5.0), st.integers(1, 500), st.floats(0.1, 100.0)), max_size=30
    ),
    st.floats(0.02, 5.0),
)
def test_a_refusal_says_when_to_ask_again_and_room_only_grows(
    others: list[tuple[float, int, float]], tpot_s: float
) -> None:
    served = [
        answer(stream(str(n), Slo(tpot_s=tpot_s), tokens, weight=weight))
        for n, (tpot_s, tokens, weight) in enumerate(others)
    ]
    new = stream("new", Slo(tpot_s=tpot_s))
    error = refusal(new, served)
    if error is None:
        assert refusal(new, served[1:]) is None
    else:
        assert served and 1.0 <= error.retry_after_s <= LONGEST_RETRY_S
        assert error.retry_after_s == math.ceil(error.retry_after_s)


def all_of(scene: Scene, *names: str) -> Slo:
    """Fill the engine with four requests, as their rows are free; return their service level."""
    everything = Slo(tpot_s=1.001 / UTIL * scene.loop.step_time.predict_s(1))
    for name in names:
        scene.loop.admit(ask(name, agent=name, slo=everything))
        assert name not in scene.sink.answers
    return everything


def test_a_loop_ends_a_refused_request_at_once() -> None:
    said = {**dict.fromkeys(("a", "a1", "a2", "a3", "b"), WORDS), "r": FIND}
    scene = Scene(said, Stream(), busy=BusyGate())
    everything = all_of(scene, "a", "a1", "a2", "a3")
    scene.loop.admit(ask("b", slo=everything))
    refused = scene.sink.answers["b"]
    assert refused.error_code is ErrorCode.BUSY and refused.retry_after_s >= 1.0
    scene.loop.admit(request("r"))  # a plan is not
    scene.run()
    assert scene.sink.answers["a"].error_code is ErrorCode.NONE
    assert scene.sink.results["r"].error_code is ErrorCode.NONE
    assert scene.loop.free_kv_tokens == scene.free_at_start


def test_a_refused_turn_keeps_its_conversation() -> None:
    said = dict.fromkeys(("a", "b", "b1", "b2", "b3", "c", "d"), WORDS)
    scene = Scene(said, Stream(), busy=BusyGate())
    scene.loop.admit(ask("a", conversation="x"))
    scene.run()
    everything = all_of(scene, "b", "b1", "b2", "b3")
    scene.loop.admit(ask("c", "turn", conversation="x", turn=1, slo=everything))
    assert scene.sink.answers["c"].error_code is ErrorCode.BUSY
    assert scene.loop.kept_conversations == 1
    scene.run()
    scene.loop.admit(ask("d", "turn", conversation="x", turn=1, slo=everything))
    scene.run()
    assert scene.sink.answers["d"].error_code is ErrorCode.NONE
    assert scene.sink.answers["d"].kept_tokens > 0


def test_each_name_makes_its_gate() -> None:
    assert GATES["off"]() is None
    assert isinstance(GATES["people"](), BusyGate) and isinstance(GATES["all"](), BusyGate)
