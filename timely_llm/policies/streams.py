"""The streams' part of the policy `deadline`: which answers are promised, and who gets a token now.

Everybody has a *need*: the tokens a second that keep what was promised. Three questions are asked.
Whom can the engine promise its need: by worth for its time, as long as the needs fit together.
Who shares the next step: the most urgent first, and as many as the most urgent one can afford. A
stream that got tokens early needs fewer now and steps aside; there is no cycle to restart.
And the others, who are late for good: they stand in line. An answer that has begun goes on to its
end before another one begins, so that a listener waits for the first word and not for each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from timely_llm.core.errors import ConfigurationError
from timely_llm.core.generation import State, StreamGeneration
from timely_llm.policies.answer_lengths import AnswerLengths
from timely_llm.policies.engine_share import EngineShare, TokenCost
from timely_llm.policies.recent import Recent
from timely_llm.policies.step_time import StepTime
from timely_llm.policies.stream_step import Beside, StreamStep
from timely_llm.policies.talk import Talk


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
class StreamOptions:
    """What the policy does with streams.

    Attributes:
        util: share of the engine's time that may be promised.
        quantile: of the lengths learned, what a real-time answer reckons with.
        window_s: a new stream leaves the room that urgent work has needed for so long: its mean
            and one deviation more.
        spare: those who are promised nothing may take the engine's time up to this share, together
            with what is promised.
        room: or so much more than what is promised, as streams may beside plans that need all of
            it: where rows cost nothing, nobody waits.
        longest_s: of a step for them alone: so long an arrival that nobody foresees may wait.
        patience_s: one of them gets a token so often, whatever else there is: nobody starves. And
            after so long in which nobody was promised anything, all of them take part.
        finish: an answer that has begun in time keeps its worth when it is late: fewer stalls, and
            fewer answers in time.
    """

    util: float = 0.95
    quantile: float = 0.7
    window_s: float = 20.0
    spare: float = 0.4
    room: float = 0.02
    longest_s: float = 0.15
    patience_s: float = 5.0
    finish: bool = False


class Streams:
    """Chooses, and remembers what it has promised.

    Raises:
        ConfigurationError: an option is not possible.
    """

    def __init__(self, options: StreamOptions | None = None) -> None:
        self._options = options or StreamOptions()
        if not 0.0 <= self._options.quantile < 1.0:
            raise ConfigurationError(
                f"deadline: quantile must be from 0 on and below 1, not {self._options.quantile:g}"
            )
        self.lengths = AnswerLengths()
        self._talks: dict[str, Talk] = {}
        self._urgent = Recent(self._options.window_s)
        self._promised_s = self._relieved_s = -math.inf

    def rest(self) -> None:
        """Take note that no stream can take part in a step."""
        before, self._talks = self._talks, {}
        self._part_with(before)

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

        talks = self._look(now, streams, TokenCost(step_s, len(streams), self._options.util))
        share = self._promise(now, talks, beside.needs, step_s)
        step = StreamStep(beside, step_time, context)
        _serve_promised([talk for talk in talks if talk.promised], step)
        others = [talk for talk in talks if not talk.promised]
        self._serve_others(now, others, share, step)
        first = frozenset(talk.generation.key for talk in others)
        return Choice((*step.decoding, *step.starting), step.tokens, first)

    def _look(self, now: float, streams: Sequence[StreamGeneration], cost: TokenCost) -> list[Talk]:
        """Return what is known of the streams, brought up to date."""
        before, self._talks = self._talks, {}
        for stream in streams:
            talk = before.get(stream.key)
            if talk is not None and talk.generation is stream:
                del before[stream.key]
            else:
                talk = Talk(stream)
            self._talks[stream.key] = talk
        talks = list(self._talks.values())
        self._part_with(before)
        for talk in talks:
            talk.look(now, cost, self.lengths, self._options.quantile)
        return talks

    def _part_with(self, talks: dict[str, Talk]) -> None:
        """Learn from those of some answers that have ended, and remember the others."""
        for key, talk in talks.items():
            if talk.generation.state is State.ENDED:
                talk.ended(self.lengths)
            else:  # it waits for a step in flight, or for its KV
                self._talks.setdefault(key, talk)

    def _promise(
        self,
        now: float,
        talks: Iterable[Talk],
        needs: Sequence[float],
        step_s: Callable[[int], float],
    ) -> EngineShare:
        """Promise those who are worth most for their time their needs; return what these take."""
        share = EngineShare(step_s, needs)
        util = max(self._options.util, share.used + self._options.room)
        hopeful: list[Talk] = []
        for talk in talks:
            if talk.hopeless and not self._finishes(talk):
                talk.promised = False
            else:
                hopeful.append(talk)
        wanted = EngineShare(step_s, [*needs, *(t.need for t in hopeful if t.real_time)]).used
        self._urgent.saw(wanted, now)
        usual = self._urgent.mean + self._urgent.deviation
        everybody = EngineShare(step_s, [*needs, *(t.need for t in hopeful)])
        if everybody.used <= util - max(usual - wanted, 0.0):
            for talk in hopeful:
                talk.promised = True
            return everybody
        rest: list[Talk] = []
        hopeful.sort(key=_density, reverse=True)
        for talk in hopeful:
            if talk.real_time:
                talk.promised = share.offer(talk.need, util)
            else:
                rest.append(talk)
        spare = util - max(usual - share.used, 0.0)
        row_s = step_s(2) - step_s(1)
        for talk in rest:
            # If urgent work comes, it shares the steps of that: then only its row counts.
            goes_on = talk.promised or talk.need * row_s <= self._options.room
            talk.promised = share.offer(talk.need, util if goes_on else spare)
        return share

    def _finishes(self, talk: Talk) -> bool:
        """Return whether it is late, and promised something all the same."""
        return self._options.finish and talk.stalls and not talk.began_late

    def _serve_others(
        self, now: float, others: Sequence[Talk], share: EngineShare, step: StreamStep
    ) -> None:
        """Let those join who are promised nothing, in line, as far as the engine has time for them.

        An answer that has begun goes on at its own speed, before another one begins.

        Args:
            now: the time, seconds.
            others: they.
            share: what is promised.
            step: so far.
        """
        options = self._options
        alone = step.empty
        # Who can still begin in time waits for its turn.
        line = sorted((t for t in others if t.hopeless or t.out or alone), key=_in_line)
        if alone:
            most, limit_s = options.util, options.longest_s
        else:
            most, limit_s = max(options.spare, share.used + options.room), step.limit_s
            self._promised_s = now
        everybody = now > self._promised_s + options.patience_s
        passed_over, fits = line[:1], True
        for talk in line:
            fits = fits and share.offer(talk.need, most)
            if not (fits or everybody or step.empty or (alone and talk.out)):
                break
            if step.join(talk, limit_s) and talk is line[0]:
                passed_over = []
        for first in passed_over:
            if now > max(self._relieved_s, first.served_s) + options.patience_s:
                self._relieved_s = now
                step.join(first, step.seconds + options.longest_s)


def _serve_promised(promised: list[Talk], step: StreamStep) -> None:
    """Let the most urgent ones join, as many as these can afford.

    Streams take no time from a real-time answer that it would need if it became very long.
    """
    promised.sort(key=_urgency)
    longest_s = math.inf
    for talk in promised:
        limit_s = min(step.limit_s, 1.0 / talk.need)
        if talk.real_time:
            longest_s = min(longest_s, talk.longest_s)
        else:
            limit_s = min(limit_s, longest_s)
        if step.join(talk, limit_s):
            step.limit_s = limit_s


def _density(talk: Talk) -> float:
    return talk.density


def _in_line(talk: Talk) -> tuple[bool, float]:
    """First whose words somebody waits for, then by arrival."""
    return talk.real_time or not talk.out, talk.generation.arrival_s


def _urgency(talk: Talk) -> tuple[bool, float]:
    """Real-time answers by what they need, then streams by when they want a token."""
    return (False, -talk.need) if talk.real_time else (True, talk.wanted_s)
