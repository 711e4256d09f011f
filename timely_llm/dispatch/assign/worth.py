"""Most worth: the server where a request gains most, less what it costs the others; and moves."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from timely_llm.dispatch.assign.forecast import Forecast
from timely_llm.dispatch.contract import Assignment, ServerView, Waiting

STALE_S = 0.3
"""Age of a view from which its server gets requests only if no other can take them, seconds."""

_PROMPT_TOKENS = 16  # prompts that differ by less count as equally long

MARGIN = 0.05
"""Least gain of a move, as a share of the request's worth."""


@dataclass(eq=False)
class MostWorth:
    """The server where a request is worth most, less the worth that those who are there lose.

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


def _name(server: ServerView) -> str:
    return server.name


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
