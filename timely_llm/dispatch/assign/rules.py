"""Rules that assign requests to servers."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import accumulate
from operator import sub

import numpy as np

from timely_llm.core.errors import ConfigurationError
from timely_llm.dispatch.contract import KAPPA, Assignment, Due, ServerView, Waiting

STALE_S = 0.3
"""Age of a view from which its server gets requests only if no other can take them, seconds."""

_PROMPT_TOKENS = 16  # prompts that differ by less count as equally long

MARGIN = 0.05
"""Least gain of a move, as a share of the request's worth."""

PRICE = 0.1
"""Worth of a second of a server's time, for requests that have not been asked yet."""

_SOON_TOKENS = 16
_ALIKE = 0.99  # slopes that differ by less count as the same

_End = tuple[float, float, float, float, float]
"""A deliverable: seconds by which it ends after it is due, tokens, worth, fall, price a second."""


class Forecast:
    """When a server would answer a new request, and what that costs the others, by its view.

    The next deliverables of the server stand in the order in which `deadline` makes them: those
    that lose most by each second go first. A request is served after the prompts of all that lose
    as much as it does, in steps that it shares with them. It delays the others by its prompt, and
    by what its row adds to each step.

    Args:
        view: of the server.
    """

    def __init__(self, view: ServerView) -> None:
        self.view = view
        self._streams = len(view.rates)
        self._rate = sum(view.rates)
        one_s = view.step_s(1)
        soon_s = _SOON_TOKENS * one_s
        self._due = [due for due in view.due if due[4] or due[0] < soon_s + due[1] * one_s]
        self._due.sort(key=_due_slope)
        self._slopes = list(map(_due_slope, self._due))
        self._prompts_s = [0.0]  # before each deliverable, and behind the last
        self._known_s = [*view.steps_s[: view.max_rows]]  # of steps of 1, 2, ... rows
        self._steps_s: list[float] = []  # of steps of 1, 2, ... plans and the streams beside them
        self._ends: list[_End] = []  # of the first ones, as far as they were asked for
        self._changed(0)

    def add(self, one: Waiting, now: float) -> None:
        """Add a request's first deliverable to the server's due list."""
        due = one.due(now, self.view)
        place = bisect_right(self._slopes, -due.slope)
        self._due.insert(place, due)
        self._slopes.insert(place, -due.slope)
        if one.rate:
            self._streams += 1
            self._rate += one.rate
            self._steps_s.clear()
            self._ends.clear()
        self._changed(place)

    def remove(self, due: Due) -> None:
        """Remove the deliverable that is most like one from the server's due list."""
        alike = [place for place, other in enumerate(self._due) if other.prompt_tokens]
        if alike:
            place = min(alike, key=lambda place: abs(self._due[place].due_in_s - due.due_in_s))
            del self._due[place], self._slopes[place]
            self._changed(place)

    def prompt_s(self, one: Waiting) -> float:
        """Return the seconds that the server needs for a request's prompt."""
        return self.view.prefill_token_s * one.to_compute(self.view)

    def response_s(self, one: Waiting, prompt_s: float, ordered: bool = True) -> float:
        """Return the seconds from now to a request's first deliverable.

        Args:
            one: the request.
            prompt_s: seconds of its prompt.
            ordered: only those that lose as much as it does go before it; else all do.
        """
        ahead = len(self._due)
        if ordered:
            weight, _, grace_s = one.terms
            ahead = bisect_right(self._slopes, -_ALIKE * weight / grace_s)
        if ahead >= len(self._steps_s):
            self._know_steps(ahead + 1)
        begin_s = self.view.rtt_s + self._prompts_s[ahead] + self._in_flight_s
        return begin_s + prompt_s + one.tokens * self._steps_s[ahead]

    def least_cost(self, one: Waiting, prompt_s: float) -> float:
        """Return the price of a request's own time: `cost` is not less than that."""
        if self._row_s < 0.0:  # a row more makes steps shorter: others may gain
            return -math.inf
        return PRICE * (prompt_s + one.answer_tokens * self._lone_row_s)

    def cost(self, one: Waiting, prompt_s: float) -> float:
        """Return the worth that other requests lose: those at the server and those that follow."""
        total = PRICE * (prompt_s + one.answer_tokens * self._lone_row_s)
        row_s = self._row_s
        weight, _, grace_s = one.terms
        first, own = bisect_right(self._slopes, -weight / grace_s / _ALIKE), one.tokens
        if len(self._ends) < len(self._due):
            self._know_ends()
        for before_s, tokens, worth, fall_s, price in self._ends[first:]:
            delay_s = prompt_s + row_s * (own if own < tokens else tokens)
            late_s = before_s + delay_s
            if late_s > 0.0 and before_s < fall_s:
                end_s = late_s if late_s < fall_s else fall_s
                total += worth * (end_s - before_s if before_s > 0.0 else end_s) / fall_s
            total += price * delay_s
        return total

    def _changed(self, place: int) -> None:
        """Compute prompts again from a place on, and forget what else has changed there."""
        token_s, prompts_s = self.view.prefill_token_s, self._prompts_s
        later = (token_s * due[4] for due in self._due[place:])
        prompts_s[place:] = accumulate(later, initial=prompts_s[place])
        del self._ends[place:]
        step_s, rows = self.view.step_s, 1 + self._streams
        busy = self._due or self._streams
        self._in_flight_s = step_s(1) / 2.0 if busy else 0.0  # what is left of the step meanwhile
        self._lone_row_s = step_s(rows + 1) - step_s(rows)
        rows += len(self._due)
        self._row_s = step_s(rows + 1) - step_s(rows)

    def _know_steps(self, count: int) -> None:
        """Compute the steps that are not known of the first ones."""
        rate, most, known = self._rate, self._streams, self._known_s
        known += map(self.view.step_s, range(len(known) + 1, count + most + 1))
        for rows in range(len(self._steps_s) + 1, count + 1):
            streams = int(rate * known[rows - 1])
            rows += streams if streams < most else most
            self._steps_s.append(known[rows - 1])

    def _know_ends(self) -> None:
        """Compute the ends that are not known."""
        done, due = len(self._ends), self._due
        if len(self._steps_s) < len(due):
            self._know_steps(len(due))
        self._ends += [
            (prompts_s + tokens * step_s - due_in_s, tokens, worth, fall_s, KAPPA * worth)
            for (due_in_s, tokens, worth, fall_s, _), prompts_s, step_s in zip(
                due[done:], self._prompts_s[done + 1 :], self._steps_s[done:], strict=False
            )
        ]


