"""The check of whole plans that corpus and evaluation share."""

from __future__ import annotations

from timely_llm.core.errors import PlanError
from timely_llm.skills.minispec.checker import MiniSpecChecker, read_on
from timely_llm.skills.skill_set import SkillSet


def plan_problem(plan: str, skills: SkillSet) -> str | None:
    """Return what is wrong with a plan's grammar or arguments, or None if it is fine.

    Stricter than a robot: a plan must end with a top-level return and nothing after it.
    """
    checker = MiniSpecChecker(skills)
    try:
        pieces = read_on(checker, plan)
        checker.finish()
    except PlanError as error:
        return str(error)
    if not checker.done:
        return "the plan does not end with a return"
    if "".join(piece.text for piece in pieces) != plan:
        return "the plan goes on after its return"
    return None
