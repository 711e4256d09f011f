"""Streams under the policy `deadline`: which are promised a rate, and which join a step.

A stream *needs* a rate, in tokens a second, to keep its service level. Before each step the policy

1. promises whole needs, by worth per second of the engine, while all of them fit together (Eq. 7 of
   Zhou et al. 2025 with real rates). Plans stand in the same line;
2. keeps a bearable rate for every other answer that has begun, so that no listener waits long;
3. lets the promised streams join the step, the one with the most urgent token first, while the step
   stays short enough for those that have joined.

A stream that got tokens early needs fewer now and gives way; there is no cycle to restart.

Where rows lack and answers may wait, they take rows one after the other instead: `row_order`.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from operator import attrgetter, itemgetter
from typing import Final

from timely_llm.core.generation import State, StreamGeneration
from timely_llm.core.reason import Cause, Reason
from timely_llm.policies.deadline.moment import AHEAD, Moment
from timely_llm.policies.deadline.row_order import in_turn, row_order
from timely_llm.policies.deadline.shared_step import SharedStep
from timely_llm.policies.deadline.stream_state import PRESSING_S, StreamState
from timely_llm.policies.deadline.wave import Deliverable
from timely_llm.policies.engine_share import (
    FREE_ROW,
    UTIL,
    EngineShare,
    long_room,
    long_steps,
    steps_of_rows,
)
from timely_llm.policies.lengths import AnswerLengths, DecayingMean

PATIENCE_S: Final = 30.0
"""Longest time for which a plan waits for streams while its robot is idle, seconds."""

_ALL = UTIL * (1.0 - 1e-9)  # what one stream may take alone, whatever the rounding
_SPARE = 0.2  # largest share with which a late answer begins
_ROOM = 0.02  # share of streams beyond plans that have taken all
_KEEP = 1.5  # worth of an answer that has begun, relative to a new one
_WINDOW_S = 20.0  # of the load of answers with deadlines; without an answer in time: overload ends
_ALONE_S = 0.15  # longest step of streams without any promise
_LEAST_TO_GO = 40  # tokens that an answer of a conversation counts as, at least
_MOST_ROWS = 32  # that share the cost of a token


class Streams:
    """Promises rates to streams, and remembers them between steps.

    Args:
        people: worth of a stream in plans' units.

    Attributes:
        states: states of the streams by key.
        pressing: listeners that have waited long for the next word; they have rows first.
    """

    def __init__(self, people: float) -> None:
        self.lengths = AnswerLengths()
        self._people = people
        self.states: dict[str, StreamState] = {}
        self.pressing = 0
        self._present: list[StreamState] = []  # without those that wait for a step in flight
        self._promised: list[StreamState] = []  # the most urgent first
        self._urgent = DecayingMean(_WINDOW_S)
        self._in_turn = False  # rows lack, and serve one answer after the other
        self._in_time_s = -math.inf  # when an answer was last in time

    def promise(
        self, moment: Moment, streams: Sequence[StreamGeneration], line: Sequence[Deliverable]
    ) -> set[Deliverable]:
        """Promise rates; return the plans that wait for streams which are worth more.

        Args:
            moment: the moment.
            streams: all streams.
            line: plans that are needed, by falling density.
        """
        now, max_rows = moment.now, moment.capacity.max_rows
        context = sum([stream.context_tokens for stream in streams]) / max(len(streams), 1)
        steps_s = steps_of_rows(moment.step_time, max_rows, context)
        share = EngineShare(steps_s)
        one_s, two_s, *_ = share.steps_s(min(max(len(streams), 2), _MOST_ROWS))
        row_s, (full_s,) = two_s - one_s, steps_s(range(max_rows, max_rows + 1))
        states = self._look(moment, streams, share, long_steps(one_s, row_s, full_s))
        if not all(state.late for state in self.states.values()):
            self._in_time_s = now
        lack, self.pressing = len(states) > max_rows, 0
        if len(moment.generations) > max_rows:
            self.pressing = min(sum([state.is_pressing(now) for state in states]), max_rows)
        self._in_turn = lack and not line and in_turn(states, one_s, full_s)
        if self._in_turn:
            self._promised = row_order(moment, states, full_s)
            for state in self._promised:
                state.promise(min(state.need, (1.0 - AHEAD) / full_s))
            return set()
        shortest_s = one_s * (1.0 + AHEAD)
        kept_free = self._kept_free(now, states, share)
        beyond = long_room(kept_free * row_s / one_s)
        if lack:  # late people who listen get their rates before others, so fewer new ones begin
            others = max([state.density for state in states if not state.real_time], default=0.0)
            for state in states:
                if state.late and not state.real_time:
                    state.density = math.nextafter(others, math.inf)
                    if state.begun and not (state.hopeless or state.long_steps):
                        state.need, state.last = 1.0 / state.tpot_s, False
        offers: list[tuple[float, StreamState | Deliverable]] = [
            *[(one.density, one) for one in line],
            *[(state.density, state) for state in states if state.begun or not state.late],
        ]
        offers.sort(key=itemgetter(0), reverse=True)
        held, most, promised = set(), UTIL, False
        for _, one in offers:
            if isinstance(one, Deliverable):
                # Plans that are worth more than all streams take what they need.
                need = 1.0 / max(one.own_step_s(now), shortest_s)
                if not share.offer(need, most if promised else math.inf):
                    if one.idle_s(now) < PATIENCE_S:
                        held.add(one)
                elif share.used > most - _ROOM:
                    most = share.used + _ROOM
                continue
            # An answer with a deadline shares its steps with a row that is cheap.
            waits = not (one.real_time or one.begun) and one.need * row_s > FREE_ROW
            room = most - kept_free if waits or one.hopeless else most
            if one.long_steps and not one.hopeless:
                room = most + beyond
            if not (one.late and one.last) and share.offer(one.need, room):
                one.promise(one.need)
                promised = True
            else:
                one.promise(one.floor)
                share.offer(one.floor, math.inf)
        self._begin_late(now, states, share, row_s, most, most - kept_free, beyond, lack)
        self._promised = sorted([one for one in states if one.rate], key=attrgetter("urgency"))
        return held

    def _kept_free(self, now: float, states: Sequence[StreamState], share: EngineShare) -> float:
        """Return the share of the engine that new answers leave to usual answers with deadlines."""
        present = share.of(state.need for state in states if state.real_time and not state.late)
        self._urgent.saw(present, now)
        return max(self._urgent.mean + self._urgent.deviation - present, 0.0)

    def _begin_late(
        self, now: float, states: Sequence[StreamState], share: EngineShare, row_s: float,
        most: float, spare: float, beyond: float, lack: bool,
    ) -> None:  # fmt: skip
        """Let late answers begin at a bearable rate, by arrival: in a small share, or one alone.

        After overload, as many begin as keep that rate in the small share.
        """
        waiting = [state for state in states if state.late and not state.begun]
        for state in waiting:
            state.promise(0.0)
        begun = [state for state in states if state.late and state.begun]
        alone = not begun
        if lack:  # no row is free: those that have begun come to their rates first
            for state in begun:
                share.offer(1.0 / state.tpot_s - state.rate, math.inf)
        over = now > self._in_time_s + _WINDOW_S
        for state in sorted(waiting, key=_in_line):
            need = 1.0 / state.tpot_s
            cheap = need * row_s <= FREE_ROW and (over or not state.long_steps)
            if not (
                share.offer(need, most if cheap else _SPARE)
                or (alone and share.offer(state.need, most + beyond if state.long_steps else spare))
                or (over and share.offer(state.need, _SPARE))
            ):
                break
            state.promise(state.need)
            alone = False

    def due(self, by_s: float) -> bool:
        """Return whether a promised token is wanted by a time."""
        urgencies = [state.urgency for state in self._promised]
        return any(not rank or wanted_s <= by_s for rank, wanted_s in urgencies)

    def join(self, moment: Moment, step: SharedStep) -> None:
        """Let streams join a step."""
        if moment.why is not None:
            for state in self._present:
                reason = Reason(Cause.NOT_PROMISED, state.need)
                moment.why[state.generation.key] = reason
        now, longest_s = moment.now, math.inf
        promised = self._promised
        if len(promised) > moment.capacity.max_rows - step.rows and not self._in_turn:
            promised = sorted(promised, key=lambda one: one.place(moment))
        for state in promised:
            own_s = 1.0 / state.rate
            limit_s = min(step.limit_for(state.density), own_s)
            if state.real_time:
                longest_s = min(longest_s, state.longest_s)
            elif longest_s < limit_s:
                limit_s = longest_s
            since_s = state.generation.last_s if state.begun else state.due_s
            if now > since_s + PRESSING_S:
                limit_s = math.inf
            if step.join(state, limit_s) and own_s < step.limit_s:
                step.limit_s = own_s
        if not step.rows:
            others = [state for state in self._present if not state.rate]
            for state in sorted(others, key=_in_line):
                if not step.join(state, _ALONE_S):
                    break

    def unpromised(self) -> set[str]:
        """Return the keys of streams without a promise: they are evicted first."""
        return {state.generation.key for state in self._present if not state.rate}

    def _look(
        self, moment: Moment, streams: Sequence[StreamGeneration], share: EngineShare,
        long_s: tuple[float, float],
    ) -> list[StreamState]:  # fmt: skip
        """Return the updated states of the streams, and learn from ended ones."""
        before, self.states = self.states, {}
        for stream in streams:
            state = before.get(stream.key)
            if state is not None and state.generation is stream:
                del before[stream.key]
            else:
                state = StreamState(stream, self._people)
            self.states[stream.key] = state
        self._present = states = list(self.states.values())
        for key, state in before.items():
            if state.generation.state is State.ENDED:
                state.ended(self.lengths)
            else:  # it waits for an in-flight step or a KV load
                self.states.setdefault(key, state)
        # A stream with a small need shares long steps with many others, so its tokens cost less.
        steps_s = share.steps_s(min(max(len(states), 1), _MOST_ROWS))
        one_s = steps_s[0]
        each_s = [s / rows for rows, s in enumerate(steps_s, start=1)]
        tokens_s = list(accumulate(each_s, min, initial=one_s))
        for state in states:
            state.look(moment, one_s, long_s, self.lengths, _ALL / one_s)
        _share_steps(states, steps_s)
        for state in states:
            if state.last:
                state.density = 0.0
                continue
            token_s = tokens_s[bisect_right(steps_s, 1.0 / state.need)]
            worth, tokens = state.worth, state.tokens_to_go
            if not state.real_time:
                # Near its end an answer loses no more by a short wait than before.
                if tokens < _LEAST_TO_GO:
                    tokens = _LEAST_TO_GO
                if state.begun:
                    worth *= _KEEP
            state.density = worth / (tokens * token_s)
        return states


def _share_steps(states: Sequence[StreamState], steps_s: Sequence[float]) -> None:
    """Let real-time answers that each need every step share it, if their rows are cheap."""
    one_s = steps_s[0]
    hurried = sum(state.real_time and state.need >= _ALL / one_s for state in states)
    if hurried < 2 or steps_s[1] - one_s > FREE_ROW * one_s:
        return
    shared_s = min(steps_s[min(hurried, len(steps_s)) - 1], one_s * (1.0 + AHEAD))
    for state in states:
        if state.real_time and state.need > _ALL / shared_s:
            state.need = _ALL / shared_s


def _in_line(state: StreamState) -> tuple[bool, float]:
    """Sort real-time answers first, then by arrival."""
    return not state.real_time, state.generation.arrival_s
