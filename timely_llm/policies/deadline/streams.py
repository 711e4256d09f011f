"""Streams under the policy `deadline`: which are promised a rate, and which join a step.

A stream *needs* a rate, in tokens a second, to keep its service level. Before each step the policy

1. promises whole needs, by worth per second of the engine, while all of them fit together (Eq. 7 of
   Zhou et al. 2025 with real rates). Plans stand in the same line;
2. keeps a bearable rate for every other answer that has begun, so that no listener waits long;
3. lets the promised streams join the step, the one with the most urgent token first, while the step
   stays short enough for those that have joined.

A stream that got tokens early needs fewer now and gives way; there is no cycle to restart.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from operator import attrgetter, itemgetter
from typing import Final

from timely_llm.core.generation import Generation, State, StreamGeneration
from timely_llm.core.reason import Cause, Reason
from timely_llm.policies.deadline.moment import Moment
from timely_llm.policies.deadline.wave import LONGEST_SEGMENT, Deliverable
from timely_llm.policies.engine_share import (
    FREE_ROW,
    UTIL,
    EngineShare,
    long_room,
    long_steps,
)
from timely_llm.policies.lengths import (
    ENOUGH,
    TYPICAL,
    AnswerLengths,
    DecayingMean,
    task_type,
    to_go,
)

BEARABLE_S: Final = 1.5
"""Longest wait for the next word of an answer that has begun, seconds."""

PATIENCE_S: Final = 30.0
"""Longest time for which a plan waits for streams while its robot is idle, seconds."""

AHEAD = 0.2
"""Largest fraction by which other work may lengthen a step of plans that are late."""

_ALL = UTIL * (1.0 - 1e-9)  # what one stream may take alone, whatever the rounding
_SPARE = 0.2  # largest share with which a late answer begins
_ROOM = 0.02  # share of streams beyond plans that have taken all
_LATE_RATE = 0.25  # share of its rate that an answer keeps when there is no time for more
_KEEP = 1.5  # worth of an answer that has begun, relative to a new one
_WINDOW_S = 20.0  # of the load of answers with deadlines; without an answer in time: overload ends
_ALONE_S = 0.15  # longest step of streams without any promise
_START, _START_S = 0.3, 0.3  # a prompt's longest step: share of the TTFT, and seconds
_CATCH_UP_S = 1.0  # time in which a lag is made up
_USUAL = 0.7  # quantile of the lengths that an answer with a deadline is assumed to have
_NEARLY_ANY = 0.97  # quantile of them with which no step may be too long
_PRESSING_S = 0.8 * BEARABLE_S  # wait after which a stream joins any step
_LEAST_CHUNK = 16  # fewer prompt tokens are not worth a step
_LEAST_TO_GO = 40  # tokens that an answer of a conversation counts as, at least
_MOST_ROWS = 32  # that share the cost of a token


class StreamState:
    """State of a stream between steps.

    Attributes:
        generation: the stream.
        real_time: the whole answer has a deadline.
        due_s: when its next token is due, or the whole answer.
        tpot_s: seconds a token of its service level.
        start_s: longest step in which its prompt may begin, seconds.
        begun: its first token is there.
        bearable: tokens a second that it keeps in any case once it has begun.
        need: tokens a second that keep its service level from now on.
        floor: bearable tokens a second, at most its need; 0 before it has begun.
        rate: promised tokens a second; 0: none.
        urgency: sorts promised streams: real-time answers by need, then by the wanted time of
            their next token.
        worth: in the units of plans.
        density: worth per second of the engine.
        late: its service level cannot be met any more.
        hopeless: its rate is beyond the engine.
        last: it is late or hopeless, so it gets what others leave.
        longest_s: longest step with which a real-time answer of nearly any length is in time,
            seconds.
        tokens_to_go: expected tokens to the end.
        long_steps: steps are long beside the time of its tokens.
    """

    def __init__(self, generation: StreamGeneration, people: float) -> None:
        slo = generation.request.slo
        self.generation = generation
        self.real_time, self.tpot_s = slo.real_time, slo.tpot_s
        self.start_s = min(_START * slo.ttft_s, _START_S)
        # A late real-time answer has no listener, so it only must end.
        self.bearable = max(0.0 if slo.real_time else _LATE_RATE / slo.tpot_s, 1.0 / BEARABLE_S)
        self.begun = self.late = self._began_late = self.long_steps = False
        self.hopeless = self.last = False
        self.need = self.floor = self.rate = self.density = 0.0
        self.urgency = 0, 0.0
        self.due_s = generation.due_s
        self.tokens_to_go = self._most_to_go = 1
        self.longest_s = math.inf
        self.worth = people * generation.request.weight
        self._class = task_type(generation.request)
        self._seen: Sequence[int] = ()
        self._version = self._out = -1

    def look(
        self,
        moment: Moment,
        one_s: float,
        long_s: tuple[float, float],
        lengths: AnswerLengths,
        most: float,
    ) -> None:
        """Update the state.

        Args:
            moment: the moment.
            one_s: seconds of a step of one row.
            long_s: range of the times of a token for which steps are long, seconds.
            lengths: lengths of ended answers.
            most: most tokens a second that one stream can get.
        """
        generation, real_time = self.generation, self.real_time
        out = len(generation.token_ids)
        if out != self._out or not out:
            if lengths.version != self._version:
                self._version, self._seen = lengths.version, lengths.of(self._class)
            self._out, self.begun = out, out > 0
            seen, bound = self._seen, generation.max_tokens
            self.tokens_to_go = to_go(seen, out, bound, _USUAL if real_time else TYPICAL)
            if real_time:
                self._most_to_go = to_go(seen, out, bound, _NEARLY_ANY, 4 * ENOUGH)
        if not real_time:
            self.due_s = generation.due_s
        left_s = self.due_s - (moment.now if out else moment.begin_s)
        self.long_steps = long_s[0] <= self.tpot_s < long_s[1]
        if real_time:
            # The answer may be shorter than assumed: one token must be in time.
            late = left_s < one_s
            need = most if late else min(self.tokens_to_go / left_s, most)
            self.longest_s = math.inf if late else left_s / self._most_to_go
        else:
            need = 1.0 / self.tpot_s
            self.hopeless = need > most
            if self.hopeless:
                need = most / (1.0 + AHEAD)
            if not out:
                self._began_late = left_s < one_s
            late = self._began_late
            if out and left_s < 0.0 and not self.long_steps:
                can_catch_up_s = self.tokens_to_go * (self.tpot_s - 2.0 * one_s)
                late = late or -left_s > can_catch_up_s
                # Its rate, and a lag is made up within that time.
                need *= 1.0 - left_s / _CATCH_UP_S
        self.late, self.last = late, late or self.hopeless
        bearable = self.bearable
        self.need = need = bearable if late else need
        self.floor = (bearable if bearable < need else need) if out else 0.0

    def promise(self, rate: float) -> None:
        """Promise a rate, tokens a second."""
        self.rate = rate
        generation = self.generation
        if self.real_time and rate > self.floor:
            self.urgency = 0, -self.need
        elif not self.begun:
            self.urgency = 1 + (self.last or rate < self.need), generation.arrival_s
        elif rate < self.need:
            self.urgency = 2, generation.last_s + 1.0 / self.floor
        else:
            # Steady words, and no bursts of credit.
            self.urgency = 1 + self.last, min(self.due_s, generation.last_s + self.tpot_s)

    def is_wanted_soon(self, moment: Moment) -> bool:
        """Return whether a token that was promised in time cannot wait; never if real-time."""
        if self.real_time or self.last or self.rate < self.need:
            return False
        if self.begun:
            return self.urgency[1] <= moment.now + moment.one_s
        prompt_s = moment.step_time.coefficients[2] * self.generation.to_compute
        return self.due_s <= moment.now + LONGEST_SEGMENT * moment.one_s + prompt_s

    def ended(self, lengths: AnswerLengths) -> None:
        """Learn the length of the ended answer."""
        if self.generation.token_ids:
            lengths.observe(self._class, len(self.generation.token_ids))


class SharedStep:
    """A step that plans and streams share, while streams join it one by one.

    Args:
        moment: the moment.
        first: the plans in the step.
        wave: those of them that are needed.

    Attributes:
        rows: of the step.
        joined: the streams in the step.
        tokens: tokens of the streams in the step.
        limit_s: longest that the step may become for the streams in it, seconds.
    """

    def __init__(
        self, moment: Moment, first: Sequence[Generation], wave: Sequence[Deliverable]
    ) -> None:
        self.rows = rows = len(first)
        self.joined: list[StreamGeneration] = []
        self.tokens = 0
        self.limit_s = math.inf
        self._predict_s, self._why = moment.step_time.predict_s, moment.why
        _, self._row_s, self._token_s, _ = moment.step_time.coefficients
        self._max_rows = moment.capacity.max_rows
        self._prompts = prompts = sum([g.to_compute for g in first if g.to_compute > 1])
        self._context = context = sum([g.context_tokens for g in first])
        self._free_tokens = moment.capacity.free_tokens - prompts - rows * LONGEST_SEGMENT
        self._chunked = False  # a prompt fills the rest of the step
        step_s = self._predict_s(rows, 0, context)
        # The prompts lengthen this step alone; in a pipeline, what they add to a cycle counts.
        prompts_s = self._predict_s(rows, prompts, context) - step_s
        least_s = step_s * (1.0 + AHEAD)
        self._worth = [-one.density for one in wave]
        own_s = [max(one.own_step_s(moment.now), least_s) + prompts_s for one in wave]
        self._limits_s = list(accumulate(own_s, min, initial=math.inf))

    def limit_for(self, density: float) -> float:
        """Return the longest step for streams in it, and for plans that are worth more."""
        limit_s = self._limits_s[bisect_left(self._worth, -density)]
        return limit_s if limit_s < self.limit_s else self.limit_s

    def join(self, state: StreamState, limit_s: float) -> bool:
        """Add a stream if the step stays within a limit, or is empty; return whether it joined."""
        generation, token_s, why = state.generation, self._token_s, self._why
        rows, tokens = self.rows + 1, generation.to_compute
        context = self._context + generation.context_tokens
        seconds = self._predict_s(rows, self._prompts, context)
        if state.rate and token_s * tokens > self._row_s:
            # A prompt is paid once, unlike a row: it may lengthen a step to begin in time. So may a
            # row that is cheaper than a prompt's token.
            limit_s = max(limit_s, state.start_s)
        refusal: tuple[Cause, float | None] | None = None
        if rows > self._max_rows:
            refusal = Cause.ROWS, self._max_rows
        elif self.rows and seconds > limit_s:
            refusal = Cause.STEP_TIME, limit_s
        elif tokens > 1:
            tokens, refusal = self._chunk(state, limit_s - seconds, limit_s)
        if refusal is not None:
            if why is not None:
                why[generation.key] = Reason(*refusal)
            return False
        self.joined.append(generation)
        self.rows, self._context = rows, context
        self.tokens += tokens
        self._free_tokens -= generation.to_compute + state.tokens_to_go
        if why is not None:
            why[generation.key] = (
                Reason(Cause.PROMISED, state.rate) if state.rate else Reason(Cause.SPARE)
            )
        return True

    def _chunk(
        self, state: StreamState, left_s: float, limit_s: float
    ) -> tuple[int, tuple[Cause, float | None] | None]:
        """Return the tokens of a prompt that join, and why none do.

        Args:
            state: of the stream.
            left_s: seconds that they may add to the step.
            limit_s: longest step, seconds.
        """
        whole, token_s = state.generation.to_compute, self._token_s
        needed = whole + state.tokens_to_go
        if self.rows and needed > self._free_tokens:
            return 0, (Cause.MEMORY, needed - self._free_tokens)
        if self._chunked:
            return 0, (Cause.OTHER_PROMPT, None)
        tokens, chunked = whole, token_s * whole > left_s
        if chunked:
            tokens = int(max(left_s, 0.0) / token_s) if token_s else 0
        if tokens < min(_LEAST_CHUNK, whole):
            if self.rows:
                return 0, (Cause.STEP_TIME, limit_s)
            tokens = _LEAST_CHUNK
        self._chunked = chunked
        self._prompts += tokens
        return tokens, None


class Streams:
    """Promises rates to streams, and remembers them between steps.

    Args:
        people: worth of a stream in plans' units.

    Attributes:
        states: states of the streams by key.
    """

    def __init__(self, people: float) -> None:
        self.lengths = AnswerLengths()
        self._people = people
        self.states: dict[str, StreamState] = {}
        self._present: list[StreamState] = []  # without those that wait for a step in flight
        self._promised: list[StreamState] = []  # the most urgent first
        self._urgent = DecayingMean(_WINDOW_S)
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
        full_s = moment.step_time.predict_s(max_rows, 0, int(max_rows * context))

        def steps_s(rows: range) -> list[float]:
            if rows.stop <= max_rows + 1:
                return moment.step_time.steps_s(rows, context)
            together = range(rows.start, max_rows + 1)
            beyond = range(max(rows.start, max_rows + 1), rows.stop)  # more rows take turns
            return [
                *moment.step_time.steps_s(together, context),
                *(full_s * number / max_rows for number in beyond),
            ]

        share = EngineShare(steps_s)
        one_s, two_s, *_ = share.steps_s(min(max(len(streams), 2), _MOST_ROWS))
        row_s = two_s - one_s
        states = self._look(moment, streams, share, long_steps(one_s, row_s, full_s))
        shortest_s = one_s * (1.0 + AHEAD)
        kept_free = self._kept_free(now, states, share)
        beyond = long_room(kept_free * row_s / one_s)
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
            if not one.late and share.offer(one.need, room):
                one.promise(one.need)
                promised = True
            else:
                one.promise(one.floor)
                share.offer(one.floor, math.inf)
        self._begin_late(now, states, share, row_s, most, most - kept_free, beyond)
        self._promised = sorted([one for one in states if one.rate], key=attrgetter("urgency"))
        return held

    def _kept_free(self, now: float, states: Sequence[StreamState], share: EngineShare) -> float:
        """Return the share of the engine that new answers leave to usual answers with deadlines."""
        present = share.of(state.need for state in states if state.real_time and not state.late)
        self._urgent.saw(present, now)
        return max(self._urgent.mean + self._urgent.deviation - present, 0.0)

    def _begin_late(
        self, now: float, states: Sequence[StreamState], share: EngineShare, row_s: float,
        most: float, spare: float, beyond: float,
    ) -> None:  # fmt: skip
        """Let late answers begin at a bearable rate, by arrival: in a small share, or one alone.

        After overload, as many begin as keep that rate in the small share.
        """
        if not all(state.late for state in self.states.values()):
            self._in_time_s = now
        waiting = [state for state in states if state.late and not state.begun]
        for state in waiting:
            state.promise(0.0)
        alone = not any(state.late and state.begun for state in states)
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
        if len(promised) > moment.capacity.max_rows:
            # Rows lack. An answer with a deadline may still wait for its next token.
            promised = sorted(promised, key=lambda one: not one.is_wanted_soon(moment))
        for state in promised:
            own_s = 1.0 / state.rate
            limit_s = min(step.limit_for(state.density), own_s)
            if state.real_time:
                longest_s = min(longest_s, state.longest_s)
            elif longest_s < limit_s:
                limit_s = longest_s
            since_s = state.generation.last_s if state.begun else state.due_s
            if now > since_s + _PRESSING_S:
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
        most = _ALL / one_s
        for state in states:
            state.look(moment, one_s, long_s, self.lengths, most)
        hurried = sum(state.real_time and state.need >= most for state in states)
        if hurried > 1 and steps_s[1] - one_s <= FREE_ROW * one_s:
            # They share every step, which their rows hardly lengthen.
            most = _ALL / min(steps_s[min(hurried, _MOST_ROWS) - 1], one_s * (1.0 + AHEAD))
            for state in states:
                if state.real_time and state.need > most:
                    state.need = most
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


def _in_line(state: StreamState) -> tuple[bool, float]:
    """Sort real-time answers first, then by arrival."""
    return not state.real_time, state.generation.arrival_s
