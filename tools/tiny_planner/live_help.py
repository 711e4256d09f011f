"""Measure live what steps of a cloud add to the plans of a smaller model at two plan servers.

    PYTHONPATH=. python -m tools.tiny_planner.live_help SMALL [--sketcher SKETCHER]

A cloud of this machine runs a model behind OpenAI's interface at the pace of a 70B model: the
sketcher, or the large model, of which the steps of its plans are the sketches
(`planning_cloud.py`). Two plan servers run the small model.
Robots ask them for plans of tasks that no training saw: each task once in the mode `direct` and
once in the mode `progressive`. They make each call in a share of the seconds that the skill set
predicts. A task is right if a robot makes the calls of the one right plan, in their order and no
others. All searches find what they search for.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from timely_llm.benchmarks.server import start_server
from timely_llm.core.output_file import write_json
from timely_llm.core.request import RequestMode
from timely_llm.core.segment import SkillCall
from timely_llm.demo.cloud import printed_url
from timely_llm.processes.children import Children, Interrupts, wait
from timely_llm.processes.nodes import local_environment, random_domain
from timely_llm.resources import EMBEDDED_MODEL, resource
from timely_llm.ros.client import PlanClient, PlanClientError
from timely_llm.skills.checkers import cut
from timely_llm.skills.skill_set import SkillSet, load_skill_set
from timely_llm.skills.stop_checker import Piece
from tools.tiny_planner import corpus
from tools.tiny_planner.batches import SKILL_SETS
from tools.tiny_planner.evaluate import test_samples
from tools.tiny_planner.evaluate_help import Share
from tools.tiny_planner.planning_cloud import PACE

CLOUD = (sys.executable, "-m", "tools.tiny_planner.planning_cloud")
STAND_IN = (
    sys.executable, "-c", "from timely_llm.entry import main; main()", "cloud-stand-in",
)  # fmt: skip
SERVERS = ("edge_1", "edge_2")
MODES = ("direct", "progressive")
START_LIMIT_S, PLAN_LIMIT_S = 120.0, 60.0


@dataclass(frozen=True)
class LivePlan:
    """What came of one task in one mode.

    Attributes:
        exact: the robot made the calls of the right plan.
        ended: the request ended without an error.
        helped: steps of the cloud are in the plan.
        cloud_tokens: of the cloud.
        response_s: from the question to the first segment, seconds; negative: there was none.
    """

    exact: bool
    ended: bool
    helped: bool
    cloud_tokens: int
    response_s: float


def calls_of(plan: str, skill_set: SkillSet) -> list[str]:
    """Return the calls of a plan that runs straight on, as words."""
    pieces = [one for one in cut(skill_set, plan) if isinstance(one, Piece)]
    return [str(call) for piece in pieces for call in piece.calls]


class LiveRobots:
    """Robots of both kinds at each server, which ask for one plan at a time each.

    Args:
        domain: ROS domain.
        share: of the predicted seconds that a call takes.
    """

    def __init__(self, domain: int, share: float) -> None:
        self._domain = domain
        self._share = share
        self._skill_sets = {robot: load_skill_set(path) for robot, path in SKILL_SETS.items()}

    def work(self, name: str, server: str, samples: Sequence[corpus.Sample]) -> list[Any]:
        """Return the plans of some tasks in both modes, by task; one robot asks after another."""
        clients = {
            robot: PlanClient(f"{name}_{robot}", robot, namespace=server, domain=self._domain,
                              find_s=START_LIMIT_S)
            for robot in self._skill_sets
        }  # fmt: skip
        try:
            return [
                {mode: self._ask(clients[one.robot], one, mode) for mode in MODES}
                for one in samples
            ]
        finally:
            for client in clients.values():
                client.close()

    def _ask(self, client: PlanClient, sample: corpus.Sample, mode: str) -> LivePlan:
        skill_set = self._skill_sets[sample.robot]
        made: list[str] = []

        def call(one: SkillCall) -> bool:
            made.append(str(one))
            time.sleep(self._share * one.predicted_s)
            return True

        task = client.submit(sample.user, mode=mode)
        with suppress(PlanClientError):  # the result says what is wrong with the plan
            task.execute({}, otherwise=call, skill_set=skill_set, timeout_s=PLAN_LIMIT_S)
        result = task.result(PLAN_LIMIT_S)
        return LivePlan(
            made == calls_of(sample.answer, skill_set), not result.error_code,
            result.mode_used == RequestMode.PROGRESSIVE, result.cloud_tokens, result.response_s,
        )  # fmt: skip


def cloud_command(large: Path, sketcher: Path | None) -> list[str]:
    """Return the command line of the cloud.

    Args:
        large: a planner; the steps of its plans are the sketches.
        sketcher: a model that writes sketches itself; it takes the planner's place.
    """
    if sketcher is None:
        return [*CLOUD, str(large)]
    return [*STAND_IN, "--model", str(sketcher), "--pace", PACE]


def measure(
    small: Path,
    cloud_words: Sequence[str],
    samples: Sequence[corpus.Sample],
    robots: int,
    share: float,
) -> list[dict[str, LivePlan]]:
    """Return the plans of each task by mode.

    Args:
        small: model of the servers.
        cloud_words: command line of the cloud.
        samples: the tasks.
        robots: robots at each server that ask at a time.
        share: of the predicted seconds that a call takes.

    Raises:
        ProcessError: a process could not be started.
        Interrupted: the user asked to end.
    """
    domain = random_domain()
    environment = local_environment(domain)
    with (
        tempfile.TemporaryDirectory() as name,
        Interrupts() as interrupts,
        Children(interrupts) as children,
    ):
        folder = Path(name)
        cloud = children.start("cloud", cloud_words, environment, folder / "cloud.log")
        late = "the cloud was not ready"
        wait(cloud, lambda: bool(printed_url(cloud)), interrupts, START_LIMIT_S, late)
        for server in SERVERS:
            start_server(
                children, interrupts, environment, folder, server, engine="transformers",
                model=str(small), cloud_url=printed_url(cloud), cloud_model="stand-in",
                cloud_max_requests=8,
            )  # fmt: skip
        live = LiveRobots(domain, share)
        lanes = [(f"robot_{n}", SERVERS[n % 2]) for n in range(robots * len(SERVERS))]
        parts = [samples[n :: len(lanes)] for n in range(len(lanes))]
        with ThreadPoolExecutor(len(lanes)) as pool:
            begun = [
                pool.submit(live.work, *lane, part) for lane, part in zip(lanes, parts, strict=True)
            ]
            return [plans for lane in begun for plans in lane.result()]


def summary(plans: Sequence[dict[str, LivePlan]]) -> dict[str, Any]:
    """Return the shares of tasks, and the cloud's tokens and the response times for each."""
    failed = [one for one in plans if not one["direct"].exact]
    solved = [one for one in plans if one["direct"].exact]
    found: dict[str, Any] = {
        "repaired": Share.among(one["progressive"].exact for one in failed).as_json(),
        "spoiled": Share.among(not one["progressive"].exact for one in solved).as_json(),
    }
    for mode in MODES:
        mine = [one[mode] for one in plans]
        times_s = sorted(one.response_s for one in mine if one.response_s >= 0.0)
        found[mode] = {
            "exact": Share.among(one.exact for one in mine).as_json(),
            "ended": Share.among(one.ended for one in mine).as_json(),
            "helped": Share.among(one.helped for one in mine).as_json(),
            "cloud_tokens": sum(one.cloud_tokens for one in mine) / len(mine),
            "median_response_s": times_s[len(times_s) // 2] if times_s else None,
        }
    return found


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Measure live what a cloud's steps add.")
    parser.add_argument("small", type=Path)
    parser.add_argument("--large", type=Path, default=resource(EMBEDDED_MODEL))
    parser.add_argument("--sketcher", type=Path,
                        help="a sketching model as the cloud, in place of the large one's steps"
                        )  # fmt: skip
    parser.add_argument("--count", type=int, default=20, help="test tasks of each family")
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--robots", type=int, default=4, help="robots at each server")
    parser.add_argument("--share", type=float, default=1.0,
                        help="seconds of a call over the predicted ones")  # fmt: skip
    parser.add_argument("--json", type=Path, help="write the shares to this file")
    a = parser.parse_args()
    samples = [
        one for family in corpus.STEP_FAMILIES for one in test_samples(family, a.count, a.seed)
    ]
    random.Random(a.seed).shuffle(samples)
    found = summary(
        measure(a.small, cloud_command(a.large, a.sketcher), samples, a.robots, a.share)
    )
    for mode in MODES:
        row = found[mode]
        print(
            f"{mode}: {_words(row['exact'])} exact, {_words(row['helped'])} with steps, "
            f"{row['cloud_tokens']:.1f} cloud tokens a task, first segment after "
            f"{row['median_response_s']:.2f} s in the median"
        )
    print(
        f"of {found['repaired']['tasks']} tasks that the small model alone fails, help made"
        f" {_words(found['repaired'])} exact; it spoiled {_words(found['spoiled'])} of the others"
    )
    if a.json:
        write_json(a.json, {"tasks": len(samples), "seed": a.seed, **found})


def _words(share: dict[str, Any]) -> str:
    if share["share"] is None:
        return "none"
    low, high = share["interval"]
    return f"{share['share']:.1%} ({low:.0%} to {high:.0%})"


if __name__ == "__main__":
    main()
