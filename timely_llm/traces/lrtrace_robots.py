"""The robots of LRTrace: their skill sets, and what their plans are like."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from timely_llm.resources import resource
from timely_llm.skills.skill_set import SkillSet, load_skill_set
from timely_llm.traces.model import TraceError, printable

TYPES = {"drone": "drone", "robotarm": "arm"}
"""LRTrace's `robot_type` -> the name of the skill set that comes with the package."""

OTHER_NAMES = {"take": "pick", "drop": "place"}
"""What LRTrace's arms (FLTRNN) call skills -> what the skill set `arm` calls them."""

MEASURED: Mapping[int, tuple[tuple[str, ...], tuple[int, ...]]] = {
    0: (("s", "g"), (7, 4, 2)),
    1: (("iv", "iv", "l", "l"), (6, 5, 7, 8, 4)),
    2: (("mu", "iv", "tp"), (4, 8, 3, 4)),
    3: (("md", "iv", "g"), (4, 8, 5, 4)),
    4: (("s", "g"), (9, 6, 5)),
    5: (("mr", "mf"), (4, 1)),
    6: (("mu", "ml"), (4, 1)),
    7: (("d", "mf"), (8, 5, 5)),
}
"""Published tasks of drones -> what is executed, and the tokens of each segment of Llama 3 8B."""

CALL_TOKENS = {"move_to": 14}
"""Tokens of a call in the words of LRTrace's arms, as `move_to(object_x('cup'), object_y('cup'));`.

An estimate; so are the 5 tokens of any other call.
"""

OTHER_CALL_TOKENS, END_TOKENS = 5, 2


@dataclass(frozen=True)
class Executed:
    """What a robot executed for a job.

    Attributes:
        robot_type: as LRTrace says it, empty if it does not.
        task: LRTrace's number of the task.
        skills: names without brackets, in order.
    """

    robot_type: str
    task: int
    skills: tuple[str, ...]


class Robots:
    """The skill sets that a trace's robots can be of.

    Args:
        given: those that the user chose; none: those that come with the package.
    """

    def __init__(self, given: Sequence[SkillSet] = ()) -> None:
        files = () if given else sorted(resource("config/skill_sets").glob("*.yaml"))
        self._chosen = bool(given)
        self._sets = {made.name: made for made in given or map(load_skill_set, files)}

    def skill_set(self, executed: Executed) -> str:
        """Return the name of the skill set that a job is for.

        Raises:
            TraceError: none has all of its skills, or several have.
        """
        named = TYPES.get(executed.robot_type, executed.robot_type)
        if named in self._sets:
            self._check(named, executed)
            return named
        sets = ", ".join(self._sets)
        if named and not self._chosen:
            raise TraceError(
                f"its robot_type is {_clipped(named)!r}, and the skill sets here are {sets}:"
                " choose one with --skill-set"
            )
        if len(self._sets) == 1:
            self._check(sets, executed)
        fitting = [name for name in self._sets if not self._lacking(name, executed)]
        if len(fitting) == 1:
            return fitting[0]
        skills = _listed(dict.fromkeys(executed.skills))
        if fitting:
            raise TraceError(
                f"the skill sets {', '.join(fitting)} all have its skills {skills}: choose one with"
                " --skill-set"
            )
        raise TraceError(
            f"it executes {skills}, and none of the skill sets {sets} has all of them: choose"
            " another with --skill-set"
        )

    def skills(self, name: str, executed: Executed) -> tuple[str, ...]:
        """Return what a skill set calls the skills of a job."""
        return tuple(self._own_name(name, skill) for skill in executed.skills)

    def _check(self, name: str, executed: Executed) -> None:
        lacking = list(self._lacking(name, executed))
        if lacking:
            raise TraceError(
                f"it executes {_listed(lacking)}, and the skill set {name!r} has only"
                f" {_listed(self._sets[name].skills)}"
            )

    def _lacking(self, name: str, executed: Executed) -> list[str]:
        known = self._sets[name].skills
        skills = dict.fromkeys(executed.skills)
        return [skill for skill in skills if self._own_name(name, skill) not in known]

    def _own_name(self, name: str, skill: str) -> str:
        known = self._sets[name].skills
        other = OTHER_NAMES.get(skill, skill)
        return other if skill not in known and other in known else skill


def segment_tokens(skill_set: str, executed: Executed) -> tuple[tuple[int, ...], bool]:
    """Return the tokens of each segment of the job's plan, and whether they were measured.

    Where they were not, each call is a segment, and one more ends the plan.
    """
    skills, measured = MEASURED.get(executed.task, ((), ()))
    if skill_set == "drone" and skills == executed.skills:
        return measured, True
    calls = (CALL_TOKENS.get(skill, OTHER_CALL_TOKENS) for skill in executed.skills)
    return (*calls, END_TOKENS), False


def _listed(names: Collection[str]) -> str:
    return ", ".join(_shown(names))


def _shown(names: Collection[str], most: int = 20) -> Iterator[str]:
    for count, name in enumerate(names):
        if count == most:
            yield f"and {len(names) - most} more"
            return
        yield _clipped(name)


def _clipped(name: str) -> str:
    return printable(name[:40])
