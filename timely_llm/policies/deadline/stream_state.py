"""What a stream needs, and what it is promised, under the policy `deadline`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from timely_llm.core.generation import StreamGeneration
from timely_llm.policies.deadline.moment import AHEAD, Moment
from timely_llm.policies.deadline.wave import LONGEST_SEGMENT
from timely_llm.policies.lengths import ENOUGH, TYPICAL, AnswerLengths, task_type, to_go

BEARABLE_S: Final = 1.5
"""Longest wait for the next word of an answer that has begun, seconds."""

PRESSING_S: Final = 0.8 * BEARABLE_S
"""Wait for it after which the answer joins any step, seconds."""

_LATE_RATE = 0.25  # share of its rate that an answer keeps when there is no time for more
_START, _START_S = 0.3, 0.3  # a prompt's longest step: share of the TTFT, and seconds
_CATCH_UP_S = 1.0  # time in which a lag is made up
_USUAL = 0.7  # quantile of the lengths that an answer with a deadline is assumed to have
_NEARLY_ANY = 0.97  # quantile of them with which no step may be too long


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
        began_late: its first token could not come in time.
        hopeless: its rate is beyond the engine.
        last: it is late or hopeless, so it gets what others leave; where rows lack, no late one is
            that has begun.
        longest_s: longest step with which a real-time answer of nearly any length is in time,
            seconds.
        tokens_to_go: expected tokens to the end; with a deadline, more than usual.
        typical_to_go: median tokens to the end.
        long_steps: steps are long beside the time of its tokens.
    """

    def __init__(self, generation: StreamGeneration, people: float) -> None:
        slo = generation.request.slo
        self.generation = generation
        self.real_time, self.tpot_s = slo.real_time, slo.tpot_s
        self.start_s = min(_START * slo.ttft_s, _START_S)
        # A late real-time answer has no listener, so it only must end.
        self.bearable = max(0.0 if slo.real_time else _LATE_RATE / slo.tpot_s, 1.0 / BEARABLE_S)
        self.begun = self.late = self.began_late = self.long_steps = False
        self.hopeless = self.last = False
        self.need = self.floor = self.rate = self.density = 0.0
        self.urgency = 0, 0.0
        self.due_s = generation.due_s
        self.tokens_to_go = self.typical_to_go = self._most_to_go = 1
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
            self.tokens_to_go = self.typical_to_go = to_go(seen, out, bound, TYPICAL)
            if real_time:
                self.tokens_to_go = to_go(seen, out, bound, _USUAL)
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
                self.began_late = left_s < one_s
            late = self.began_late
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
            # Steady words, and no bursts of credit, nor of what was missed.
            by_s = generation.last_s + self.tpot_s
            missed = self.late and not self.last
            self.urgency = 1 + self.last, by_s if missed else min(self.due_s, by_s)

    def is_pressing(self, now: float) -> bool:
        """Return whether a person has waited long for the next word."""
        return self.begun and not self.real_time and now > self.generation.last_s + PRESSING_S

    def place(self, moment: Moment) -> int:
        """Return the place in line for rows that lack, from 0 on.

        First come answers with a deadline that need every step from now on, then people who have
        waited long for the next word, then tokens that were promised in time and cannot wait.
        """
        now = moment.now
        if self.real_time:
            least_s = self.tokens_to_go * moment.one_s * (1.0 + AHEAD)
            return 3 if self.late or self.due_s - now > least_s + moment.one_s else 0
        if self.is_pressing(now):
            return 1
        if self.last or self.rate < self.need:
            return 3
        if self.begun:
            return 2 if self.urgency[1] <= now + moment.one_s else 3
        prompt_s = moment.step_time.coefficients[2] * self.generation.to_compute
        return 2 if self.due_s <= now + LONGEST_SEGMENT * moment.one_s + prompt_s else 3

    def ended(self, lengths: AnswerLengths) -> None:
        """Learn the length of the ended answer."""
        if self.generation.token_ids:
            lengths.observe(self._class, len(self.generation.token_ids))
