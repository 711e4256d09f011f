"""A cycle of SLICE's decode mask that waits for its listeners: nobody gets tokens much too soon."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from timely_llm.core.generation import StreamGeneration
from timely_llm.policies.decode_mask import Task, decode_mask

_TICK_S = 1e-6


class PacedCycle:
    """The columns of a decode mask, each when the first of its streams may have a token.

    In the paper one column follows the other at once, and a lightly loaded engine gives everyone
    more tokens than were asked for. Here nobody gets further ahead of its service level than a
    number of tokens, its credit. Who has no token yet, would be late, or has a deadline takes part
    in every step.

    Args:
        tasks: those that were selected, the fastest first.
        begin_s: when the cycle begins.
        cycle_s: how long it lasts if nobody was selected, and how long a column waits at most: who
            asks for less than a token in this time would keep others out.
        credit_tokens: most tokens that a stream may be ahead.
        lead_s: how long before its due time a token must be begun at the latest, seconds.
        even: see `decode_mask`.

    Attributes:
        keys: whose cycle it is.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        begin_s: float,
        cycle_s: float,
        credit_tokens: float,
        lead_s: float,
        *,
        even: bool,
    ) -> None:
        self.keys = frozenset(task.key for task in tasks)
        mask = decode_mask([task.columns for task in tasks], even=even)
        self._columns = [
            {task.key for task, takes_part in zip(tasks, column, strict=True) if takes_part}
            for column in zip(*mask, strict=True)
        ]
        self._column = 0
        self._cycle_s = cycle_s
        self._end_s = math.inf if tasks else begin_s + cycle_s
        self._credit_tokens = credit_tokens
        self._lead_s = lead_s

    def over(self, now: float) -> bool:
        """Return whether all columns had their turn, or one has waited for too long."""
        return 0 < self._column == len(self._columns) or now + _TICK_S >= self._end_s

    def turn(
        self, streams: Iterable[StreamGeneration], now: float, *, lazy: bool = False
    ) -> tuple[list[StreamGeneration], float]:
        """Return who should get a token now, and when to ask again if nobody should.

        Args:
            streams: everyone; those that were not selected are left out.
            now: the time, seconds.
            lazy: a column waits until one of all selected streams must have a token, since others
                could use the time.
        """
        soon_s = now + _TICK_S
        chosen = [stream for stream in streams if stream.key in self.keys]
        must_s = [self._begin_s(stream, self._lead_s) for stream in chosen]
        joining = [stream for stream, at_s in zip(chosen, must_s, strict=True) if at_s <= soon_s]
        next_s = math.inf
        if self._column < len(self._columns):
            members = self._columns[self._column]
            may_s = {s.key: self._begin_s(s, math.inf) for s in chosen if s.key in members}
            next_s = math.inf if lazy and not joining else min(may_s.values())
            if next_s > soon_s:
                self._end_s = min(self._end_s, now + self._cycle_s)
            else:
                self._column, self._end_s = self._column + 1, math.inf
                taken = {stream.key for stream in joining}
                joining += [
                    stream
                    for stream in chosen
                    if stream.key not in taken and may_s.get(stream.key, math.inf) <= soon_s
                ]
        return joining, math.inf if joining else min([next_s, self._end_s, *must_s])

    def needed_s(self, streams: Iterable[StreamGeneration]) -> float:
        """Return when the first of those selected must have a token begun."""
        chosen = (stream for stream in streams if stream.key in self.keys)
        return min((self._begin_s(stream, self._lead_s) for stream in chosen), default=math.inf)

    def may_s(self, stream: StreamGeneration) -> float:
        """Return when the next token of a stream may be begun, selected or not."""
        return self._begin_s(stream, math.inf)

    def _begin_s(self, stream: StreamGeneration, lead_s: float) -> float:
        """Return when its next token begins, so long before its due time as its credit allows."""
        slo = stream.request.slo
        if stream.first or slo.real_time:
            return -math.inf
        return stream.due_s - min(lead_s, self._credit_tokens * slo.tpot_s)
