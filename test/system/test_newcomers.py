"""Urgent plans of robots that have just started, of known robots, and floods of others."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import pytest

from test.system.conftest import Start
from test.system.ros_client import LONG, Client, serving
from timely_llm import msg
from timely_llm.core.request import ErrorCode
from timely_llm.core.time_utility import NORMAL, URGENT, TimeUtility
from timely_llm.ros import qos
from timely_llm.ros.conversions import TIME_UTILITY

pytestmark = pytest.mark.faults
PLACES, FLEET, ROBOTS = 128, 64, 16
"""Requests that the server takes at a time, agents of the flood, and robots that it knows."""
FLOOD_PERIOD_S, ROBOT_PERIOD_S = 0.005, 0.25
"""Seconds between two requests of the flood, and between two of new, or of known robots."""
KNOWN, NEW, FLOOD = "known", "new", "flood"
EXPLAINED = {ErrorCode.NONE, ErrorCode.QUEUE_FULL, ErrorCode.BUSY, ErrorCode.EXPIRED}


class Asking:
    """Asks a server for plans, and notes the results."""

    def __init__(self, client: Client, most: int) -> None:
        self._client = client
        self.asked: list[str] = []
        self.results: dict[str, list[int]] = {}
        made = qos.reliable(most)
        topic = "plan_server/results"
        heard = client.node.create_subscription(msg.PlanResult, topic, self._note, made)
        topic = "plan_server/plan_requests"
        self._sender = client.node.create_publisher(msg.PlanRequest, topic, made)
        client.until(
            lambda: heard.get_publisher_count() == self._sender.get_subscription_count() == 1
        )

    def _note(self, result: msg.PlanResult) -> None:
        self.results.setdefault(result.request_id, []).append(result.error_code)

    def ask(self, kind: str, agent: str, utility: TimeUtility) -> None:
        """Ask for a plan of an agent."""
        request = self._client.request(f"{kind}-{len(self.asked)}", LONG)
        request.agent = agent
        request.time_utility = TIME_UTILITY.message(utility)
        self._sender.publish(request)
        self.asked.append(request.request_id)

    def all_ended(self) -> bool:
        """Return whether each request has a result."""
        return self.results.keys() >= set(self.asked)

    def codes(self, kind: str) -> Counter[ErrorCode]:
        """Return how often the requests of a kind ended in each way."""
        ends = (codes for key, codes in self.results.items() if key.startswith(f"{kind}-"))
        return Counter(ErrorCode(code) for codes in ends for code in codes)


@pytest.mark.parametrize("flood_s", [10.0, 25.0])
def test_urgent_plans_of_new_robots_get_places_in_a_flood_of_normal_ones(
    start: Start, domain: int, flood_s: float
) -> None:
    known, new = _urgent_beside(
        start, domain, flood_s, lambda number: (f"fleet-{number % FLEET}", NORMAL)
    )
    assert known[ErrorCode.QUEUE_FULL] <= known.total() / 4
    assert new[ErrorCode.QUEUE_FULL] <= new.total() / 4


@pytest.mark.parametrize("flood_s", [10.0, 25.0])
def test_urgent_plans_of_known_robots_get_places_in_a_flood_of_urgent_ones_under_new_names(
    start: Start, domain: int, flood_s: float
) -> None:
    known, _ = _urgent_beside(start, domain, flood_s, lambda number: (f"name-{number}", URGENT))
    assert known[ErrorCode.QUEUE_FULL] <= known.total() / 4


def _urgent_beside(
    start: Start, domain: int, flood_s: float, flooding: Callable[[int], tuple[str, TimeUtility]]
) -> tuple[Counter[ErrorCode], Counter[ErrorCode]]:
    """Ask for urgent plans of known and of new robots in a flood; return how each kind ended.

    Args:
        start: starts the server.
        domain: of ROS.
        flood_s: seconds.
        flooding: returns the agent and the worth of a request of the flood, by its number.
    """
    given = {"engine": "simulated", "max_requests": PLACES, "queue_timeout_s": 20.0}
    with serving(start, Client, domain, **given) as client:
        asking = Asking(client, round(2 * flood_s / FLOOD_PERIOD_S))
        for number in range(ROBOTS):
            asking.ask("first", f"robot-{number}", NORMAL)
        client.until(asking.all_ended)

        def of_flood(number: int) -> None:
            asking.ask(FLOOD, *flooding(number))

        def of_robots(number: int) -> None:
            asking.ask(KNOWN, f"robot-{number % ROBOTS}", URGENT)
            asking.ask(NEW, f"new-{number}", URGENT)

        _at_rates(client, flood_s, [(FLOOD_PERIOD_S, of_flood), (ROBOT_PERIOD_S, of_robots)])
        client.until(asking.all_ended)
        client.until_listed({})
    assert all(len(codes) == 1 for codes in asking.results.values()), "one result each"
    found = {kind: asking.codes(kind) for kind in (KNOWN, NEW, FLOOD)}
    for kind, codes in found.items():
        print(f"{kind}: {', '.join(f'{n} {code.name}' for code, n in codes.items())}")
        assert set(codes) <= EXPLAINED
    assert found[FLOOD][ErrorCode.QUEUE_FULL], "it was a flood"
    return found[KNOWN], found[NEW]


def _at_rates(
    client: Client, duration_s: float, does: list[tuple[float, Callable[[int], None]]]
) -> None:
    """Do some things for a while, each again and again after its period."""
    begin_s = time.monotonic()
    done = [0] * len(does)
    while (passed_s := time.monotonic() - begin_s) < duration_s:
        for place, (period_s, act) in enumerate(does):
            while done[place] * period_s <= passed_s:
                act(done[place])
                done[place] += 1
        next_s = begin_s + min(n * period_s for n, (period_s, _) in zip(done, does, strict=True))
        client.until(lambda next_s=next_s: time.monotonic() >= next_s)  # type: ignore[misc]
