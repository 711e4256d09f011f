import itertools
import math
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from test.policies.builders import stream, talking
from timely_llm.core.generation import StreamGeneration
from timely_llm.core.slo import Slo, SloClass
from timely_llm.core.step import Capacity
from timely_llm.policies.deadline.moment import Moment
from timely_llm.policies.deadline.row_order import (
    RowJob,
    in_time,
    in_turn,
    row_order,
    shortest_first,
)
from timely_llm.policies.deadline.stream_state import PRESSING_S, StreamState
from timely_llm.policies.lengths import AnswerLengths
from timely_llm.policies.step_time import StepTime

STEP = StepTime(0.02, 0.0, 0.0001)
CHAT = SloClass("chat", Slo(10.0, 0.05))
TASK = SloClass("task", Slo(10.0, 0.05, 30.0))
ONE_ROW = Capacity(free_tokens=100_000, max_rows=1, max_step_tokens=2048)


def at(now: float) -> Moment:
    return Moment(now, (), STEP, STEP.predict_s(1), ONE_ROW, None, False)


def states_of(streams: Sequence[StreamGeneration], now: float = 0.0) -> list[StreamState]:
    """Return the states of streams with at most 100 tokens."""
    made = []
    for one in streams:
        one.max_tokens = 100
        state = StreamState(one, people=1.0)
        state.look(at(now), 0.02, (math.inf, math.inf), AnswerLengths(), 50.0)
        made.append(state)
    return made


def keys(states: Sequence[StreamState]) -> list[str]:
    return [state.generation.key for state in states]


jobs = st.lists(st.tuples(st.floats(0.1, 20.0), st.floats(0.1, 5.0)), min_size=1, max_size=6)


def made_of(numbers: Sequence[tuple[float, float]]) -> list[RowJob]:
    states = states_of([stream(f"s{i}", of_class=CHAT) for i in range(len(numbers))])
    return [
        RowJob(by_s, whole_s, state) for (by_s, whole_s), state in zip(numbers, states, strict=True)
    ]


def all_end_in_time(order: Sequence[RowJob], late_s: float = 1e-9) -> bool:
    ends_s = itertools.accumulate(job.whole_s for job in order)
    return all(end_s <= job.by_s + late_s for end_s, job in zip(ends_s, order, strict=True))


@given(jobs)
@example([(0.1, 0.10000000000000002)])
def test_as_many_jobs_end_in_time_as_can(numbers: list[tuple[float, float]]) -> None:
    made = made_of(numbers)
    taken, others = in_time(made, 0.0)
    assert all_end_in_time(sorted(taken, key=lambda job: job.by_s))
    assert len(taken) + len(others) == len(made)
    more = itertools.combinations(sorted(made, key=lambda job: job.by_s), len(taken) + 1)
    assert not any(all_end_in_time(some, -1e-9) for some in more)


@given(jobs)
def test_no_order_in_time_has_an_earlier_mean_end(numbers: list[tuple[float, float]]) -> None:
    taken, _ = in_time(made_of(numbers), 0.0)
    by_key = {job.state.generation.key: job for job in taken}
    order = [by_key[key] for key in keys(shortest_first(taken, 0.0))]
    assert all_end_in_time(order)

    def ends_s(some: Sequence[RowJob]) -> float:
        return sum(itertools.accumulate(job.whole_s for job in some))

    in_order = [some for some in itertools.permutations(taken) if all_end_in_time(some)]
    assert ends_s(order) <= min(map(ends_s, in_order)) + 1e-6


def test_an_answer_that_has_begun_keeps_its_row_and_a_task_waits_for_chats() -> None:
    begun = talking("begun", of_class=CHAT)
    made = states_of([stream("task", of_class=TASK), stream("chat", of_class=CHAT), begun], 0.02)
    assert keys(row_order(at(0.02), made, 0.02)) == ["begun", "chat", "task"]


def test_an_answer_with_credit_gives_its_row_to_one_that_would_be_late() -> None:
    now = 11.0
    ahead = talking("ahead", of_class=CHAT, tokens=60, first_s=10.0)
    ahead.last_s = now
    assert ahead.due_s > now + 1.0
    for arrival_s, expected in ((10.9, ["ahead", "new"]), (1.2, ["new", "ahead"])):
        made = states_of([ahead, stream("new", arrival_s, of_class=CHAT)], now)
        assert keys(row_order(at(now), made, 0.02)) == expected
    ahead.last_s = now - PRESSING_S - 0.1
    made = states_of([ahead, stream("new", 1.2, of_class=CHAT)], now)
    assert keys(row_order(at(now), made, 0.02)) == ["ahead", "new"], "no long gap"


def test_an_answer_that_cannot_begin_in_time_waits_for_all_others() -> None:
    made = states_of(
        [stream("late", 0.0, of_class=CHAT), stream("task", 20.0, of_class=TASK)], 21.0
    )
    assert keys(row_order(at(21.0), made, 0.02)) == ["task", "late"]


def test_a_listener_of_a_late_answer_hears_a_word_before_any_other() -> None:
    late = talking("late", of_class=CHAT, first_s=20.0)
    waiting = stream("new", 20.0, of_class=CHAT)
    early, pressing = 20.1, 20.0 + PRESSING_S + 0.1
    for now, expected in ((early, ["new", "late"]), (pressing, ["late", "new"])):
        made = states_of([late, waiting], now)
        made[0].began_late = True
        assert keys(row_order(at(now), made, 0.02)) == expected


@pytest.mark.parametrize(
    ("of_class", "step_s", "expected"),
    [
        (CHAT, 0.02, True),
        (CHAT, 0.06, False),  # a step of all rows is too slow
        (SloClass("hurried", Slo(0.5, 0.05)), 0.02, False),
        (SloClass("dear", Slo(10.0, 0.05), weight=3.0), 0.02, False),
        (SloClass("short", Slo(10.0, 0.05, 1.5)), 0.02, False),
    ],
)
def test_rows_are_taken_in_turn_where_all_can_wait(
    of_class: SloClass, step_s: float, expected: bool
) -> None:
    made = states_of([stream("a", of_class=CHAT), stream("b", of_class=of_class)])
    assert in_turn(made, 0.02, step_s) is expected
