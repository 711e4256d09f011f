"""Shortest expected response: the server that answers a request first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from timely_llm.dispatch.assign.forecast import Forecast
from timely_llm.dispatch.contract import Assignment, ServerView, Waiting


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