def _due_slope(due: Due) -> float:
    return -due[2] / due[3]


@dataclass(eq=False)
class MostWorth:
    """The server where a request is worth most, less the worth that its requests lose.

    Requests that lose most by each second are placed first. The tokens that a server has to compute
    again count with their time, so that conversations return to their KV if that is worth it.
    """

    gathers = True

    def assign(
        self, now: float, waiting: Sequence[Waiting], servers: Sequence[ServerView]
    ) -> Sequence[Assignment]:
        """Return the best server for each request, the most urgent request first."""
        forecasts = [Forecast(server) for server in sorted(servers, key=_name)]
        fresh = [one for one in forecasts if one.view.age_s <= STALE_S]
        offers: dict[Hashable, _Offers] = {}
        changed: list[Forecast] = []
        made = []
        for one in sorted(waiting, key=_slope):
            kind = _kind(one)
            if kind not in offers:
                able = [other for other in fresh if one.can_go_to(other.view)]
                able = able or [other for other in forecasts if one.can_go_to(other.view)]
                offers[kind] = _Offers(one, able, changed)
            best = offers[kind].best(one, now)
            if best is not None:
                best.add(one, now)
                changed.append(best)
                made.append(Assignment(one.key, best.view.name))
        return made


class _Offers:
    """What each server offers to requests of one kind: a response, and what it costs the others.

    Args:
        like: a request of the kind.
        forecasts: of the servers that can take it.
        changed: takes each forecast that has got a request, for offers of all kinds.
    """

    def __init__(
        self, like: Waiting, forecasts: Sequence[Forecast], changed: Sequence[Forecast]
    ) -> None:
        self._like = like
        self._forecasts = forecasts
        self._changed, self._seen = changed, len(changed)
        self._places = {one: place for place, one in enumerate(forecasts)}
        self._prompts_s = [one.prompt_s(like) for one in forecasts]
        both = list(zip(forecasts, self._prompts_s, strict=True))
        self._responses_s = [one.response_s(like, prompt_s) for one, prompt_s in both]
        self._costs = [one.least_cost(like, prompt_s) for one, prompt_s in both]
        self._whole = [False] * len(forecasts)  # costs with what others lose

    def best(self, one: Waiting, now: float) -> Forecast | None:
        """Return the server with the best offer to a request, the first by name of several.

        What others lose is asked only of servers that would be best if it were nothing.
        """
        if not self._forecasts:
            return None
        self._ask_changed()
        waited_s = now - one.asked_s
        worths = one.worths([waited_s + response_s for response_s in self._responses_s])
        gains = list(map(sub, worths, self._costs))
        while not self._whole[place := gains.index(max(gains))]:
            cost = self._forecasts[place].cost(self._like, self._prompts_s[place])
            self._costs[place], self._whole[place] = cost, True
            gains[place] = worths[place] - cost
        return self._forecasts[place]

    def _ask_changed(self) -> None:
        """Ask the servers again that have got a request."""
        new, self._seen = self._changed[self._seen :], len(self._changed)
        for forecast in set(new):
            place = self._places.get(forecast)
            if place is not None:
                prompt_s = self._prompts_s[place]
                self._whole[place] = False
                self._responses_s[place] = forecast.response_s(self._like, prompt_s)
                self._costs[place] = forecast.least_cost(self._like, prompt_s)


