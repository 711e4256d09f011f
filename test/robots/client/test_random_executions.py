"""`execute` makes exactly the calls of random plans, in whatever order segments come.

The reference evaluates the plans' trees (random_plans.py). 3,000 plans in every suite; more with

    RANDOM_PLANS=200000 python -m pytest test/robots/client/test_random_executions.py --timeout 3600
"""

from __future__ import annotations

import os
import random
from collections import Counter
from typing import Any

import pytest

from test.robots.client.random_plans import (
    ROVER,
    Called,
    Failed,
    Fate,
    Maker,
    Node,
    Returned,
    evaluate,
)
from test.robots.client.scripted_server import ScriptedServer
from timely_llm.core.request import ErrorCode, ReportState
from timely_llm.robots.client.pending import PlanClientError

PLANS = int(os.environ.get("RANDOM_PLANS", "3000"))
PARTS = 10
MAX_EPOCHS = 3


def reference(plans: list[tuple[Node, ...]], fate: Fate) -> tuple[list[Called], object, int]:
    """Return the calls of all epochs, what the last plan returned, and how many epochs failed.

    None: it returned nothing. All epochs: there was no plan that went to its end.
    """
    made: list[Called] = []

    def call(name: str, arguments: tuple[Any, ...]) -> object:
        made.append((name, arguments))
        try:
            return fate.of(len(made) - 1, name)
        except OSError:
            raise Failed(name) from None

    for failures, plan in enumerate(plans):
        try:
            evaluate(plan, call)
        except Failed:
            continue
        except Returned as returned:
            return made, returned.value, failures
        return made, None, failures
    return made, None, len(plans)


def robot(fate: Fate, server: ScriptedServer, made: list[Called]) -> dict[str, Any]:
    """Return callables with the same fate, which record their calls."""

    def skill(name: str) -> Any:
        def do(*arguments: Any) -> object:
            made.append((name, arguments))
            server.disturb()
            return fate.of(len(made) - 1, name)

        return do

    return {name: skill(name) for name in ROVER.skills}


def run(seed: int) -> str:
    """Execute random plans; return how that ended."""
    rng = random.Random(seed)
    maker = Maker(rng)
    plans = [maker.plan() for _ in range(rng.randrange(1, MAX_EPOCHS + 1))]
    fate = Fate(tuple(rng.randrange(1000) for _ in range(97)))
    closed_loop = rng.random() < 0.85
    if not closed_loop:
        plans = plans[:1]  # a request that has ended gets no new plan
    server = ScriptedServer(ROVER, [maker.text(plan) for plan in plans], rng, closed_loop)
    expected, value, failures = reference(plans, fate)
    made: list[Called] = []
    task = server.start()
    try:
        done = task.execute(robot(fate, server, made), timeout_s=5.0)
    except PlanClientError as error:
        assert failures == len(plans), error
        assert error.code is ErrorCode.EXECUTION_FAILED
        assert [(c.call.name, c.call.arguments) for c in error.calls] == expected
        ended = "failed"
    else:
        assert failures < len(plans)
        assert done.value == value and type(done.value) is type(value)
        assert [(c.call.name, c.call.arguments) for c in done.calls] == expected
        assert done.epochs == failures + 1
        ended = "replanned" if failures else "returned" if value is not None else "complete"
    assert made == expected
    check_reports(server, failures)
    return ended if closed_loop else f"open, {ended}"


def check_reports(server: ScriptedServer, failures: int) -> None:
    """In each epoch, segments begin and end one after the other; a failure is the last report."""
    states = Counter(report.state for report in server.reports)
    assert states[ReportState.FAILED] == failures
    for epoch in range(MAX_EPOCHS):
        of = [report for report in server.reports if report.epoch == epoch]
        assert all(report.state is not ReportState.FAILED for report in of[:-1])
        order = [(r.index, r.state) for r in of if r.state in (1, 2)]
        assert order == sorted(order)
        assert len(set(order)) == len(order)


@pytest.mark.parametrize(
    "part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, PARTS))]
)
def test_the_calls_are_those_of_the_reference(part: int) -> None:
    ends = Counter[str]()
    for seed in range(part, PLANS, PARTS):
        try:
            ends[run(seed)] += 1
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
    assert len(ends) >= 5, f"too few kinds of plans: {ends}"
