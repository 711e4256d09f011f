"""One answer as the policy `deadline` sees it: what it needs, and what that is worth."""

from __future__ import annotations

import math
from typing import Final

from timely_llm.core.generation import StreamGeneration
from timely_llm.policies.answer_lengths import ENOUGH, AnswerLengths
from timely_llm.policies.engine_share import TokenCost

_TYPICAL: Final = 0.5
_NEARLY_ANY: Final = 0.97
_LEAST_SHARE = 0.5  # of its rate: credit does not make a stream wait for longer
_CATCH_UP_S = 1.0


class Talk:
    """What is kept of an answer between steps.

    Attributes:
        generation: whose it is.
        need: tokens a second from now on.
        density: worth for each second of the engine that it takes to earn it.
        tokens_to_go: how many it is reckoned to take to its end.
        longest_s: a real-time answer of nearly any length is in time if no step is longer.
        hopeless: what was promised cannot be kept any more, or its first token was late.
        promised: it has a share of the engine.
    """

    __slots__ = (
        "_began_late",
        "_most_to_go",
        "_of_class",
        "_real_time",
        "_tpot_s",
        "density",
        "generation",
        "hopeless",
        "longest_s",
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
        self.longest_s = math.inf
        self._of_class = slo, generation.request.weight
        self._real_time = slo.real_time
        self._tpot_s = slo.tpot_s
        self._began_late = False
        self.tokens_to_go = self._most_to_go = 1

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

        Credit is good for as long as it is needed, but steady words are better than bursts. Who is
        late for good does not catch up.
        """
        steady_s = self.served_s + self._tpot_s
        return steady_s if self.hopeless else min(self.generation.due_s, steady_s)

    @property
    def stalls(self) -> bool:
        """Whether somebody has begun to hear or read it, and will not have it in time."""
        return self.hopeless and self.out > 0 and not self._real_time

    @property
    def began_late(self) -> bool:
        """Whether its first token was late, or is."""
        return self._began_late

    def look(self, now: float, cost: TokenCost, lengths: AnswerLengths, share: float) -> None:
        """Bring it up to date.

        Args:
            now: the time, seconds.
            cost: of a token, by how urgently it is needed.
            lengths: of answers that have ended.
            share: quantile of these that a real-time answer reckons with.
        """
        generation = self.generation
        out, bound = len(generation.token_ids), generation.max_tokens
        if out != self.out or not out:
            self.out = out
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
        if self.hopeless:
            self.need = 1.0 / self._tpot_s
        seconds = self.tokens_to_go * cost.seconds(self.need)
        self.density = generation.request.weight / seconds

    def _need_whole(self, now: float, cost: TokenCost) -> None:
        """Find what brings the whole answer by its deadline.

        It may be shorter than what it is reckoned to be: there is hope as long as one token could
        be in time, but it needs no more than can be promised.
        """
        spare_s = self.generation.due_s - now
        self.hopeless = cost.alone_s > spare_s
        if not self.hopeless:
            self.need = min(self.tokens_to_go / spare_s, cost.most)
            self.longest_s = spare_s / self._most_to_go

    def _need_tokens(self, now: float, one_s: float) -> None:
        """Find what brings the tokens of a stream at their times, the first one and the mean."""
        lag_s = now - self.generation.due_s
        if not self.out:
            self.hopeless = self._began_late = lag_s + one_s > 0.0
            self.need = 1.0 / self._tpot_s
        else:
            can_catch_up_s = self.tokens_to_go * (self._tpot_s - 2.0 * one_s)
            self.hopeless = self._began_late or lag_s > can_catch_up_s
            # What brings it back to its times within that time.
            self.need = max(1.0 + lag_s / _CATCH_UP_S, _LEAST_SHARE) / self._tpot_s

    def ended(self, lengths: AnswerLengths) -> None:
        """Learn from its end."""
        tokens = len(self.generation.token_ids)
        if tokens:
            lengths.observe(self._of_class, tokens)
