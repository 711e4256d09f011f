"""Rules of plan languages that users bring: patterns that match one executable statement each.

A rule is matched with the package `regex`, whose partial matches tell whether more text could
change a match, and whose timeouts keep every pattern from hanging the server.
"""

from __future__ import annotations

import time
from functools import lru_cache

import regex

from timely_llm.core.errors import PlanError

MAX_RULES = 64
MAX_RULE_CHARACTERS = 2000
FEED_S = 0.25
PLAN_S = 2.0


class Budget:
    """Seconds that matching may take: in one reading, and for a whole plan."""

    def __init__(self, feed_s: float = FEED_S, plan_s: float = PLAN_S) -> None:
        self._feed_s = feed_s
        self._plan_s = plan_s
        self._left_s = plan_s
        self._until_s = 0.0

    def begin(self) -> None:
        """Begin a reading."""
        self._until_s = time.perf_counter() + min(self._feed_s, self._left_s)

    def end(self) -> None:
        """End a reading."""
        unused_s = self._until_s - time.perf_counter()
        self._left_s -= min(self._feed_s, self._left_s) - unused_s

    def left(self, rule: Rule) -> float:
        """Return the seconds left.

        Raises:
            PlanError: none are; `rule` had its turn when they ended.
        """
        left_s = self._until_s - time.perf_counter()
        if left_s <= 0:
            raise self.spent(rule)
        return left_s

    def spent(self, rule: Rule) -> PlanError:
        """Return the error of a rule that takes too long."""
        return PlanError(
            f"rule {rule.number} ({rule.short}) takes too long, more than {self._feed_s:g} s at"
            f" once or {self._plan_s:g} s in a plan: avoid repetitions inside repetitions in it"
        )


class Rule:
    """One rule.

    Args:
        number: its place among the rules, from 1, for messages.
        pattern: a regular expression.

    Raises:
        ValueError: it is no regular expression, too long, or matches the empty text.
    """

    def __init__(self, number: int, pattern: str) -> None:
        self.number = number
        self.short = repr(pattern if len(pattern) <= 60 else pattern[:57] + "...")
        self._whole, self._going_on = _compiled(pattern)

    @property
    def calls_skills(self) -> bool:
        """Whether it has the group `skill`."""
        return "skill" in self._whole.groupindex

    def match(self, text: str, budget: Budget) -> regex.Match[str] | None:
        """Return its match at the beginning of `text`, if it is not empty.

        Raises:
            PlanError: it takes too long.
        """
        try:
            found = self._whole.match(text, timeout=budget.left(self))
        except TimeoutError:
            raise budget.spent(self) from None
        return found if found and found.end() else None

    def may_go_on(self, text: str, budget: Budget) -> bool:
        """Whether text that begins with `text` could match it in another way than `text` does.

        Raises:
            PlanError: it takes too long.
        """
        try:
            found = self._going_on.match(text, partial=True, timeout=budget.left(self))
        except TimeoutError:
            raise budget.spent(self) from None
        return found is not None


@lru_cache(maxsize=4 * MAX_RULES)
def _compiled(pattern: str) -> tuple[regex.Pattern[str], regex.Pattern[str]]:
    """Return the pattern, and one that matches only partially: when it comes to the text's end."""
    if not 1 <= len(pattern) <= MAX_RULE_CHARACTERS:
        raise ValueError(f"a rule has 1 to {MAX_RULE_CHARACTERS} characters, not {len(pattern)}")
    if "(?R)" in pattern or "(?0)" in pattern:
        raise ValueError("a rule cannot contain itself: give the part a name and use (?&name)")
    try:
        # (?!) never matches, so only running out of text can end a match of the second one.
        whole, going_on = regex.compile(pattern), regex.compile(f"(?:{pattern})(?!)")
        empty = whole.match("", timeout=FEED_S) is not None
    except (regex.error, RecursionError, ValueError, KeyError, TimeoutError) as error:
        raise ValueError(f"{pattern!r} is no regular expression: {error}") from None
    if whole.flags & regex.REVERSE:
        raise ValueError(f"{pattern!r} is matched backwards: leave the flag r out")
    if empty:
        raise ValueError(f"{pattern!r} matches the empty text: it must need at least a character")
    return whole, going_on
