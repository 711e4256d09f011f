"""The cost of an assignment of requests to servers, for each rule, and of a front's calls."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from timely_llm.core.request import ChatMessage, PlanRequest, Request, StreamRequest
from timely_llm.core.time_utility import NORMAL, URGENT
from timely_llm.dispatch.assign.registry import (
    DEFAULT_DISPATCHER,
    DISPATCHERS,
    make_dispatcher,
)
from timely_llm.dispatch.contract import Due, ServerView, Waiting
from timely_llm.dispatch.front.delivered.recovery import Words
from timely_llm.dispatch.front.front import Front
from timely_llm.skills.skill_set import SkillSet

SIZES = ((10, 4), (100, 16))
"""Requests and servers of an assignment."""

DUE = 16
"""Deliverables that each server has to make, unless another number is given."""

FRONT_SIZES = ((24, 3), (100, 16))
"""Open requests and servers of a front."""

WARM = 10
"""First calls, which are not measured."""

QUESTION = (ChatMessage("user", "What do you see?"),)
_SKILL_SET = "drone"


def rows(
    dispatchers: Sequence[str] = tuple(DISPATCHERS),
    sizes: Iterable[tuple[int, int]] = SIZES,
    repeats: int = 200,
    progress: Callable[[int, int], None] = lambda done, total: None,
    due: int = DUE,
) -> list[dict[str, Any]]:
    """Return the cost of one assignment by each rule.

    Half of the requests are plans, a fourth of them urgent, and half are questions of people with
    prompts of any length. Servers differ in speed, and each has `due` deliverables.

    Args:
        dispatchers: in the notation of `make_dispatcher`.
        sizes: numbers of requests and of servers.
        repeats: measured assignments, each of new requests at new views.
        progress: called with the finished and the total number of rows.
        due: deliverables of each server, at most `MOST_DUE`.

    Returns:
        Rows of `dispatcher, requests, servers, due, assign_us, p99_us`: median and 99th percentile
        in CPU microseconds, so that other programs do not count.
    """
    cases = [(name, *size) for size in sizes for name in dispatchers]
    made = []
    for done, (name, requests, servers) in enumerate(cases):
        progress(done, len(cases))
        made.append(_row(name, requests, servers, due, repeats))
    progress(len(cases), len(cases))
    return made


def front_rows(
    dispatchers: Sequence[str] = (DEFAULT_DISPATCHER,),
    sizes: Iterable[tuple[int, int]] = FRONT_SIZES,
    repeats: int = 200,
    progress: Callable[[int, int], None] = lambda done, total: None,
    due: int = DUE,
) -> list[dict[str, Any]]:
    """Return the cost of a front's calls, for which what servers deliver has to wait, or not.

    Args:
        dispatchers: as for `rows`.
        sizes: numbers of open requests, half of which have not begun, and of servers.
        repeats: measured calls of each kind.
        progress: called with the finished and the total number of rows.
        due: deliverables of each server, at most `MOST_DUE`.

    Returns:
        Rows of `dispatcher, call, requests, servers, due, call_us, p99_us`: median and 99th
        percentile in CPU microseconds. `asked` takes one more request. `heard` takes a view without
        the answer which requests should move. `answer` is that: deliveries do not wait for it.
    """
    cases = [(name, *size) for size in sizes for name in dispatchers]
    made = []
    for done, (name, requests, servers) in enumerate(cases):
        progress(done, len(cases))
        spent_s = _front_seconds(name, requests, servers, due, repeats)
        names = {"requests": requests, "servers": servers, "due": due}
        made += [{"dispatcher": name, "call": call, **names, **_micros("call_us", times_s)}
                 for call, times_s in spent_s.items()]  # fmt: skip
    progress(len(cases), len(cases))
    return made


def _front_seconds(
    name: str, requests: int, servers: int, due: int, repeats: int
) -> dict[str, list[float]]:
    rng = np.random.default_rng(0)
    spent_s: dict[str, list[float]] = {"asked": [], "heard": [], "answer": []}
    for repeat in range(repeats + WARM):
        front = Front(make_dispatcher(name), Words(_no_skill_set))
        views = [_view(number, rng, due) for number in range(servers)]
        for view in views:
            front.heard(view, 0.999, 1.0)
        for number in range(requests):
            front.asked(_waiting(number, rng), 1.0)
        one = _waiting(requests, rng)
        asked_s = _seconds(lambda front=front, one=one: front.asked(one, 1.0))  # type: ignore[misc]
        mine = [key for key in front.open if front.server_of(key) == views[0].name]
        view = replace(views[0], served=tuple(mine), unstarted=frozenset(mine[::2]))
        began_s = time.thread_time()
        front.noted(view, 1.05, 1.06)
        question = front.to_move(view, 1.06)
        heard_s = time.thread_time() - began_s
        if question is None:
            continue
        answer_s = _seconds(lambda question=question: question.answer)  # type: ignore[misc]
        moved_s = _seconds(lambda front=front, question=question: front.moved(question))  # type: ignore[misc]
        if repeat >= WARM:
            for call, seconds in (
                ("asked", asked_s), ("heard", heard_s + moved_s), ("answer", answer_s)
            ):  # fmt: skip
                spent_s[call].append(seconds)
    return spent_s


def _seconds(work: Callable[[], object]) -> float:
    began_s = time.thread_time()
    work()
    return time.thread_time() - began_s


def _no_skill_set(name: str) -> SkillSet:
    raise AssertionError("no request goes on at another server")


def _micros(name: str, spent_s: Sequence[float]) -> dict[str, float]:
    return {
        name: round(1e6 * statistics.median(spent_s), 1),
        "p99_us": round(1e6 * float(np.percentile(spent_s, 99)), 1),
    }


def _row(name: str, requests: int, servers: int, due: int, repeats: int) -> dict[str, Any]:
    rule, spent_s = make_dispatcher(name), []
    rng = np.random.default_rng(0)
    for repeat in range(repeats + WARM):
        waiting = [_waiting(number, rng) for number in range(requests)]
        views = [_view(number, rng, due) for number in range(servers)]
        start_s = time.thread_time()
        rule.assign(1.0, waiting, views)
        if repeat >= WARM:
            spent_s.append(time.thread_time() - start_s)
    names = {"dispatcher": name, "requests": requests, "servers": servers, "due": due}
    return {**names, **_micros("assign_us", spent_s)}


def _waiting(number: int, rng: np.random.Generator) -> Waiting:
    name, asked_s = f"r{number}", 1.0 - float(rng.uniform(0.0, 0.02))
    request: Request
    if number % 2:
        request = StreamRequest(name, name, QUESTION)
        return Waiting(request, asked_s, int(rng.integers(60, 200)), 1.0, 100.0)
    utility = NORMAL if number % 8 else URGENT
    request = PlanRequest(name, name, _SKILL_SET, "Find the cat.", utility)
    return Waiting(request, asked_s, 700 + int(rng.integers(20, 60)))


def _view(number: int, rng: np.random.Generator, count: int) -> ServerView:
    speed = float(rng.uniform(0.5, 2.0))
    due = tuple(
        Due(
            float(rng.uniform(-0.5, 2.0)), float(rng.integers(1, 16)), float(rng.integers(1, 3)),
            0.5, int(rng.integers(2)) * 60,
        )
        for _ in range(count)
    )  # fmt: skip
    return ServerView(
        f"server_{number:02d}", tuple(speed * (0.02 + 0.0002 * row) for row in range(32)),
        0.0002 * speed, 0.0001 * speed, 100_000, int(rng.integers(100_000)), 64,
        {_SKILL_SET: 700}, {}, (8.0,) * int(rng.integers(8)), due, count,
    )  # fmt: skip
