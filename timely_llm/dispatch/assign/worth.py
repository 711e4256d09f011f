"""Most worth: the server where a request gains most, less what it costs the others there."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from timely_llm.dispatch.assign.forecast import Forecast
from timely_llm.dispatch.contract import Assignment, ServerView, Waiting

STALE_S = 0.3
"""Age of a view from which its server gets requests only if no other can take them, seconds."""

_PROMPT_TOKENS = 16  # prompts that differ by less count as equally long


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