def _slope(one: Waiting) -> float:
    weight, _, grace_s = one.terms
    return -weight / grace_s


def _kind(one: Waiting) -> Hashable:
    """Return what two requests have in common for which servers make the same offers."""
    return one.terms, one.tokens, one.answer_tokens, one.prompt_tokens // _PROMPT_TOKENS, one.place


def moves(
    now: float, unstarted: Iterable[tuple[Waiting, str]], servers: Sequence[ServerView]
) -> list[Assignment]:
    """Return the requests that should move, each with its new server.

    A request moves if it is worth more at another server by `MARGIN`, and there is time for the
    message that takes it from the old server.

    Args:
        now: the time on the dispatcher's clock, seconds.
        unstarted: requests that took part in no step, with the names of their servers.
        servers: the servers that can be reached.
    """
    forecasts = {one.name: Forecast(one) for one in servers}
    made = []
    for one, name in unstarted:
        here = forecasts.get(name)
        if here is None:
            continue
        here.remove(one.due(now, here.view))
        waited_s = now - one.asked_s
        prompt_s = here.prompt_s(one)
        stays = one.worth(waited_s + here.response_s(one, prompt_s)) - here.cost(one, prompt_s)
        best, most = here, stays + MARGIN * (one.terms[0] or 1.0)
        for other in forecasts.values():
            if other is not here and other.view.age_s <= STALE_S and one.can_go_to(other.view):
                late_s = waited_s + here.view.rtt_s
                prompt_s = other.prompt_s(one)
                worth = one.worth(late_s + other.response_s(one, prompt_s))
                if worth - other.least_cost(one, prompt_s) > most:
                    gain = worth - other.cost(one, prompt_s)
                    if gain > most:
                        best, most = other, gain
        best.add(one, now)
        if best is not here:
            made.append(Assignment(one.key, best.view.name))
    return made


@dataclass(eq=False)
class RoundRobin:
    """Each server in turn, by name, among those with the skill set."""

    gathers = False
    _last: str = field(default="", init=False)

    def assign(
        self, now: float, waiting: Sequence[Waiting], servers: Sequence[ServerView]
    ) -> Sequence[Assignment]:
        """Return the next server for each request."""
        made = []
        for one in waiting:
            able = sorted(server.name for server in servers if one.can_go_to(server))
            if able:
                self._last = next((name for name in able if name > self._last), able[0])
                made.append(Assignment(one.key, self._last))
        return made


@dataclass(eq=False)
class LeastOutstanding:
    """The server with the fewest requests that have not ended; the first by name of several.

    Each counts at the server that it was assigned to, also if it moved on.
    """

    gathers = False

    def assign(
        self, now: float, waiting: Sequence[Waiting], servers: Sequence[ServerView]
    ) -> Sequence[Assignment]:
        """Return the least loaded server for each request."""
        counts = {server.name: server.requests for server in servers}
        made = []
        for one in waiting:
            able = [server.name for server in servers if one.can_go_to(server)]
            if able:
                best = min(able, key=lambda name: (counts[name], name))
                counts[best] += 1
                made.append(Assignment(one.key, best))
        return made


