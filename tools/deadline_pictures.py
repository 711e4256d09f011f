"""The two pictures of docs/deadline.md: `python -m tools.deadline_pictures [FOLDER]`.

The first one asks the policy's own functions how many plans of a composed moment share a step. The
second one lets the policy serve a composed workload in virtual time.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from timely_llm.core.errors import TimelyError
from timely_llm.core.events.log import MemoryEventLog
from timely_llm.core.generation import PlanGeneration
from timely_llm.core.request import PlanRequest
from timely_llm.core.slo import REAL_TIME, TEXT, VOICE
from timely_llm.core.time_utility import NORMAL, URGENT, TimeUtility
from timely_llm.engines.simulated import PROFILES
from timely_llm.experiments.results.timeline import timeline
from timely_llm.experiments.virtual.simulation import SimulationSettings, simulate
from timely_llm.policies.deadline.policy import Deadline
from timely_llm.policies.deadline.wave import Deliverable, by_loss, wave_size
from timely_llm.policies.lengths import outlook
from timely_llm.policies.step_time import StepTime
from timely_llm.report.document_timeline import document_timeline
from timely_llm.report.png import write_charts, write_timeline
from timely_llm.report.series import Chart, Point, Series
from timely_llm.traces.model import Conversation, Job, SkillTime, Trace

FOLDER = Path(__file__).resolve().parents[1] / "docs"
PLANS, ENGINE = "deadline_plans.png", "deadline_engine.png"
PROFILE = "rtx4060ti-chatglm2-6b"
NOW_S = 10.0
WINDOW_S = (0.0, 6.0)
TOKENS, PROMPT_TOKENS = 8, 110
WAITED_S: Sequence[tuple[str, TimeUtility, float]] = (
    ("urgent, new", URGENT, 0.0),
    ("urgent, 0.1 s", URGENT, 0.1),
    ("urgent, too late", URGENT, 0.6),
    ("normal, 0.5 s", NORMAL, 0.5),
    ("normal, 0.4 s", NORMAL, 0.4),
    ("normal, 0.2 s", NORMAL, 0.2),
    ("normal, 0.1 s", NORMAL, 0.1),
    ("normal, new", NORMAL, 0.0),
)
"""Requests for plans at one moment: name, time utility, and seconds since they were asked."""
SKILL_TIMES = (SkillTime("tc", 1.5), SkillTime("mf", 1.0), SkillTime("tp", 0.5))


def line_of_plans() -> list[Deliverable]:
    """Return the first segments of the requests, in the policy's order."""
    line = []
    for name, utility, waited_s in WAITED_S:
        request = PlanRequest(name, name, "drone", "Find the cup.", utility)
        plan = PlanGeneration(name, request, NOW_S - waited_s, PROMPT_TOKENS, PROMPT_TOKENS)
        prompt_s = step_time().coefficients[2] * (PROMPT_TOKENS - 1)
        tokens = outlook((TOKENS, 1.0))
        line.append(Deliverable(plan, tokens, prompt_s, Deadline.kappa, Deadline.urgent))
    return by_loss(line, NOW_S, step_time())


def total_worth(line: Sequence[Deliverable], number: int) -> float:
    """Return the expected worth of all plans of a line if its first `number` share the step."""
    times = step_time()
    first, later = line[:number], line[number:]
    prompts_s = sum(one.prompt_s for one in first)
    wave_s = max(one.tokens for one in first) * times.predict_s(number)
    after_s = NOW_S + sum(one.prompt_s for one in line) + wave_s
    worth = [one.expected(NOW_S + prompts_s, times.predict_s(number)) for one in first]
    worth += [one.expected(after_s, times.predict_s(len(later))) for one in later]
    return sum(worth)


def step_time() -> StepTime:
    """Return the step times of the hardware in both pictures."""
    return SimulationSettings(profile=PROFILES[PROFILE]).step_time()


def plans_charts() -> list[Chart]:
    """Return what each plan loses if it runs last, and the total worth over the number taken."""
    line = line_of_plans()
    best = wave_size(line, NOW_S, step_time())
    names = [one.generation.key for one in line]
    losses = [one.density for one in line]
    numbers = range(1, len(line) + 1)
    worths = [total_worth(line, number) for number in numbers]
    return [
        _chart("Loss per engine second", "plan and its waiting time", names, losses, range(best)),
        _chart("Total worth", "plans in the step", [*map(str, numbers)], worths, [best - 1]),
    ]


def _chart(
    title: str, x_title: str, places: Sequence[str], values: Sequence[float], taken: Sequence[int]
) -> Chart:
    points = [Point(place, value, math.inf) for place, value in enumerate(values)]
    series = (
        Series("taken", tuple(point for point in points if point.place in taken)),
        Series("not taken", tuple(point for point in points if point.place not in taken)),
    )
    return Chart(title, title, x_title, tuple(places), series)


def workload() -> Trace:
    """Return people in conversation, one real-time request, and robots that ask in between."""
    talks = [
        Conversation(
            f"{level.name} {number}", 0.2 * number, f"{level.name} {number}", 40, 40,
            level.slo.ttft_s, level.slo.tpot_s, level.slo.deadline_s, level.weight,
        )
        for level, numbers in ((VOICE, range(1, 3)), (TEXT, range(3, 6)))
        for number in numbers
    ]  # fmt: skip
    talks.append(
        Conversation("machine 1", 2.0, "machine 1", 40, 16, 1.0, REAL_TIME.slo.tpot_s,
                     REAL_TIME.slo.deadline_s, REAL_TIME.weight)
    )  # fmt: skip
    jobs = [
        Job(f"robot {number}", at_s, f"robot {number}", "find", "drone", "Find the cup.", utility,
            skill_times=SKILL_TIMES, plan="tc(180);mf(120);tp();->True;", segment_tokens=(8, 8, 8))
        for number, at_s, utility in ((1, 2.5, URGENT), (2, 2.5, NORMAL), (3, 2.6, NORMAL))
    ]  # fmt: skip
    return Trace("shared", "tools.deadline_pictures", tuple(jobs), tuple(talks))


def write(folder: Path) -> list[Path]:
    """Write both pictures and return their paths.

    Raises:
        OutputFileError: one cannot be written.
    """
    paths = [folder / PLANS, folder / ENGINE]
    write_charts(plans_charts(), paths[0])
    log = MemoryEventLog()
    run = simulate(
        workload(), Deadline(), SimulationSettings(profile=PROFILES[PROFILE], skip=0), event_log=log
    )
    title = f"Robots, people and a machine at one engine ({PROFILE})"
    write_timeline(document_timeline(timeline(title, run, log.events, WINDOW_S)), paths[1])
    return paths


def main(words: Sequence[str] | None = None) -> int:
    """Write the pictures and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.deadline_pictures", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("folder", nargs="?", type=Path, metavar="FOLDER", default=FOLDER)
    try:
        for path in write(parser.parse_args(words).folder):
            print(f"Wrote {path}")
    except TimelyError as error:
        print(f"deadline_pictures: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
