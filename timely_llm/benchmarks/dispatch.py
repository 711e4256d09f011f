"""The cost of an assignment of requests to servers, for each rule."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from timely_llm.core.request import ChatMessage, PlanRequest, Request, StreamRequest
from timely_llm.core.time_utility import NORMAL, URGENT
from timely_llm.dispatch.assign.registry import DISPATCHERS, make_dispatcher
from timely_llm.dispatch.contract import Due, ServerView, Waiting

SIZES = ((10, 4), (100, 16))
"""Requests and servers of an assignment."""

DUE = 16
"""Deliverables that each server has to make."""

QUESTION = (ChatMessage("user", "What do you see?"),)
_SKILL_SET = "drone"


def rows(
    dispatchers: Sequence[str] = tuple(DISPATCHERS),
    sizes: Iterable[tuple[int, int]] = SIZES,
    repeats: int = 200,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[dict[str, Any]]:
    """Return the cost of one assignment by each rule.

    Half of the requests are plans, a fourth of them urgent, and half are questions of people with
    prompts of any length. Servers differ in speed, and each has `DUE` deliverables.

    Args:
        dispatchers: in the notation of `make_dispatcher`.
        sizes: numbers of requests and of servers.
        repeats: measured assignments, each of new requests at new views.
        progress: called with the finished and the total number of rows.

    Returns:
        Rows of `dispatcher, requests, servers, assign_us, p99_us`: median and 99th percentile in
        CPU microseconds, so that other programs do not count.
    """
    cases = [(name, *size) for size in sizes for name in dispatchers]
    made = []
    for done, (name, requests, servers) in enumerate(cases):
        progress(done, len(cases))
        made.append(_row(name, requests, servers, repeats))
    progress(len(cases), len(cases))
    return made


def _row(name: str, requests: int, servers: int, repeats: int) -> dict[str, Any]:
    rule, spent_s = make_dispatcher(name), []
    rng = np.random.default_rng(0)
    for repeat in range(repeats + 10):
        waiting = [_waiting(number, rng) for number in range(requests)]
        views = [_view(number, rng) for number in range(servers)]
        start_s = time.thread_time()
        rule.assign(1.0, waiting, views)
        if repeat >= 10:  # the first ones warm up
            spent_s.append(time.thread_time() - start_s)
    return {
        "dispatcher": name,
        "requests": requests,
        "servers": servers,
        "assign_us": round(1e6 * statistics.median(spent_s), 1),
        "p99_us": round(1e6 * float(np.percentile(spent_s, 99)), 1),
    }


def _waiting(number: int, rng: np.random.Generator) -> Waiting:
    name, asked_s = f"r{number}", 1.0 - float(rng.uniform(0.0, 0.02))
    request: Request
    if number % 2:
        request = StreamRequest(name, name, QUESTION)
        return Waiting(request, asked_s, int(rng.integers(60, 200)), 1.0, 100.0)
    utility = NORMAL if number % 8 else URGENT
    request = PlanRequest(name, name, _SKILL_SET, "Find the cat.", utility)
    return Waiting(request, asked_s, 700 + int(rng.integers(20, 60)))


def _view(number: int, rng: np.random.Generator) -> ServerView:
    speed = float(rng.uniform(0.5, 2.0))
    due = tuple(
        Due(
            float(rng.uniform(-0.5, 2.0)), float(rng.integers(1, 16)), float(rng.integers(1, 3)),
            0.5, int(rng.integers(2)) * 60,
        )
        for _ in range(DUE)
    )  # fmt: skip
    return ServerView(
        f"server_{number:02d}", tuple(speed * (0.02 + 0.0002 * row) for row in range(32)),
        0.0002 * speed, 0.0001 * speed, 100_000, int(rng.integers(100_000)), 64,
        {_SKILL_SET: 700}, {}, (8.0,) * int(rng.integers(8)), due, DUE,
    )  # fmt: skip
