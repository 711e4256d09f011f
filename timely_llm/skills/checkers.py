"""Which stop checker reads the texts of a skill set."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import assert_never

from timely_llm.skills.execution_time import ExecutionTimes
from timely_llm.skills.minispec.checker import MiniSpecChecker, read_on
from timely_llm.skills.prose import ParagraphChecker, SentenceChecker
from timely_llm.skills.rule_checker import RuleChecker
from timely_llm.skills.skill_set import SkillSet
from timely_llm.skills.stop_checker import Piece, StopChecker


def make_checker(skill_set: SkillSet, times: ExecutionTimes | None = None) -> StopChecker:
    """Return a new stop checker for one text in the skill set's language.

    Args:
        skill_set: the robot's skills.
        times: predicts how long calls take; by default as the skill set says.
    """
    return checker_maker(skill_set, times)()


def checker_maker(
    skill_set: SkillSet, times: ExecutionTimes | None = None
) -> Callable[[], StopChecker]:
    """Return what makes a new stop checker for each text; see `make_checker`."""
    match skill_set.language:
        case "minispec":
            return partial(MiniSpecChecker, skill_set, times)
        case "regex":
            return partial(RuleChecker, skill_set, times)
        case "sentence":
            return partial(SentenceChecker, skill_set.words_per_s)
        case "paragraph":
            return partial(ParagraphChecker, skill_set.words_per_s)
        case other:
            assert_never(other)


class SegmentReader:
    """Reads a plan's segments as they come to a robot, in order.

    A block of MiniSpec may reach over several segments. In the other languages each segment is read
    alone, and its end is the end of a statement.

    Args:
        skill_set: the robot's skills.

    Raises:
        PlanError: from its methods, if a segment's text is no plan.
    """

    def __init__(self, skill_set: SkillSet) -> None:
        self._skill_set = skill_set
        self._plan = make_checker(skill_set) if skill_set.language == "minispec" else None

    def read(self, text: str) -> list[Piece]:
        """Return the pieces of a segment's text; a text with a fault has none."""
        if self._plan is not None:
            pieces = read_on(self._plan, text)
            self._plan.feed("")  # raises what is wrong after the pieces
            return pieces
        checker = make_checker(self._skill_set)
        pieces = read_on(checker, text)
        last, _ = checker.finish()
        return [*pieces, last] if last else pieces

    def read_more(self, text: str) -> list[Piece]:
        """Return the pieces of a text that was added to a segment after it was read."""
        return [] if self._plan is None else self.read(text)

    def close(self) -> Piece | None:
        """Return the last piece of the plan, if one was open."""
        return None if self._plan is None else self._plan.finish()[0]


def cut(skill_set: SkillSet, text: str) -> list[Piece | str]:
    """Return the pieces of a text in the skill set's language, and its tool output as texts.

    Tool output follows a blocking call in the skill set's `answer_format`, as in the examples of a
    prompt.

    Args:
        skill_set: the robot's skills.
        text: a whole text.

    Raises:
        PlanError: it is no text of the language, or breaks a skill's bounds.
    """
    checker = make_checker(skill_set)
    found = _pieces(skill_set, checker, text)
    last, _ = checker.finish()
    return [*found, last] if last else found


def cut_beginning(skill_set: SkillSet, text: str) -> list[Piece | str]:
    """Return the complete pieces, as `cut` does, of a text that may be incomplete.

    Raises:
        PlanError: no text of the language begins so.
    """
    return _pieces(skill_set, make_checker(skill_set), text)


def _pieces(skill_set: SkillSet, checker: StopChecker, text: str) -> list[Piece | str]:
    found: list[Piece | str] = []
    while text:
        found += checker.feed(text)
        text = checker.rest
        if text and (words := skill_set.tool_output(text)):
            found.append(words)
            text = text[len(words) :]
    return found
