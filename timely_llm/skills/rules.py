"""Rules of plan languages that users bring: patterns that match one executable statement each.

A rule is matched with the package `regex`, whose partial matches tell whether more text could
change a match, and whose timeouts keep every pattern from hanging the server.
"""

from __future__ import annotations

import time

import regex

from timely_llm.core.echo import quoted
from timely_llm.core.errors import PlanError
from timely_llm.skills.rule_syntax import syntax_problem

MAX_RULES = 64
MAX_RULE_CHARACTERS = 2000
MAX_CHARACTERS = 8000
"""Characters of all rules of a skill set together: a thousand cost up to 0.1 s at registration."""
FEED_S = 0.05
PLAN_S = 0.1
FREE_S = 0.001
"""What a reading may take without counting against its plan, seconds."""


class Budget:
    """Seconds of this thread's time that matching may take, in one reading and for a whole plan.

    Args:
        feed_s: for one reading.
        plan_s: for a plan, beyond `FREE_S` a reading: what holds up nobody is not counted.
    """

    def __init__(self, feed_s: float = FEED_S, plan_s: float = PLAN_S) -> None:
        self._feed_s = feed_s
        self._plan_s = plan_s
        self._left_s = plan_s
        self._began_s = 0.0
        self._until_s = 0.0

    def begin(self) -> None:
        """Begin a reading."""
        self._began_s = time.thread_time()
        self._until_s = self._began_s + min(self._feed_s, self._left_s + FREE_S)

    def end(self) -> None:
        """End a reading."""
        used_s = time.thread_time() - self._began_s
        self._left_s = max(self._left_s - max(used_s - FREE_S, 0.0), 0.0)

    def left(self, rule: Rule) -> float:
        """Return the seconds left.

        Raises:
            PlanError: none are; `rule` had its turn when they ended.
        """
        left_s = self._until_s - time.thread_time()
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
        ValueError: it is no regular expression, too long, needs a feature whose cost has no bound,
            or matches the empty text.
    """

    def __init__(self, number: int, pattern: str) -> None:
        self.number = number
        self.pattern = pattern
        self.short = quoted(pattern)
        self._whole, self._going_on = _compiled(pattern)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rule) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[int, str]:
        return self.number, self.pattern

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


def _compiled(pattern: str) -> tuple[regex.Pattern[str], regex.Pattern[str]]:
    """Return the pattern, and one that matches only partially: when it comes to the text's end."""
    if not 1 <= len(pattern) <= MAX_RULE_CHARACTERS:
        raise ValueError(f"a rule has 1 to {MAX_RULE_CHARACTERS} characters, not {len(pattern)}")
    problem = syntax_problem(pattern)
    if problem is not None:
        raise ValueError(problem)
    shown = quoted(pattern)
    try:
        # (?!) never matches, so only running out of text can end a match of the second one.
        whole = regex.compile(pattern, cache_pattern=False)
        going_on = regex.compile(f"(?:{pattern})(?!)", cache_pattern=False)
        empty = whole.match("", timeout=FEED_S) is not None
    except (regex.error, RecursionError, ValueError, KeyError, TimeoutError, MemoryError) as error:
        raise ValueError(f"{shown} is no regular expression: {error}") from None
    if empty:
        raise ValueError(f"{shown} matches the empty text: it must need at least a character")
    return whole, going_on
