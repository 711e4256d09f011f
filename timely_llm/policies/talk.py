"""One answer as the policy `deadline` sees it: what it needs, and what that is worth."""

from __future__ import annotations

import math

from timely_llm.core.generation import StreamGeneration
from timely_llm.policies.answer_lengths import AnswerLengths

_TYPICAL = 0.5
_LEAST_SHARE = 0.5  # of its rate: credit does not make a stream wait for longer
_CATCH_UP_S = 1.0


class Talk:
    """What is kept of an answer between steps.

    Attributes:
        generation: whose it is.
        need: tokens a second from now on; 0 if they would come too late.
        density: worth for each token that it takes to earn it.
        tokens_to_go: how many it is reckoned to take to its end.
        hopeless: what was promised cannot be kept any more.
        promised: it has a share of the engine.
        counted: the length that it counts with in the statistics, once it is hopeless; 0 before.
    """

    __slots__ = (
        "_began_late",
        "_of_class",
        "_real_time",
        "_tpot_s",
        "counted",
        "density",
        "generation",
        "hopeless",
        "need",
        "out",
        "promised",
        "tokens_to_go",
    )

    def __init__(self, generation: StreamGeneration) -> None:
        slo = generation.request.slo
        self.generation = generation
        self.out = -1
        self.promised = self.hopeless = False
        self.need = self.density = 0.0
        self.counted = 0
        self._of_class = slo, generation.request.weight
        self._real_time = slo.real_time
        self._tpot_s = slo.tpot_s
        self._began_late = False
        self.tokens_to_go = 1

    @property
    def real_time(self) -> bool:
        """Whether it is worth something only as a whole."""
        return self._real_time

    @property
    def served_s(self) -> float:
        """When it got something last; before its first token: when it was asked."""
        generation = self.generation
        return generation.arrival_s if math.isnan(generation.last_s) else generation.last_s

    @property
    def wanted_s(self) -> float:
        """When its next token should come: when it is due, or a token's time after the last one.

        Credit is good for as long as it is needed, but steady words are better than bursts.
        """
        return min(self.generation.due_s, self.served_s + self._tpot_s)

    def look(self, now: float, one_s: float, lengths: AnswerLengths, share: float) -> None:
        """Bring it up to date.

        Args:
            now: the time, seconds.
            one_s: seconds of a step that it has for itself.
            lengths: of answers that have ended.
            share: quantile of these that a real-time answer reckons with.
        """
        generation = self.generation
        out = len(generation.token_ids)
        if out != self.out or not out:
            self.out = out
            self.tokens_to_go = lengths.to_go(
                self._of_class, out, generation.max_tokens, share if self._real_time else _TYPICAL
            )
        tokens = self.tokens_to_go
        self.density = generation.request.weight / tokens
        due_s = generation.due_s
        if self._real_time:
            late = now + tokens * one_s > due_s
            self.need = 0.0 if late else tokens / (due_s - now)
        elif not out:
            late = self._began_late = now + one_s > due_s
            self.need = 1.0 / self._tpot_s
        else:
            lag_s = now - due_s
            late = self._began_late or lag_s > tokens * (self._tpot_s - 2.0 * one_s)
            # What brings it back to its times within that time.
            self.need = max(1.0 + lag_s / _CATCH_UP_S, _LEAST_SHARE) / self._tpot_s
        self.hopeless = late
        if late:
            self.promised = False
            if self._real_time and not self.counted:
                self.counted = lengths.give_up(self._of_class, out, generation.max_tokens)

    def ended(self, lengths: AnswerLengths) -> None:
        """Learn from its end."""
        tokens = len(self.generation.token_ids)
        if self.counted:
            lengths.correct(self._of_class, self.counted, tokens)
        elif tokens:
            lengths.observe(self._of_class, tokens)
