"""Streams one after the other where rows lack, under the policy `deadline`.

Where more answers are wanted than a step has rows, and each may begin as late as another takes, a
row serves one answer until it ends: two that share a row both end later, and neither sooner. The
order then is that of jobs at machines. Those that are taken are as many as end in time (Moore
1968), by worth where they cannot all; among these the shortest comes first as long as no other one
is late for it (Smith 1956).
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from operator import attrgetter
from typing import Final, NamedTuple

from timely_llm.policies.deadline.moment import AHEAD, Moment
from timely_llm.policies.deadline.stream_state import BEARABLE_S, StreamState
from timely_llm.policies.engine_share import PATIENCE

_CREDIT_S: Final = 1.0  # of a reader, with which an answer may give its row to another
_TO_COME: Final = 1.2  # time that answers take, with that of answers to come
_ALIKE: Final = 2.0  # largest ratio of worths


class RowJob(NamedTuple):
    """An answer that wants a row.

    Attributes:
        by_s: time in which it must end, if one row were as fast as all of them, seconds from now.
        whole_s: time that it takes in that row, seconds.
        state: of the stream.
    """

    by_s: float
    whole_s: float
    state: StreamState

    @property
    def in_line(self) -> tuple[bool, float, float]:
        """Sort answers that have begun first, then by arrival, then the shortest first."""
        return not self.state.begun, self.state.generation.arrival_s, self.whole_s


def in_turn(states: Sequence[StreamState], one_s: float, step_s: float) -> bool:
    """Return whether rows that lack serve one answer after the other; there is one at least.

    Each can wait, a step of all rows keeps its rate, and none is worth much more than another: that
    one must find a row at once.

    Args:
        states: of the streams.
        one_s: seconds of a step of one row.
        step_s: seconds of a step of all rows.
    """
    worths = [state.worth for state in states]
    if max(worths) > _ALIKE * min(worths):
        return False
    usual_s = step_s * sum([state.typical_to_go for state in states]) / len(states)
    for state in states:
        slo = state.generation.request.slo
        wait_s = slo.ttft_s
        if state.real_time:
            if state.late:
                continue
            wait_s = slo.deadline_s - state.tokens_to_go * step_s
        elif step_s > max(state.tpot_s, one_s * (1.0 + AHEAD)):
            return False  # fewer rows are faster
        if wait_s < PATIENCE * usual_s:
            return False
    return True


def row_order(moment: Moment, states: Sequence[StreamState], step_s: float) -> list[StreamState]:
    """Return streams in the order in which they get rows.

    An answer that a person reads or hears keeps its row until it ends, unless its reader has tokens
    for a while and another answer would be late.

    Args:
        moment: the moment.
        states: of the streams.
        step_s: seconds of a step of all rows.
    """
    now, rows = moment.now, moment.capacity.max_rows
    token_s = moment.step_time.coefficients[2]
    begun: list[StreamState] = []
    jobs: list[RowJob] = []
    late: list[RowJob] = []
    busy_s = 0.0
    for state in states:
        prompt_s = token_s * (state.generation.to_compute - 1)
        whole_s = _TO_COME * (prompt_s + state.typical_to_go * step_s) / rows
        left_s = state.due_s - now
        if _is_lost(state, left_s, moment.one_s, step_s):
            late.append(RowJob(left_s, whole_s, state))
        elif state.begun and not state.real_time and left_s < _CREDIT_S:
            begun.append(state)
            busy_s += whole_s
        else:
            if state.real_time:
                left_s -= state.tokens_to_go * step_s
            elif state.begun:
                left_s += state.typical_to_go * (state.tpot_s - step_s)
            jobs.append(RowJob(left_s - prompt_s + whole_s, whole_s, state))
    taken, others = in_time(jobs, busy_s)
    rest = sorted([*others, *late], key=attrgetter("in_line"))
    begun.sort(key=attrgetter("due_s"))
    order = [*begun, *shortest_first(taken, busy_s), *[job.state for job in rest]]
    order.sort(key=lambda state: not state.is_pressing(now))
    return order


def _is_lost(state: StreamState, left_s: float, one_s: float, step_s: float) -> bool:
    """Return whether an answer cannot meet its level, or only at the cost of others."""
    if state.real_time:
        return state.late
    if state.began_late or not state.begun:
        return state.began_late or state.tpot_s < one_s
    can_catch_up_s = state.tokens_to_go * (state.tpot_s - step_s)
    return -left_s > max(can_catch_up_s, BEARABLE_S)


def in_time(jobs: Sequence[RowJob], busy_s: float) -> tuple[list[RowJob], list[RowJob]]:
    """Return jobs that end in time one after the other, as many as can, and the others."""
    taken: list[tuple[float, int, RowJob]] = []  # the least worth for its time first
    others: list[RowJob] = []
    end_s = busy_s
    for number, job in enumerate(sorted(jobs, key=attrgetter("by_s"))):
        heappush(taken, (job.state.worth / job.whole_s, number, job))
        end_s += job.whole_s
        if end_s > job.by_s:
            _, _, least = heappop(taken)
            end_s -= least.whole_s
            others.append(least)
    return [job for _, _, job in taken], others


def shortest_first(jobs: Sequence[RowJob], busy_s: float) -> list[StreamState]:
    """Return jobs that all end in time, from the end on: the longest that may be last."""
    end_s = busy_s + sum([job.whole_s for job in jobs])
    rest = sorted(jobs, key=attrgetter("by_s"))
    last: list[tuple[float, int, StreamState]] = []  # the longest first
    order: list[StreamState] = []
    while rest or last:
        while rest and (not last or rest[-1].by_s >= end_s):
            job = rest.pop()
            heappush(last, (-job.whole_s, -len(rest), job.state))
        minus_s, _, state = heappop(last)
        end_s += minus_s
        order.append(state)
    return order[::-1]
