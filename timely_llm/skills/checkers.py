"""Which stop checker reads the texts of a skill set, and which skills those texts can call."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import assert_never

import regex

from timely_llm.core.text import listed
from timely_llm.skills.execution_time import ExecutionTimes
from timely_llm.skills.minispec.checker import MiniSpecChecker, read_on
from timely_llm.skills.prose import ParagraphChecker, SentenceChecker
from timely_llm.skills.rule_checker import RuleChecker
from timely_llm.skills.rules import FEED_S, Rule, set_end
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


_FLAGS = regex.compile(r"\(\?[aimsu]+\)")
_LOOKS_AROUND = ("(?=", "(?!", "(?<=", "(?<!", "(?P=", "(?(", "\\b", "\\B", "^", "$")
"""What a group may have that means something else where the group stands alone."""


def calls_problem(skill_set: SkillSet) -> str | None:
    """Return why no plan can call any skill of a skill set; None if one can, or it has no skills.

    A rule that cannot be judged counts as one that may call every skill.
    """
    never = uncalled(skill_set)
    if not skill_set.skills or len(never) < len(skill_set.skills):
        return None
    if skill_set.language != "regex":
        return None if skill_set.language == "minispec" else _prose(skill_set)
    if not any(rule.calls_skills for rule in skill_set.compiled_rules):
        return (
            f"no rule has the group skill, so no plan calls {listed(list(never))}: write"
            " (?P<skill>...) around the skill's name in a rule, and (?P<arguments>...) around its"
            " arguments"
        )
    return f"no plan can call a skill: {next(iter(never.values()))}"


def uncalled(skill_set: SkillSet) -> dict[str, str]:
    """Return the skills that no plan can call, each with a sentence that says why.

    A blocking skill among them never blocks.
    """
    if skill_set.language == "minispec":
        return {}
    found = {}
    for name, skill in skill_set.skills.items():
        if skill_set.language == "regex":
            why = _uncalled(skill_set, name)
        else:
            why = f"texts of language {skill_set.language} have no calls"
        if why is not None:
            blocks = ", so it never blocks" if skill.blocking else ""
            found[name] = f"{name} is never called{blocks}: {why}"
    return found


def _prose(skill_set: SkillSet) -> str:
    return (
        f"texts of language {skill_set.language} have no calls, so none of"
        f" {listed(list(skill_set.skills))} is ever called: leave skills out, or use language"
        " minispec or regex"
    )


def _uncalled(skill_set: SkillSet, name: str) -> str | None:
    """Return why no rule calls a skill; None if one may."""
    rules = [rule for rule in skill_set.compiled_rules if _may_name(rule, name)]
    if not rules:
        return "no rule's group skill matches its name"
    if skill_set.skills[name].arguments and not any("(?P<arguments>" in _named(r) for r in rules):
        return "the rule that matches its name has no group arguments, and it takes some"
    return None


def _may_name(rule: Rule, name: str) -> bool:
    """Whether a rule's group `skill` may match a name."""
    if not rule.calls_skills:
        return False
    inside = _group(_named(rule), "(?P<skill>")
    if inside is None or any(part in inside for part in _LOOKS_AROUND):
        return True
    flags = "".join(_FLAGS.findall(rule.pattern))
    try:
        found = regex.compile(flags + inside, cache_pattern=False).fullmatch(name, timeout=FEED_S)
    except (regex.error, TimeoutError, ValueError, KeyError, RecursionError):
        return True
    return found is not None


def _named(rule: Rule) -> str:
    """Return a rule's pattern with its names in one notation."""
    return regex.sub(r"\(\?<([A-Za-z_]\w*)>", r"(?P<\1>", rule.pattern)


def _group(pattern: str, begin: str) -> str | None:
    """Return the pattern inside a group; None if the group is not unique or not closed."""
    if pattern.count(begin) != 1:
        return None
    first = place = pattern.find(begin) + len(begin)
    depth = 1
    while place < len(pattern):
        char = pattern[place]
        if char == "\\":
            place += 1
        elif char == "[":
            place = set_end(pattern, place)
        elif char in "()":
            depth += 1 if char == "(" else -1
            if not depth:
                return pattern[first:place]
        place += 1
    return None
