"""Measure whether a model's steps help a smaller one to plan tasks that neither has seen.

    PYTHONPATH=. python -m tools.tiny_planner.evaluate_help SMALL SKETCHER --large LARGE
    PYTHONPATH=. python -m tools.tiny_planner.evaluate_help SMALL --large LARGE

The small model plans alone, and with the steps that the sketcher wrote; the large one plans alone.
Without a sketcher, a sketch is the large model's plan, right or wrong, in the words of
`step_words.py`: what a model would write that sketches as well as it plans.
A server would refuse steps of which the task does not speak, and a list of one step; the small
model's own plan stands then. The table has a row for each family: shares of exactly right plans and
of valid ones, and tokens of the sketches. `--json` writes all shares with their 95 % intervals, and
`--plans` all tasks with their plans and sketches.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from timely_llm.core.output_file import write_json
from timely_llm.experiments.virtual.sketches.recorded_plans import HeldOutPlan, write_plans
from timely_llm.progressive.grounding import grounded
from timely_llm.progressive.plan import guided_task
from timely_llm.progressive.sketch import SketchReader
from timely_llm.resources import EMBEDDED_MODEL, resource
from timely_llm.skills.skill import Skill
from timely_llm.skills.skill_set import SkillSet, load_skill_set
from tools.tiny_planner import corpus
from tools.tiny_planner.answers import outside_words, own_words
from tools.tiny_planner.batches import SKILL_SETS, system_texts
from tools.tiny_planner.evaluate import prove_disjoint, test_samples
from tools.tiny_planner.planner import Planner
from tools.tiny_planner.plans import plan_problem
from tools.tiny_planner.record import RECORD

SURE = 1.959964
"""Standard deviations of a normal distribution to each side that hold 95 % of it."""


@dataclass(frozen=True)
class Models:
    """The models of a comparison; without a sketcher the plans of the large one are sketches."""

    small: Planner
    sketcher: Planner | None
    large: Planner

    def sketches(self, samples: Sequence[corpus.Sample], plans: Sequence[str]) -> list[str]:
        """Return a sketch of each task, given the large model's plans; empty: there is none."""
        if self.sketcher is None:
            made = zip(samples, plans, strict=True)
            said = [corpus.with_steps(replace(one, answer=p), corpus.SKETCH) for one, p in made]
            return [one.answer if one else "" for one in said]
        asks = system_texts()[f"{samples[0].robot} {corpus.SKETCH}"]
        return self.sketcher.answers([one.user for one in samples], asks)


@dataclass(frozen=True)
class Outcome:
    """How one task went: what is right, what is valid, and what the help cost.

    Attributes:
        alone, helped, large: exactly right: the small model's plan, its plan with the steps that a
            server would take, and the large model's plan.
        valid_alone, valid_helped, valid_large: grammar and arguments are right.
        taken: a server takes the steps.
        cloud_tokens: of the sketch.
    """

    alone: bool
    helped: bool
    large: bool
    valid_alone: bool
    valid_helped: bool
    valid_large: bool
    taken: bool
    cloud_tokens: int


