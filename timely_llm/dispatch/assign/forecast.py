"""What a view says of the future: when a new request is answered, and what it costs the others."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

from timely_llm.dispatch.contract import KAPPA, Due, ServerView, Waiting

PRICE = 0.1
"""Worth of a second of a server's time, for requests that have not been asked yet."""

_SOON_TOKENS = 16
_ALIKE = 0.99  # slopes that differ by less count as the same


class Forecast:
    """The next deliverables of one server, in the order in which `deadline` makes them.

    Those that lose most by each second go first. A request is served after the prompts of all
    that lose as much as it does, in steps that it shares with them. It delays the others by its
    prompt, and by what its row adds to each step.

    Args:
        view: of the server.
    """

    def __init__(self, view: ServerView) -> None:
        self.view = view
        self.changes = 0
        self._streams = len(view.rates)
        self._rate = sum(view.rates)
        one_s = view.step_s(1)
        soon_s = _SOON_TOKENS * one_s
        self._due = [
            due
            for due in view.due
            if due.prompt_tokens or due.due_in_s < soon_s + due.tokens * one_s
        ]
        self._due.sort(key=_slope)
        self._slopes = list(map(_slope, self._due))
        self._steps_s: list[float] = []  # of steps of 1, 2, ... plans and the streams beside them
        self._know()

    def add(self, one: Waiting, now: float) -> None:
        """Send a request to the server."""
        due = one.due(now, self.view)
        place = bisect_right(self._slopes, -due.slope)
        self._due.insert(place, due)
        self._slopes.insert(place, -due.slope)
        if one.rate:
            self._streams += 1
            self._rate += one.rate
            self._steps_s.clear()
        self._know()

    def remove(self, due: Due) -> None:
        """Take the deliverable that is most like one from the server."""
        alike = [place for place, other in enumerate(self._due) if other.prompt_tokens]
        if alike:
            place = min(alike, key=lambda place: abs(self._due[place].due_in_s - due.due_in_s))
            del self._due[place], self._slopes[place]
            self._know()

    def response_s(self, one: Waiting, ordered: bool = True) -> float:
        """Return the seconds from now to a request's first deliverable.

        Args:
            one: the request.
            ordered: only those that lose as much as it does go before it; else all do.
        """
        view = self.view
        ahead = len(self._due)
        if ordered:
            weight, _, grace_s = one.terms
            ahead = bisect_right(self._slopes, -_ALIKE * weight / grace_s)
        begin_s = view.rtt_s + self._prompts_s[ahead]
        if self._due or self._streams:
            begin_s += view.step_s(1) / 2.0  # a step is in flight
        prompt_s = view.prefill_token_s * one.to_compute(view)
        return begin_s + prompt_s + one.tokens * self._steps_s[ahead]

    def cost(self, one: Waiting) -> float:
        """Return the worth that others lose: those who are there, and those who come later."""
        view, due = self.view, self._due
        prompt_s = view.prefill_token_s * one.to_compute(view)
        total = PRICE * (prompt_s + one.answer_tokens * self._row_s(1 + self._streams))
        row_s = self._row_s(len(due) + 1 + self._streams)
        weight, _, grace_s = one.terms
        for place in range(bisect_right(self._slopes, -weight / grace_s / _ALIKE), len(due)):
            due_in_s, tokens, worth, fall_s, _ = due[place]
            delay_s = prompt_s + row_s * min(one.tokens, tokens)
            before_s = self._prompts_s[place + 1] + tokens * self._steps_s[place] - due_in_s
            late_s = before_s + delay_s
            if late_s > 0.0 and before_s < fall_s:
                total += worth * (min(late_s, fall_s) - max(before_s, 0.0)) / fall_s
            total += KAPPA * worth * delay_s
        return total

    def _row_s(self, rows: int) -> float:
        """Return the seconds that one more row adds to a step of some rows."""
        return self.view.step_s(rows + 1) - self.view.step_s(rows)

    def _know(self) -> None:
        """Update what follows from the deliverables."""
        view, token_s, steps_s = self.view, self.view.prefill_token_s, self._steps_s
        self.changes += 1
        self._prompts_s = list(accumulate((token_s * due[4] for due in self._due), initial=0.0))
        for rows in range(len(steps_s) + 1, len(self._due) + 2):
            streams = min(int(self._rate * view.step_s(rows)), self._streams)
            steps_s.append(view.step_s(min(rows + streams, view.max_rows)))


def _slope(due: Due) -> float:
    return -due.weight / due.grace_s
