"""The policy `deadline` for streams: which streams are promised a rate, and which join a step.

Each stream has a *need*: the tokens a second that keep its service level. The policy decides

- which needs the engine promises: by worth per second of engine time, while all needs fit together;
- which promised streams share the next step: the most urgent first, as many as that one can afford.
  A stream that got tokens early needs fewer now and gives way; there is no cycle to restart;
- which best-effort streams use the rest: an answer that has begun goes on to its end before another
  one begins, so that a listener waits for the first word and not for each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from timely_llm.core.errors import ConfigurationError
from timely_llm.core.generation import State, StreamGeneration
from timely_llm.core.reason import Cause, Reason
from timely_llm.policies.engine_share import EngineShare, TokenCost
from timely_llm.policies.lengths import ENOUGH, AnswerLengths, DecayingMean
from timely_llm.policies.step_time import StepTime

_TYPICAL: Final = 0.5
_NEARLY_ANY: Final = 0.97
_LEAST_SHARE = 0.5  # of its rate: credit does not make a stream wait for longer
_CATCH_UP_S = 1.0


class StreamState:
    """State of a stream between steps.

    Attributes:
        generation: the stream.
        need: tokens a second from now on.
        density: worth per second of engine time.
        tokens_to_go: expected tokens to the end.
        longest_s: longest step with which a real-time answer of nearly any length is in time,
            seconds.
        infeasible: the service level cannot be met any more, or the first token was late.
        promised: the stream has a share of the engine.
    """

    __slots__ = (
        "_began_late",
        "_most_to_go",
        "_of_class",
        "_real_time",
        "_tpot_s",
        "delivered_tokens",
        "density",
        "generation",
        "infeasible",
        "longest_s",
        "need",
        "promised",
        "tokens_to_go",
    )

    def __init__(self, generation: StreamGeneration) -> None:
        slo = generation.request.slo
        self.generation = generation
        self.delivered_tokens = -1
        self.promised = self.infeasible = False
        self.need = self.density = 0.0
        self.longest_s = math.inf
        self._of_class = slo, generation.request.weight
        self._real_time = slo.real_time
        self._tpot_s = slo.tpot_s
        self._began_late = False
        self.tokens_to_go = self._most_to_go = 1

    @property
    def real_time(self) -> bool:
        """Whether the whole answer has a deadline."""
        return self._real_time

    @property
    def served_s(self) -> float:
        """Time of the newest token; before the first token: arrival."""
        generation = self.generation
        return generation.arrival_s if math.isnan(generation.last_s) else generation.last_s

    @property
    def wanted_s(self) -> float:
        """Wanted time of the next token: its due time, at most one TPOT after the last token.

        So credit yields steady words and not bursts. An infeasible stream does not catch up.
        """
        steady_s = self.served_s + self._tpot_s
        return steady_s if self.infeasible else min(self.generation.due_s, steady_s)

    @property
    def stalls(self) -> bool:
        """Whether a listener has begun to hear or read an answer that is infeasible."""
        return self.infeasible and self.delivered_tokens > 0 and not self._real_time

    @property
    def began_late(self) -> bool:
        """Whether the first token was late, or is late now."""
        return self._began_late

    def look(self, now: float, cost: TokenCost, lengths: AnswerLengths, share: float) -> None:
        """Update the state.

        Args:
            now: the time, seconds.
            cost: engine time of a token, by need.
            lengths: lengths of ended answers.
            share: quantile of the length that is assumed for a real-time answer.
        """
        generation = self.generation
        out, bound = len(generation.token_ids), generation.max_tokens
        if out != self.delivered_tokens or not out:
            self.delivered_tokens = out
            if self._real_time:
                self.tokens_to_go = lengths.to_go(self._of_class, out, bound, share)
                self._most_to_go = lengths.to_go(
                    self._of_class, out, bound, _NEARLY_ANY, 4 * ENOUGH
                )
            else:
                self.tokens_to_go = lengths.to_go(self._of_class, out, bound, _TYPICAL)
        if self._real_time:
            self._need_whole(now, cost)
        else:
            self._need_tokens(now, cost.alone_s)
        if self.infeasible:
            self.need = 1.0 / self._tpot_s
        seconds = self.tokens_to_go * cost.seconds(self.need)
        self.density = generation.request.weight / seconds

    def _need_whole(self, now: float, cost: TokenCost) -> None:
        """Update the need of a real-time answer: the rate that meets its deadline.

        The answer may be shorter than assumed. So it stays feasible while one token could be in
        time, and its need is at most what can be promised.
        """
        spare_s = self.generation.due_s - now
        self.infeasible = cost.alone_s > spare_s
        if not self.infeasible:
            self.need = min(self.tokens_to_go / spare_s, cost.most)
            self.longest_s = spare_s / self._most_to_go

    def _need_tokens(self, now: float, one_s: float) -> None:
        """Update the need of a stream: the rate that meets TTFT and TPOT."""
        lag_s = now - self.generation.due_s
        if not self.delivered_tokens:
            self.infeasible = self._began_late = lag_s + one_s > 0.0
            self.need = 1.0 / self._tpot_s
        else:
            can_catch_up_s = self.tokens_to_go * (self._tpot_s - 2.0 * one_s)
            self.infeasible = self._began_late or lag_s > can_catch_up_s
            # The rate that makes up the lag within that time.
            self.need = max(1.0 + lag_s / _CATCH_UP_S, _LEAST_SHARE) / self._tpot_s

    def ended(self, lengths: AnswerLengths) -> None:
        """Learn the length of the ended answer."""
        tokens = len(self.generation.token_ids)
        if tokens:
            lengths.observe(self._of_class, tokens)


_LEAST_CHUNK = 16
"""Least prompt tokens in a step: fewer are not worth it."""


@dataclass(frozen=True)
class PlanLoad:
    """Load of plans on the step that is being planned.

    Attributes:
        rows, prefill_tokens, context_tokens: of the plans in the step.
        longest_s: longest step that they can afford, seconds.
        needs: tokens a second of each decoding or waiting plan.
        free_tokens: KV tokens that plans leave.
        max_rows: most rows of the step.
    """

    rows: int = 0
    prefill_tokens: int = 0
    context_tokens: int = 0
    longest_s: float = math.inf
    needs: tuple[float, ...] = ()
    free_tokens: int = 1 << 60
    max_rows: int = 1 << 60


class StreamStep:
    """A step while streams join it one by one.

    Attributes:
        decoding, starting: streams that decode, and streams that prefill.
        tokens: tokens of all streams in the step.
        seconds: predicted seconds of the step.
        limit_s: longest that the step may become, seconds.
    """

    def __init__(
        self,
        plans: PlanLoad,
        step_time: StepTime,
        mean_context: float,
        why: dict[str, Reason] | None = None,
    ) -> None:
        self._why = why
        self.decoding: list[StreamGeneration] = []
        self.starting: list[StreamGeneration] = []
        self.tokens = 0
        self.limit_s = plans.longest_s
        self._step_time = step_time
        self._mean_context = mean_context
        self._rows = plans.rows
        self._max_rows = plans.max_rows
        self._prefill_tokens = plans.prefill_tokens
        self._context_tokens = float(plans.context_tokens)
        self._free_tokens = plans.free_tokens
        self._chunked = False
        self.seconds = self._seconds(self._rows, self._prefill_tokens, self._context_tokens)

    @property
    def empty(self) -> bool:
        """Whether the step has neither a stream nor a plan."""
        return not self._rows

    def join(self, state: StreamState, limit_s: float) -> bool:
        """Add a stream if the step stays within a limit, or is empty; return whether it joined."""
        generation = state.generation
        rows = self._rows + 1
        if rows > self._max_rows:
            if self._why is not None:
                self._why[generation.key] = Reason(Cause.ROWS, self._max_rows)
            return False
        context = self._context_tokens + self._mean_context
        seconds = self._seconds(rows, self._prefill_tokens, context)
        if generation.to_compute == 1:
            if seconds > limit_s and self._rows:
                if self._why is not None:
                    self._why[generation.key] = Reason(Cause.STEP_TIME, limit_s)
                return False
            self.decoding.append(generation)
            self.tokens += 1
            self._free_tokens -= state.tokens_to_go
        else:
            chunk = self._chunk(generation, limit_s - seconds)
            room = generation.to_compute + state.tokens_to_go <= self._free_tokens
            if self._rows and not (chunk and room):
                if self._why is not None:
                    missing = generation.to_compute + state.tokens_to_go - self._free_tokens
                    self._why[generation.key] = (
                        Reason(Cause.MEMORY, missing)
                        if not room
                        else Reason(Cause.OTHER_PROMPT)
                        if self._chunked
                        else Reason(Cause.STEP_TIME, limit_s)
                    )
                return False
            chunk = chunk or _LEAST_CHUNK
            self.starting.append(generation)
            self.tokens += chunk
            self._prefill_tokens += chunk
            self._free_tokens -= generation.to_compute + state.tokens_to_go
            self._chunked = chunk < generation.to_compute
            seconds = self._seconds(rows, self._prefill_tokens, context)
        self._rows, self._context_tokens, self.seconds = rows, context, seconds
        if self._why is not None:
            promised = Reason(Cause.PROMISED, state.need)
            self._why[generation.key] = promised if state.promised else Reason(Cause.SPARE)
        return True

    def _chunk(self, generation: StreamGeneration, left_s: float) -> int:
        """Return the prompt tokens that fit into `left_s` seconds; 0: too few to be worth it."""
        if self._chunked:
            return 0
        token_s = self._step_time.coefficients[2]
        most = generation.to_compute
        if token_s * most > left_s:
            most = int(max(left_s, 0.0) / token_s) if token_s else 0
        return most if most >= min(generation.to_compute, _LEAST_CHUNK) else 0

    def _seconds(self, rows: int, prefill_tokens: int, context: float) -> float:
        return self._step_time.predict_s(rows, prefill_tokens, int(context))


@dataclass(frozen=True)
class StreamSelection:
    """Streams that join a step.

    Attributes:
        streams: in order.
        tokens: tokens of all of them.
        evictable_first: keys of best-effort streams, which are evicted first.
    """

    streams: tuple[StreamGeneration, ...] = ()
    tokens: int = 0
    evictable_first: frozenset[str] = frozenset()


@dataclass(eq=False)
class Streams:
    """Selects streams for each step, and keeps their promises between steps.

    Attributes:
        util: largest share of the engine's time that may be promised.
        quantile: quantile of the learned lengths that is assumed for a real-time answer.
        window_s: averaging window of the real-time load, seconds; new streams must leave its mean
            plus one standard deviation free.
        spare: largest share of the engine's time for promised and best-effort streams together.
        room: minimum extra share for best-effort streams, even when plans use all of the engine;
            where rows cost nothing, no stream waits.
        longest_s: longest step of best-effort streams only, seconds; it bounds the delay of an
            unexpected arrival.
        patience_s: longest time without a token for the first best-effort stream, seconds. After
            this time without any promise, all best-effort streams take part.
        finish: whether an answer that began in time keeps its worth when it is late: fewer stalls,
            and fewer answers in time.

    Raises:
        ConfigurationError: an option is out of its range.
    """

    util: float = 0.95
    quantile: float = 0.7
    window_s: float = 20.0
    spare: float = 0.4
    room: float = 0.02
    longest_s: float = 0.15
    patience_s: float = 5.0
    finish: bool = False

    def __post_init__(self) -> None:
        if not 0.0 <= self.quantile < 1.0:
            raise ConfigurationError(
                f"deadline: quantile must be from 0 on and below 1, not {self.quantile:g}"
            )
        self.lengths = AnswerLengths()
        self._states: dict[str, StreamState] = {}
        self._urgent = DecayingMean(self.window_s)
        self._promised_s = self._relieved_s = -math.inf

    def clear(self) -> None:
        """Record a step without any stream."""
        before, self._states = self._states, {}
        self._part_with(before)

    def choose(
        self,
        now: float,
        streams: Sequence[StreamGeneration],
        plans: PlanLoad,
        step_time: StepTime,
        why: dict[str, Reason] | None = None,
    ) -> StreamSelection:
        """Return the streams that join a step; `why` takes the reasons of all, by key."""
        context = sum(stream.context_tokens for stream in streams) / len(streams)

        @cache
        def step_s(rows: int) -> float:
            return step_time.predict_s(rows, 0, int(rows * context))

        states = self._look(now, streams, TokenCost(step_s, len(streams), self.util))
        share = self._promise(now, states, plans.needs, step_s)
        step = StreamStep(plans, step_time, context, why)
        if why is not None:
            why |= {t.generation.key: Reason(Cause.NOT_PROMISED, t.need) for t in states}
        _serve_promised([state for state in states if state.promised], step)
        others = [state for state in states if not state.promised]
        self._serve_others(now, others, share, step)
        first = frozenset(state.generation.key for state in others)
        return StreamSelection((*step.decoding, *step.starting), step.tokens, first)

    def _look(
        self, now: float, streams: Sequence[StreamGeneration], cost: TokenCost
    ) -> list[StreamState]:
        """Return the updated states of the streams."""
        before, self._states = self._states, {}
        for stream in streams:
            state = before.get(stream.key)
            if state is not None and state.generation is stream:
                del before[stream.key]
            else:
                state = StreamState(stream)
            self._states[stream.key] = state
        states = list(self._states.values())
        self._part_with(before)
        for state in states:
            state.look(now, cost, self.lengths, self.quantile)
        return states

    def _part_with(self, states: dict[str, StreamState]) -> None:
        """Learn from ended streams, and keep the states of the others."""
        for key, state in states.items():
            if state.generation.state is State.ENDED:
                state.ended(self.lengths)
            else:  # it waits for an in-flight step or a KV load
                self._states.setdefault(key, state)

    def _promise(
        self,
        now: float,
        states: Iterable[StreamState],
        needs: Sequence[float],
        step_s: Callable[[int], float],
    ) -> EngineShare:
        """Promise needs by worth per engine time; return the share that they take."""
        share = EngineShare(step_s, needs)
        util = max(self.util, share.used + self.room)
        hopeful: list[StreamState] = []
        for state in states:
            if state.infeasible and not self._finishes(state):
                state.promised = False
            else:
                hopeful.append(state)
        wanted = EngineShare(step_s, [*needs, *(t.need for t in hopeful if t.real_time)]).used
        self._urgent.saw(wanted, now)
        usual = self._urgent.mean + self._urgent.deviation
        everybody = EngineShare(step_s, [*needs, *(t.need for t in hopeful)])
        if everybody.used <= util - max(usual - wanted, 0.0):
            for state in hopeful:
                state.promised = True
            return everybody
        rest: list[StreamState] = []
        hopeful.sort(key=_density, reverse=True)
        for state in hopeful:
            if state.real_time:
                state.promised = share.offer(state.need, util)
            else:
                rest.append(state)
        spare = util - max(usual - share.used, 0.0)
        row_s = step_s(2) - step_s(1)
        for state in rest:
            # Urgent work would share its steps with this stream: then only the row counts.
            goes_on = state.promised or state.need * row_s <= self.room
            state.promised = share.offer(state.need, util if goes_on else spare)
        return share

    def _finishes(self, state: StreamState) -> bool:
        """Return whether a late stream keeps its promise."""
        return self.finish and state.stalls and not state.began_late

    def _serve_others(
        self, now: float, others: Sequence[StreamState], share: EngineShare, step: StreamStep
    ) -> None:
        """Add best-effort streams, in order, as far as the engine has time for them.

        An answer that has begun goes on at its own speed before another one begins.

        Args:
            now: the time, seconds.
            others: the best-effort streams.
            share: the promised share of the engine.
            step: the step so far.
        """
        alone = step.empty
        # A stream that can still begin in time waits for a promise.
        line = sorted(
            (t for t in others if t.infeasible or t.delivered_tokens or alone), key=_in_line
        )
        if alone:
            most, limit_s = self.util, self.longest_s
        else:
            most, limit_s = max(self.spare, share.used + self.room), step.limit_s
            self._promised_s = now
        everybody = now > self._promised_s + self.patience_s
        passed_over, fits = line[:1], True
        for state in line:
            fits = fits and share.offer(state.need, most)
            if not (fits or everybody or step.empty or (alone and state.delivered_tokens)):
                break
            if step.join(state, limit_s) and state is line[0]:
                passed_over = []
        for first in passed_over:
            if now > max(self._relieved_s, first.served_s) + self.patience_s:
                self._relieved_s = now
                step.join(first, step.seconds + self.longest_s)


def _serve_promised(promised: list[StreamState], step: StreamStep) -> None:
    """Add the most urgent promised streams, as many as the joined ones can afford.

    Streams leave each real-time answer the time that it would need if it became very long.
    """
    promised.sort(key=_urgency)
    longest_s = math.inf
    for state in promised:
        limit_s = min(step.limit_s, 1.0 / state.need)
        if state.real_time:
            longest_s = min(longest_s, state.longest_s)
        else:
            limit_s = min(limit_s, longest_s)
        if step.join(state, limit_s):
            step.limit_s = limit_s


def _density(state: StreamState) -> float:
    return state.density


def _in_line(state: StreamState) -> tuple[bool, float]:
    """Sort streams that a listener has begun to hear first, then by arrival."""
    return state.real_time or not state.delivered_tokens, state.generation.arrival_s


def _urgency(state: StreamState) -> tuple[bool, float]:
    """Sort real-time answers by need, then streams by the wanted time of their token."""
    return (False, -state.need) if state.real_time else (True, state.wanted_s)