@dataclass(frozen=True)
class Share:
    """A share of tasks.

    Attributes:
        count: tasks with the property.
        of: all tasks.
    """

    count: int
    of: int

    @classmethod
    def among(cls, values: Iterable[bool]) -> Share:
        """Return the share of true values."""
        found = list(values)
        return cls(sum(found), len(found))

    def __str__(self) -> str:
        return f"{self.count / self.of:.1%}" if self.of else "none"

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval (Wilson 1927), from 0 to 1; of no tasks it is all of that."""
        if not self.of:
            return 0.0, 1.0
        share, spread = self.count / self.of, SURE**2 / self.of
        middle = share + spread / 2
        half = SURE * math.sqrt(share * (1.0 - share) / self.of + spread / (4 * self.of))
        low, high = (middle - half) / (1.0 + spread), (middle + half) / (1.0 + spread)
        return max(low, 0.0), min(high, 1.0)

    def as_json(self) -> dict[str, Any]:
        """Return the share, the number of tasks, and the interval."""
        share = self.count / self.of if self.of else None
        return {"share": share, "tasks": self.of, "interval": list(self.interval)}


def usable_steps(text: str, task: str, skills: Iterable[Skill] = ()) -> list[str]:
    """Return the steps of a sketch, or none where a server would not take them.

    Args:
        text: the sketch.
        task: of which it is one.
        skills: of the robot.
    """
    reader = SketchReader()
    steps = [part.text for part in (*reader.feed(text), *reader.end())]
    if len(steps) < 2 or not all(grounded(step, task, skills) for step in steps):
        return []
    return steps


def plans_of(models: Models, samples: Sequence[corpus.Sample]) -> list[HeldOutPlan]:
    """Return what the models answer to tasks of one robot."""
    robot, users = samples[0].robot, [one.user for one in samples]
    seen = [outside_words(one.answer) for one in samples]
    systems, can = system_texts(), load_skill_set(SKILL_SETS[robot]).skills.values()
    large = models.large.answers(users, systems[robot], seen)
    sketches = models.sketches(samples, large)
    steps = [usable_steps(text, user, can) for text, user in zip(sketches, users, strict=True)]
    guided = [guided_task(user, found) for user, found in zip(users, steps, strict=True)]
    alone = models.small.answers(users, systems[robot], seen)
    helped = models.small.answers(guided, systems[robot], seen)
    return [
        HeldOutPlan(
            one.family, robot, one.user, one.answer, alone[i], sketches[i],
            helped[i] if steps[i] else "", large[i],
        )
        for i, one in enumerate(samples)
    ]  # fmt: skip


def outcome_of(plan: HeldOutPlan, skills: SkillSet, cloud_tokens: int) -> Outcome:
    """Return what is right in recorded plans of one task."""
    plans = (plan.small, plan.guided or plan.small, plan.large)
    alone, helped, large = (text == plan.right for text in plans)
    valid = [plan_problem(own_words(text), skills) is None for text in plans]
    return Outcome(
        alone, helped, large, valid[0], valid[1], valid[2], bool(plan.guided), cloud_tokens
    )


def shares(outcomes: Sequence[Outcome]) -> dict[str, Share]:
    """Return the shares of some tasks by name."""
    names = ("alone", "helped", "large", "valid_alone", "valid_helped", "valid_large", "taken")
    found = {name: Share.among(getattr(one, name) for one in outcomes) for name in names}
    failed = [one for one in outcomes if not one.alone]
    solved = [one for one in outcomes if one.alone]
    found["repaired"] = Share.among(one.helped for one in failed)
    found["spoiled"] = Share.among(not one.helped for one in solved)
    return found


def tokens_a_task(outcomes: Sequence[Outcome]) -> float:
    """Return the mean tokens of a sketch."""
    return sum(one.cloud_tokens for one in outcomes) / len(outcomes)


HEADER = (
    "| family | tasks | small | small with steps | large | valid, small | valid, with steps |"
    " valid, large | failed by small | repaired by steps | spoiled by steps | steps taken |"
    f" cloud tokens |\n|{'---|' * 13}"
)


def table_row(name: str, outcomes: Sequence[Outcome]) -> str:
    """Return a Markdown row of shares, and of the cloud's tokens for each task."""
    found = shares(outcomes)
    first = ("alone", "helped", "large", "valid_alone", "valid_helped", "valid_large")
    cells = [
        *(str(found[one]) for one in first), str(found["repaired"].of),
        *(str(found[one]) for one in ("repaired", "spoiled", "taken")),
        f"{tokens_a_task(outcomes):.1f}",
    ]  # fmt: skip
    return f"| {name} | {len(outcomes)} | {' | '.join(cells)} |"


def as_json(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return the shares with their intervals, and the cloud's tokens for each task."""
    found = {name: share.as_json() for name, share in shares(outcomes).items()}
    return {**found, "cloud_tokens": tokens_a_task(outcomes)}


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Measure what steps of a sketch add to a plan.")
    parser.add_argument("small", type=Path)
    parser.add_argument("sketcher", type=Path, nargs="?",
                        help="a sketching model; none: the large one's plans in words")  # fmt: skip
    parser.add_argument("--large", type=Path, default=resource(EMBEDDED_MODEL),
                        help="a planner; the sketcher may have forgotten to plan")  # fmt: skip
    parser.add_argument("--count", type=int, default=50, help="test tasks of each family")
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--family", action="append", choices=list(corpus.FAMILIES),
                        help="only this family; can be repeated")  # fmt: skip
    parser.add_argument("--no-proof", action="store_true", help="do not draw the training again")
    parser.add_argument("--json", type=Path, help="write the shares to this file")
    parser.add_argument("--plans", type=Path, help="write the tasks and plans to this file")
    parser.add_argument("--threads", type=int, default=1)
    a = parser.parse_args()
    torch.set_num_threads(a.threads)
    folders = tuple(one for one in (a.small, a.sketcher, a.large) if one)
    families = a.family or list(corpus.STEP_FAMILIES)
    tests = {family: test_samples(family, a.count, a.seed) for family in families}
    if not a.no_proof:
        every = [one for group in tests.values() for one in group]
        for folder in dict.fromkeys(folders):
            record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
            print(f"{folder.name}: {prove_disjoint(record, every)}\n", flush=True)

    sketcher = Planner(a.sketcher, 96) if a.sketcher else None
    models = Models(Planner(a.small, 96), sketcher, Planner(a.large, 96))
    print(HEADER)
    outcomes: dict[str, list[Outcome]] = {}
    plans: list[HeldOutPlan] = []
    for family, samples in tests.items():
        made = plans_of(models, samples)
        skills, count = load_skill_set(SKILL_SETS[samples[0].robot]), models.large.count
        outcomes[family] = [outcome_of(one, skills, count(one.sketch)) for one in made]
        plans += made
        print(table_row(family, outcomes[family]), flush=True)
    total = [one for group in outcomes.values() for one in group]
    print(table_row("**all**", total))
    if a.plans:
        write_plans(a.plans, plans)
    if a.json:
        named = {"small": a.small, "sketcher": a.sketcher, "large": a.large}
        document = {
            "models": {name: folder and folder.name for name, folder in named.items()},
            "count": a.count,
            "seed": a.seed,
            "all": as_json(total),
            "families": {family: as_json(found) for family, found in outcomes.items()},
        }
        write_json(a.json, document)


if __name__ == "__main__":
    main()
