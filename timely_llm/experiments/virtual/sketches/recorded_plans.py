"""Plans that real models made of held-out tasks, with the steps of a sketch and without."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from timely_llm.experiments.contract import ExperimentError
from timely_llm.resources import resource

RECORDED = "config/traces/helped_plans.jsonl"
"""The resource with the plans; `python -m tools.tiny_planner.evaluate_help --plans` wrote it."""

_TOKEN = re.compile(r"[A-Za-z_]+|\d+|[^\sA-Za-z_\d]+|\s+")


@dataclass(frozen=True)
class HeldOutPlan:
    """One task, and what the models answered to it.

    Attributes:
        family: of tasks.
        robot: name of the skill set.
        task: what the models were asked.
        right: the one right plan.
        small: the small model's plan.
        sketch: the steps of the task, as a cloud says them.
        guided: the small model's plan of the task with the steps of the sketch; empty: a server
            would not take the steps.
        large: the large model's plan.
    """

    family: str
    robot: str
    task: str
    right: str
    small: str
    sketch: str
    guided: str
    large: str


def tokens_of(text: str) -> list[str]:
    """Return the words, numbers, marks and spaces of a text: a token each."""
    return _TOKEN.findall(text)


def recorded_plans(path: Path | None = None) -> list[HeldOutPlan]:
    """Return recorded plans.

    Args:
        path: of their file; None: those that come with the package.

    Raises:
        ExperimentError: a line is no recorded plan.
    """
    path = path or resource(RECORDED)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        return [HeldOutPlan(**json.loads(line)) for line in lines]
    except (ValueError, TypeError) as error:
        raise ExperimentError(f"{path} has a line that is no recorded plan: {error}") from error


def write_plans(path: Path, plans: Iterable[HeldOutPlan]) -> None:
    """Write recorded plans to a file, a line each."""
    lines = [json.dumps(asdict(plan)) + "\n" for plan in plans]
    path.write_text("".join(lines), encoding="utf-8")
