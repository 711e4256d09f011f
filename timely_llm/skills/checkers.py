"""Which stop checker reads the texts of a skill set."""

from __future__ import annotations

from typing import assert_never

from timely_llm.skills.execution_time import ExecutionTimes
from timely_llm.skills.minispec import MiniSpecChecker, read_on
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
    match skill_set.language:
        case "minispec":
            return MiniSpecChecker(skill_set, times)
        case "regex":
            return RuleChecker(skill_set, times)
        case "sentence":
            return SentenceChecker(skill_set.words_per_s)
        case "paragraph":
            return ParagraphChecker(skill_set.words_per_s)
        case other:
            assert_never(other)


class SegmentReader:
    """Reads a plan's segments as they come to a robot, in order.

    Blocks of plans in the package's own language reach over segments. In the other languages each
    segment stands for itself, and its end is one, whatever could have followed it.

    Args:
        skill_set: the robot's skills.

    Raises:
        PlanError: from its methods, if a segment's text is no plan.
    """

    def __init__(self, skill_set: SkillSet) -> None:
        self._skill_set = skill_set
        self._plan = make_checker(skill_set) if skill_set.language == "minispec" else None

    def read(self, text: str) -> list[Piece]:
        """Return what a segment's text means; of one with a fault, nothing."""
        if self._plan is not None:
            pieces = read_on(self._plan, text)
            self._plan.feed("")  # raises what is wrong after the pieces
            return pieces
        checker = make_checker(self._skill_set)
        pieces = read_on(checker, text)
        last, _ = checker.finish()
        return [*pieces, last] if last else pieces

    def read_more(self, text: str) -> list[Piece]:
        """Return what words mean that were added to a segment after it was read."""
        return [] if self._plan is None else self.read(text)

    def close(self) -> Piece | None:
        """Return the last piece of the plan, if one was open."""
        return None if self._plan is None else self._plan.finish()[0]


def cut(skill_set: SkillSet, text: str) -> list[Piece | str]:
    """Return the pieces of a whole text in the skill set's language, and outside words as texts.

    Outside words are what follows a blocking call in the skill set's `answer_format`, as in the
    examples of a prompt.

    Raises:
        PlanError: it is no text of the language, or breaks a skill's bounds.
    """
    checker = make_checker(skill_set)
    found: list[Piece | str] = []
    while text:
        found += checker.feed(text)
        text = checker.rest
        if text and (words := skill_set.outside_words(text)):
            found.append(words)
            text = text[len(words) :]
    last, _ = checker.finish()
    return [*found, last] if last else found
