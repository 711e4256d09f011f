"""The streams' part of the policy `deadline`: which answers are promised, and who gets a token now.

Everybody has a *need*: the tokens a second that keep what was promised. Two questions are asked.
Whom can the engine promise its need: by worth for each token, as long as the needs fit together.
Who shares the next step: the most urgent first, and as many as the most urgent one can afford. A
stream that got tokens early needs fewer now and steps aside; there is no cycle to restart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from timely_llm.core.generation import StreamGeneration
from timely_llm.policies.answer_lengths import AnswerLengths
from timely_llm.policies.engine_share import EngineShare, TokenCost
from timely_llm.policies.recent import Recent
from timely_llm.policies.step_time import StepTime
from timely_llm.policies.stream_step import Beside, StreamStep
from timely_llm.policies.talk import Talk

_RELIEF_WAITS = 4.0
"""While a real-time answer could be late for it, relief is rarer by this factor."""


@dataclass(frozen=True)
class Choice:
    """Who joins a step: streams in order, and how many tokens of prompts they may compute.

    Attributes:
        evictable_first: keys of those whose memory goes first.
    """

    streams: tuple[StreamGeneration, ...] = ()
    tokens: int = 0
    evictable_first: frozenset[str] = frozenset()


@dataclass(eq=False)
class Streams:
    """Chooses, and remembers what it has promised.

    Attributes:
        util: share of the engine's time that may be promised.
        quantile: of the lengths learned, what a real-time answer reckons with.
        keep: who is promised something is worth so many times more: no to and fro.
        window_s: a new stream leaves the room that urgent work has needed for so long: its mean
            and one deviation more.
        room: by this share of a step those who are promised nothing may make it longer.
        longest_s: of a step for them alone: so long an arrival that nobody foresees may wait.
        relief_s: they get a token so often, whatever else there is: nobody starves.
    """

    util: float = 0.95
    quantile: float = 0.7
    keep: float = 3.0
    window_s: float = 20.0
    room: float = 0.1
    longest_s: float = 0.15
    relief_s: float = 5.0

    def __post_init__(self) -> None:
        self.lengths = AnswerLengths()
        self._talks: dict[str, Talk] = {}
        self._urgent = Recent(self.window_s)
        self._relieved_s = -math.inf

    def choose(
        self,
        now: float,
        streams: Sequence[StreamGeneration],
        beside: Beside,
        step_time: StepTime,
    ) -> Choice:
        """Return which streams join a step."""
        context = sum(stream.context_tokens for stream in streams) / len(streams)

        @cache
        def step_s(rows: int) -> float:
            return step_time.predict_s(rows, 0, int(rows * context))

        talks = self._look(now, streams, TokenCost(step_s, len(streams)))
        self._promise(now, talks, beside.needs, step_s)
        step = StreamStep(beside, step_time, context)
        left_out = _serve_promised([talk for talk in talks if talk.promised], step)
        others = [talk for talk in talks if not talk.promised]
        self._serve_others(now, others, left_out, step)
        first = frozenset(talk.generation.key for talk in others)
        return Choice((*step.decoding, *step.starting), step.tokens, first)

    def _look(self, now: float, streams: Sequence[StreamGeneration], cost: TokenCost) -> list[Talk]:
        """Return what is known of the streams, brought up to date."""
        before, self._talks = self._talks, {}
        for stream in streams:
            talk = before.pop(stream.key, None)
            if talk is None or talk.generation is not stream:
                talk = Talk(stream)
            self._talks[stream.key] = talk
        for talk in before.values():
            talk.ended(self.lengths)
        talks = list(self._talks.values())
        for talk in talks:
            talk.look(now, cost, self.lengths, self.quantile)
        return talks

    def _promise(
        self,
        now: float,
        talks: Iterable[Talk],
        needs: Sequence[float],
        step_s: Callable[[int], float],
    ) -> None:
        """Promise those who are worth most for their time their needs, as far as these fit."""
        hopeful = [talk for talk in talks if not talk.hopeless]
        wanted = EngineShare(step_s, [*needs, *(t.need for t in hopeful if t.real_time)]).used
        self._urgent.saw(wanted, now)
        usual = self._urgent.mean + self._urgent.deviation
        all_wanted = EngineShare(step_s, [*needs, *(t.need for t in hopeful)]).used
        if all_wanted <= self.util - max(usual - wanted, 0.0):
            for talk in hopeful:
                talk.promised = True
            return
        share = EngineShare(step_s, needs)
        rest: list[Talk] = []
        hopeful.sort(key=self._worth, reverse=True)
        for talk in hopeful:
            if talk.real_time:
                talk.promised = share.offer(talk.need, self.util)
            else:
                rest.append(talk)
        spare = self.util - max(usual - share.used, 0.0)
        for talk in rest:
            talk.promised = share.offer(talk.need, self.util if talk.promised else spare)

    def _worth(self, talk: Talk) -> float:
        return talk.density * self.keep if talk.promised else talk.density

    def _serve_others(
        self, now: float, others: list[Talk], left_out: list[Talk], step: StreamStep
    ) -> None:
        """Let those join who are promised nothing, the one that has waited longest first.

        Args:
            now: the time, seconds.
            others: they.
            left_out: who is promised something and does not take part.
            step: so far.
        """
        others.sort(key=_in_line)
        if step.empty:
            limit_s = self.longest_s
        else:
            # Who can still begin in time waits for its turn.
            others = [t for t in others if t.hopeless or t.out or now > t.served_s + self.relief_s]
            if others and self._must_relieve(now, others[0], step):
                limit_s = min(step.plans_limit_s, self.longest_s)
                step.join(others.pop(0), math.inf)
                others = left_out + others
            else:
                limit_s = min(step.limit_s, step.seconds * (1.0 + self.room))
        for talk in others:
            if not step.join(talk, limit_s) and talk.generation.to_compute == 1:
                break  # nobody has room

    def _must_relieve(self, now: float, oldest: Talk, step: StreamStep) -> bool:
        """Return whether it is time for a step of those who are promised nothing."""
        patience_s = self.relief_s * (_RELIEF_WAITS if step.urgent else 1.0)
        if now < max(oldest.served_s, self._relieved_s) + patience_s:
            return False
        self._relieved_s = now
        return True


def _serve_promised(promised: list[Talk], step: StreamStep) -> list[Talk]:
    """Let the most urgent ones join, as many as these can afford; return the others.

    Streams take no time from a real-time answer that it would need if it became very long.
    """
    promised.sort(key=_urgency)
    left_out: list[Talk] = []
    longest_s = math.inf
    for talk in promised:
        limit_s = min(step.limit_s, 1.0 / talk.need)
        if talk.real_time:
            longest_s = min(longest_s, talk.longest_s)
        else:
            limit_s = min(limit_s, longest_s)
        if step.join(talk, limit_s):
            step.limit_s = limit_s
            step.urgent = step.urgent or talk.real_time
        else:
            left_out.append(talk)
    return left_out


def _in_line(talk: Talk) -> float:
    return talk.served_s


def _urgency(talk: Talk) -> tuple[bool, float]:
    """Real-time answers by what they need, then streams by when they want a token."""
    return (False, -talk.need) if talk.real_time else (True, talk.wanted_s)
