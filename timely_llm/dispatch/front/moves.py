"""Requests that have not begun may move to another server: they have no KV to lose."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from timely_llm.dispatch.assign.forecast import Forecast
from timely_llm.dispatch.assign.worth import STALE_S
from timely_llm.dispatch.contract import Assignment, ServerView, Waiting

MARGIN = 0.05
"""Least gain of a move, as a share of the request's worth."""


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
