"""Rows of fleets: metrics that others use for the serving of robots, over this package's plans.

FleetVLA 2026 (its docs/benchmarking.md) counts the ticks of a robot's control loop. A robot of this
package executes segments that take seconds, so time takes the place of ticks: a robot is starved
while it has a request and executes no segment of it. Jiang et al. 2026 (Rosa) name the
SLO-qualified productivity of a fleet, Dai et al. 2026 (Kairos) the latency of a task from end to
end.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from timely_llm.experiments.results.metrics import MeasuredRow, utility
from timely_llm.experiments.results.talks import percentile
from timely_llm.experiments.virtual.outcome import JobOutcome

DEFINITIONS: Mapping[str, str] = {
    "robots": "robots of the fleet",
    "servers": "servers of the fleet",
    "slo_attainment": "share of the requests with a first action within the expected response time:"
    " 0.2 s for urgent tasks, 1 s for others",
    "utility_per_min": "time utility of all requests of the window in sum, a minute",
    "tasks_per_min": "plans that were executed to their end in the window, a minute",
    "qualified_per_min": "plans with a first action in time that were executed to their end in the"
    " window, a minute: SLO-qualified productivity",
    "qualified_per_server_min": "qualified plans a minute for each server",
    "useful_actions": "segments that robots began to execute in the window",
    "starvation_frequency": "share of the robots' time with a request in which they executed no"
    " segment",
    "starvation_duration_s": "time in which robots had a request and executed no segment, seconds,"
    " in sum over robots",
    "action_age_p50_s": "median of the times from a request to the start of a segment, seconds,"
    " with the execution of earlier segments",
    "action_age_p95_s": "95 % of the segments started within this time after their request,"
    " seconds",
    "fairness": "Jain's index over each robot's share of time with a request that was not starved:"
    " 1 if all robots are equal",
    "task_latency_s": "from asking to the end of a plan's execution, seconds, mean over the plans"
    " that were executed to their end",
}
"""The meaning of each column beside those of `metrics.DEFINITIONS`."""


@dataclass(frozen=True)
class RobotWindow:
    """What a robot did in a window.

    Attributes:
        asked_s: seconds in which it had a request.
        starved_s: those of them in which it executed no segment.
    """

    asked_s: float
    starved_s: float

    @property
    def progress(self) -> float:
        """Share of its time with a request that was not starved; 1 without requests."""
        return 1.0 - self.starved_s / self.asked_s if self.asked_s else 1.0


def robot_time(outcomes: Sequence[JobOutcome], until_s: float) -> RobotWindow:
    """Return what a robot did before `until_s`, seconds on the trace's clock.

    A plan that did not finish keeps its robot starved until its next request, or until the end.

    Args:
        outcomes: of the robot's requests in order; each begins after the one before has ended.
        until_s: end of the window.
    """
    begins = [outcome.work.arrival_s for outcome in outcomes]
    asked, executed = [], []
    for outcome, next_s in zip(outcomes, [*begins, math.inf][1:], strict=True):
        spans = [(segment.start_s, segment.end_s) for segment in outcome.segments]
        end_s = spans[-1][1] if outcome.finished and spans else next_s
        asked.append(_within(outcome.work.arrival_s, end_s, until_s))
        executed += [_within(*span, until_s) for span in spans]
    asked_s = math.fsum(asked)
    return RobotWindow(asked_s, max(asked_s - math.fsum(executed), 0.0))


def jain(shares: Sequence[float]) -> float:
    """Return Jain's fairness index of shares: 1 if all are equal, 1/n if one has everything.

    It is 1 if all shares are 0, as in FleetVLA, and NaN without shares.
    """
    if not shares:
        return math.nan
    squares = math.fsum(share * share for share in shares)
    return math.fsum(shares) ** 2 / (len(shares) * squares) if squares else 1.0


def in_time(outcome: JobOutcome) -> bool:
    """Return whether the first action came within the request's expected response time."""
    return outcome.response_s <= outcome.job.time_utility.ert_s


def fleet_row(
    outcomes: Sequence[JobOutcome], until_s: float, servers: int = 1, **names: Any
) -> MeasuredRow:
    """Return one flat row: the columns `names`, and those of `DEFINITIONS`.

    Args:
        outcomes: of all requests of the window, in order of arrival.
        until_s: end of the window, which begins at 0, on the trace's clock.
        servers: number of servers.
        names: key columns.
    """
    by_robot: dict[str, list[JobOutcome]] = defaultdict(list)
    for outcome in outcomes:
        by_robot[outcome.work.agent].append(outcome)
    times = [robot_time(mine, until_s) for mine in by_robot.values()]
    asked_s = math.fsum(time.asked_s for time in times)
    starved_s = math.fsum(time.starved_s for time in times)
    ages = [
        segment.start_s - outcome.work.arrival_s
        for outcome in outcomes
        for segment in outcome.segments
        if segment.start_s < until_s
    ]
    finished = [outcome for outcome in outcomes if outcome.finished and outcome.segments]
    done = [outcome for outcome in finished if outcome.segments[-1].end_s <= until_s]
    qualified_per_min = 60.0 * sum(map(in_time, done)) / until_s
    latencies = [o.segments[-1].end_s - o.work.arrival_s for o in finished]
    return {
        **names,
        "servers": servers,
        "slo_attainment": fmean(map(in_time, outcomes)) if outcomes else math.nan,
        "utility_per_min": 60.0 * math.fsum(map(utility, outcomes)) / until_s,
        "tasks_per_min": 60.0 * len(done) / until_s,
        "qualified_per_min": qualified_per_min,
        "qualified_per_server_min": qualified_per_min / servers,
        "useful_actions": len(ages),
        "starvation_frequency": starved_s / asked_s if asked_s else math.nan,
        "starvation_duration_s": starved_s,
        "action_age_p50_s": percentile(ages, 0.5),
        "action_age_p95_s": percentile(ages, 0.95),
        "fairness": jain([time.progress for time in times]),
        "task_latency_s": fmean(latencies) if latencies else math.nan,
    }


def _within(begin_s: float, end_s: float, until_s: float) -> float:
    """Return the seconds of a span before a moment."""
    return max(min(end_s, until_s) - begin_s, 0.0)
