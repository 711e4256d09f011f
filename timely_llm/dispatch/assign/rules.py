"""Rules that assign requests to servers."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import accumulate

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
        self._due.sort(key=_due_slope)
        self._slopes = list(map(_due_slope, self._due))
        self._steps_s: list[float] = []  # of steps of 1, 2, ... plans and the streams beside them
        self._know()

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
        self._know()

    def remove(self, due: Due) -> None:
        """Remove the deliverable that is most like one from the server's due list."""
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
        """Return the worth that other requests lose: those at the server and those that follow."""
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
        """Compute prompts and steps again, after a change of the due list."""
        view, token_s, steps_s = self.view, self.view.prefill_token_s, self._steps_s
        self.changes += 1
        self._prompts_s = list(accumulate((token_s * due[4] for due in self._due), initial=0.0))
        for rows in range(len(steps_s) + 1, len(self._due) + 2):
            streams = min(int(self._rate * view.step_s(rows)), self._streams)
            steps_s.append(view.step_s(min(rows + streams, view.max_rows)))


def _due_slope(due: Due) -> float:
    return -due.weight / due.grace_s


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
        made = []
        for one in sorted(waiting, key=_slope):
            kind = _kind(one)
            if kind not in offers:
                able = [other for other in fresh if one.can_go_to(other.view)]
                able = able or [other for other in forecasts if one.can_go_to(other.view)]
                offers[kind] = _Offers(one, able)
            best = offers[kind].best(one, now)
            if best is not None:
                best.add(one, now)
                made.append(Assignment(one.key, best.view.name))
        return made


class _Offers:
    """What each server offers to requests of one kind: a response, and what it costs the others."""

    def __init__(self, like: Waiting, forecasts: Sequence[Forecast]) -> None:
        self._like = like
        self._forecasts = forecasts
        self._known = [(-1, 0.0, 0.0)] * len(forecasts)

    def best(self, one: Waiting, now: float) -> Forecast | None:
        """Return the server with the best offer to a request, the first by name of several."""
        waited_s, most, found = now - one.asked_s, float("-inf"), None
        for place, forecast in enumerate(self._forecasts):
            changes, response_s, cost = self._known[place]
            if changes != forecast.changes:
                response_s, cost = forecast.response_s(self._like), forecast.cost(self._like)
                self._known[place] = forecast.changes, response_s, cost
            gain = one.worth(waited_s + response_s) - cost
            if gain > most:
                most, found = gain, forecast
        return found


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
        stays = one.worth(waited_s + here.response_s(one)) - here.cost(one)
        best, most = here, stays + MARGIN * (one.terms[0] or 1.0)
        for other in forecasts.values():
            if other is not here and other.view.age_s <= STALE_S and one.can_go_to(other.view):
                late_s = waited_s + here.view.rtt_s
                gain = one.worth(late_s + other.response_s(one)) - other.cost(one)
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
    """The server with the fewest requests that have not ended; the first by name of several."""

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
                best = min(able, key=lambda forecast: forecast.response_s(one, ordered=False))
                best.add(one, now)
                made.append(Assignment(one.key, best.view.name))
        return made


def _name(server: ServerView) -> str:
    return server.name