@dataclass(eq=False)
class TwoChoices:
    """The one of two random servers with fewer requests (Mitzenmacher 2001).

    Attributes:
        seed: of the choices.
    """

    seed: int = 0
    gathers = False

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)

    def assign(
        self, now: float, waiting: Sequence[Waiting], servers: Sequence[ServerView]
    ) -> Sequence[Assignment]:
        """Return the less loaded of two servers for each request."""
        counts = {server.name: server.requests for server in servers}
        made = []
        for one in waiting:
            able = sorted(server.name for server in servers if one.can_go_to(server))
            if able:
                drawn = self._rng.choice(len(able), min(2, len(able)), replace=False)
                best = min((able[place] for place in drawn), key=lambda name: counts[name])
                counts[best] += 1
                made.append(Assignment(one.key, best))
        return made


class MemorySource(StrEnum):
    """What a server's remaining memory is."""

    PAPER = "paper"
    FREE = "free"


@dataclass(eq=False)
class LargestMemory:
    """The server with the largest remaining memory (Huang et al. 2025, Algorithm 2).

    A request takes its prompt and its expected answer of it. When a request does not fit into the
    largest remaining memory, all memory is remaining again. In the paper nothing else frees it: a
    request that has ended does not.

    Attributes:
        memory: `paper`: what this rule has not assigned yet; `free`: the free KV that the server
            reports, at each call.
        utilization: share of the memory that requests can use, mu of Eq. 20; the memory of a token,
            sigma, is 1 here, since memory is counted in tokens.

    Raises:
        ConfigurationError: the utilization is not above 0 and at most 1.
    """

    memory: MemorySource = MemorySource.PAPER
    utilization: float = 0.9
    gathers = False

    def __post_init__(self) -> None:
        if not 0.0 < self.utilization <= 1.0:
            raise ConfigurationError(
                f"memory: utilization must be above 0 and at most 1, not {self.utilization:g}"
            )
        self._left: dict[str, float] = {}

    def assign(
        self, now: float, waiting: Sequence[Waiting], servers: Sequence[ServerView]
    ) -> Sequence[Assignment]:
        """Return the server with the largest remaining memory for each request."""
        if self.memory is MemorySource.FREE:
            self._left = {one.name: one.free_kv_tokens * self.utilization for one in servers}
        else:
            known, whole = self._left, self._whole(servers)
            self._left = {name: known.get(name, tokens) for name, tokens in whole.items()}
        made = []
        for one in waiting:
            able = [server for server in servers if one.can_go_to(server)]
            if not able:
                continue
            best = min(able, key=self._most_first)
            tokens = one.to_compute(best) + one.answer_tokens
            if self._left[best.name] < tokens and self.memory is MemorySource.PAPER:
                self._left = self._whole(servers)
                best = min(able, key=self._most_first)
            self._left[best.name] -= tokens
            made.append(Assignment(one.key, best.name))
        return made

    def _whole(self, servers: Sequence[ServerView]) -> dict[str, float]:
        """Return the tokens that each server has memory for (Eq. 20)."""
        return {one.name: math.floor(one.kv_tokens * self.utilization) for one in servers}

    def _most_first(self, server: ServerView) -> tuple[float, str]:
        return -self._left[server.name], server.name


@dataclass(eq=False)
class ShortestResponse:
    """The server with the shortest expected time to the first deliverable, after all that is there.

    It knows the servers' speeds and what they have to do, and no worth.
    """

    gathers = False

    def assign(
        self, now: float, waiting: Sequence[Waiting], servers: Sequence[ServerView]
    ) -> Sequence[Assignment]:
        """Return the fastest server for each request."""
        forecasts = [Forecast(server) for server in sorted(servers, key=_name)]
        made = []
        for one in waiting:
            able = [forecast for forecast in forecasts if one.can_go_to(forecast.view)]
            if able:
                best = min(able, key=lambda at: at.response_s(one, at.prompt_s(one), False))
                best.add(one, now)
                made.append(Assignment(one.key, best.view.name))
        return made


def _name(server: ServerView) -> str:
    return server.name
