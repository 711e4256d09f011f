"""Measure whether a model's steps help a smaller one to plan tasks that neither has seen.

    PYTHONPATH=. python -m tools.tiny_planner.evaluate_help EDGE SKETCHER --large LARGE

For each family: the share of exactly right plans of the small model alone, of the small model with
the steps that the other one wrote, and of a large model alone. A server would refuse steps of which
the task does not speak, and a list of one step; the small model's own plan stands then.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from timely_llm.progressive.plan import grounded, guided_task
from timely_llm.progressive.sketch_reader import SketchReader
from timely_llm.resources import EMBEDDED_MODEL, resource
from timely_llm.skills.skill import Skill
from timely_llm.skills.skill_set import load_skill_set
from tools.tiny_planner import corpus
from tools.tiny_planner.batches import SKILL_SETS, system_texts
from tools.tiny_planner.evaluate import test_samples
from tools.tiny_planner.planner import Planner
from tools.tiny_planner.plans import plan_problem


@dataclass(frozen=True)
class Models:
    """The models of a comparison."""

    small: Planner
    sketcher: Planner
    large: Planner


@dataclass(frozen=True)
class Outcome:
    """How one task went: what is right, and what the help cost."""

    alone: bool
    helped: bool
    large: bool
    valid_alone: bool
    valid_helped: bool
    taken: bool
    cloud_tokens: int


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


def compare(models: Models, samples: Sequence[corpus.Sample]) -> list[Outcome]:
    """Return the outcome of each task of one robot."""
    robot, users = samples[0].robot, [one.user for one in samples]
    systems, skills = system_texts(), load_skill_set(SKILL_SETS[samples[0].robot])
    sketches = models.sketcher.answers(users, systems[f"{robot} {corpus.SKETCH}"])
    can = skills.skills.values()
    steps = [usable_steps(text, user, can) for text, user in zip(sketches, users, strict=True)]
    guided = [guided_task(user, found) for user, found in zip(users, steps, strict=True)]
    alone = models.small.answers(users, systems[robot])
    helped = models.small.answers(guided, systems[robot])
    large = models.large.answers(users, systems[robot])
    return [
        Outcome(
            alone[i] == one.answer, helped[i] == one.answer, large[i] == one.answer,
            plan_problem(alone[i], skills) is None, plan_problem(helped[i], skills) is None,
            bool(steps[i]), models.sketcher.count(sketches[i]),
        )
        for i, one in enumerate(samples)
    ]  # fmt: skip


def table_row(name: str, outcomes: Sequence[Outcome]) -> str:
    """Return a Markdown row of shares, and of the cloud's tokens for each task."""
    failed = [one for one in outcomes if not one.alone]
    cells = [
        _share(one.alone for one in outcomes), _share(one.helped for one in outcomes),
        _share(one.large for one in outcomes), _share(one.valid_alone for one in outcomes),
        _share(one.valid_helped for one in outcomes), str(len(failed)),
        _share(one.helped for one in failed), _share(one.taken for one in outcomes),
        f"{sum(one.cloud_tokens for one in outcomes) / len(outcomes):.1f}",
    ]  # fmt: skip
    return f"| {name} | {len(outcomes)} | {' | '.join(cells)} |"


def _share(values: Iterable[bool]) -> str:
    found = list(values)
    return f"{sum(found) / len(found):.1%}" if found else "none"


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Measure what steps of a sketch add to a plan.")
    parser.add_argument("small", type=Path)
    parser.add_argument("sketcher", type=Path)
    parser.add_argument("--large", type=Path, default=resource(EMBEDDED_MODEL))
    parser.add_argument("--count", type=int, default=50, help="test tasks of each family")
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    a = parser.parse_args()
    torch.set_num_threads(a.threads)
    models = Models(*(Planner(folder, 96) for folder in (a.small, a.sketcher, a.large)))
    print(
        "| family | tasks | small | small with steps | large | valid, small | valid, with steps |"
        " failed by small | of these right with steps | steps taken | cloud tokens |\n"
        f"|{'---|' * 11}"
    )
    every: list[Outcome] = []
    for family in corpus.STEP_FAMILIES:
        outcomes = compare(models, test_samples(family, a.count, a.seed))
        every += outcomes
        print(table_row(family, outcomes), flush=True)
    print(table_row("**all**", every))


if __name__ == "__main__":
    main()
