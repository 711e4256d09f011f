"""Rules of plan languages that users bring: patterns that match one executable statement each.

The package `regex` matches a rule. Its partial matches show whether more text could change a match,
and its timeouts keep every pattern from hanging the server. Some of its constructs escape the
timeouts: groups that call groups, fuzzy matching and full case folding let a pattern of twenty
characters fill hundreds of megabytes. So `syntax_problem` allows only constructs that have a bound
on time and memory.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import regex

from timely_llm.core.errors import PlanError
from timely_llm.core.text import quoted

MAX_RULES = 64
MAX_RULE_CHARACTERS = 2000
MAX_CHARACTERS = 8000
"""Characters of all rules of a skill set together: a thousand cost up to 0.1 s at registration."""
FEED_S = 0.05
PLAN_S = 0.1
FREE_S = 0.001
"""What a reading may take without counting against its plan, seconds."""
MAX_COPIES = 2000
"""Copies of its parts that a pattern may stand for: a{3} stands for three of `a`."""
MAX_DEPTH = 50
"""Groups within each other."""


class Budget:
    """Seconds of this thread's time that matching may take, in one reading and for a whole plan.

    Args:
        feed_s: most seconds of one reading.
        plan_s: most seconds of all readings of a plan; the first `FREE_S` of each do not count.
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
        ValueError: it is no regular expression, too long, needs a feature without bounded cost, or
            matches the empty text.
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


def without_tables(pattern: str) -> str:
    """Return a pattern that matches the same and needs no text.

    `regex` makes tables of a text that each match must have, at the first match. For 1,600 equal
    characters they take 2 s, and no timeout ends that.
    """
    return f"(?:{pattern})|(?!)"


def _compiled(pattern: str) -> tuple[regex.Pattern[str], regex.Pattern[str]]:
    """Return the pattern, and one that matches only partially: when it comes to the text's end."""
    if not 1 <= len(pattern) <= MAX_RULE_CHARACTERS:
        raise ValueError(f"a rule has 1 to {MAX_RULE_CHARACTERS} characters, not {len(pattern)}")
    problem = syntax_problem(pattern)
    if problem is not None:
        raise ValueError(problem)
    shown = quoted(pattern)
    try:
        regex.compile(pattern, cache_pattern=False)  # it names the place of an error
        whole = regex.compile(without_tables(pattern), cache_pattern=False)
        # (?!) never matches, so only running out of text can end a match.
        going_on = regex.compile(without_tables(f"(?:{pattern})(?!)"), cache_pattern=False)
        empty = whole.match("", timeout=FEED_S) is not None
    except (regex.error, RecursionError, ValueError, KeyError, TimeoutError, MemoryError) as error:
        raise ValueError(f"{shown} is no regular expression: {_regex_problem(error)}") from None
    if empty:
        raise ValueError(f"{shown} matches the empty text: it must need at least a character")
    return whole, going_on


def _regex_problem(error: Exception) -> str:
    """Return why a pattern cannot be compiled, in words of this package."""
    if isinstance(error, RecursionError | MemoryError | TimeoutError):
        return "it needs too much time or memory: make it simpler"
    place = getattr(error, "pos", None)
    where = "" if place is None else f" at character {place + 1}"
    said = str(getattr(error, "msg", ""))
    words = next((words for part, words in _PROBLEMS if part in said), "it cannot be read")
    return f"{words}{where}"


_PROBLEMS = (
    ("missing )", "a ) is missing"),
    ("unbalanced parenthesis", "a ) closes nothing"),
    ("missing ]", "a ] is missing"),
    ("character set", "a ] is missing"),
    ("missing {}", "a closing mark is missing"),
    ("expected }", "a } is missing"),
    ("nothing to repeat", "there is nothing to repeat before *, +, ? or {"),
    ("multiple repeat", "two repetitions follow each other"),
    ("min repeat", "a repetition's least count is above its greatest"),
    ("repeat count", "a repetition's count is too large"),
    ("bad character range", "a range in [...] begins after its end"),
    ("escape", "an escape after \\ is unknown"),
    ("group name", "a group's name is wrong"),
    ("group", "a group is named that does not exist there"),
    ("propert", "a property after \\p is unknown"),
    ("character name", "a character's name after \\N is unknown"),
    ("flag", "flags after (? contradict each other"),
    ("lookaround", "a condition must be a group's name or number"),
    ("unknown extension", "what follows (? is unknown"),
)
"""This package's words for errors of the package `regex`, by a part of its own words."""


_GROUP = re.compile(
    r"""\(\?(?:
    :|=|!|<=|<!|>|\||\#            # groups, lookarounds, atomic, branch reset, comment
    |P<[A-Za-z_]\w*>|<[A-Za-z_]\w*>|P=[A-Za-z_]\w*\)   # names
    |\((?:\d+|[A-Za-z_]\w*)\)|\((?=\?)                 # conditionals
    |[aimsu]+(?:-[ims]+)?[:)]|-[ims]+[:)]              # flags
    )""",
    re.VERBOSE,
)
_FUZZY = re.compile(r"\{[\s\d<=]*[eids]\s*(?:[<=+,:}]|$)")
_COUNT = re.compile(r"\{(\d*)(?:(,)(\d*))?\}")
_ALLOWED = (
    "(?:...), (?P<name>...), (?<name>...), (?P=name), (?=...), (?!...), (?<=...), (?<!...),"
    " (?>...), (?|...), (?(name)...|...), (?#...) and the flags a, i, m, s and u"
)


def syntax_problem(pattern: str) -> str | None:
    """Return what a pattern is written with that is not allowed, and what is; None if it is fine.

    Escaped characters aside, the pattern is looked at as if it had no sets and no comments for all
    that must not be there: in doubt it is refused.
    """
    for place in _unescaped(pattern, "("):
        if pattern.startswith("(?", place) and not _GROUP.match(pattern, place):
            shown = quoted(pattern[place:], 12)
            return f"a rule cannot have {shown}: after (? allowed are {_ALLOWED}"
    for place in _unescaped(pattern, "{"):
        if _FUZZY.match(pattern, place):
            shown = quoted(pattern[place:], 12)
            return f"a rule cannot match roughly, as {shown} says: write \\{{ for a brace"
    if any(pattern.startswith(r"\L", place) for place in _backslashes(pattern)):
        return r"a rule cannot have \L, a named list: write (?:one|other)"
    copies, depth = _extent(pattern)
    if depth > MAX_DEPTH:
        return f"a rule has groups {depth} levels deep, at most {MAX_DEPTH} are allowed"
    if copies > MAX_COPIES:
        return (
            f"the counts of a rule make {copies} copies of its parts, at most {MAX_COPIES} are"
            " allowed"
        )
    return None


def _backslashes(pattern: str) -> Iterator[int]:
    """Yield where escapes begin."""
    place = pattern.find("\\")
    while place >= 0:
        yield place
        place = pattern.find("\\", place + 2)


def _unescaped(pattern: str, mark: str) -> Iterator[int]:
    """Yield where a mark stands that is not escaped."""
    escaped = {place + 1 for place in _backslashes(pattern)}
    place = pattern.find(mark)
    while place >= 0:
        if place not in escaped:
            yield place
        place = pattern.find(mark, place + 1)


def _extent(pattern: str) -> tuple[int, int]:
    """Return for how many copies of its parts a pattern stands, and how deep its groups are.

    A count of at least n stands for n copies of what it counts, and what it may do beyond that
    costs nothing until it is done.
    """
    groups, last, deepest = [0], 0, 0
    place = 0
    while place < len(pattern):
        char = pattern[place]
        if char == "(":
            groups.append(0)
            deepest = max(deepest, len(groups) - 1)
            place, last = place + 1, 0
            continue
        if char == ")" and len(groups) > 1:
            last = groups.pop() + 1
            groups[-1] += last
        elif char == "{" and (count := _COUNT.match(pattern, place)):
            times = int(count[1] or 0) if len(count[1]) < 10 else 10**9
            groups[-1] += last * (max(times, 1) - 1)
            last *= max(times, 1)
            place = count.end()
            continue
        elif char not in "*+?|":
            last = 1
            groups[-1] += 1
            if char == "[":
                place = set_end(pattern, place)
        place += 2 if char == "\\" else 1
    return sum(groups), deepest


def set_end(pattern: str, place: int) -> int:
    """Return where a set's closing bracket stands, or the pattern's last character."""
    place += 1
    if pattern.startswith("^", place):
        place += 1
    if pattern.startswith("]", place):
        place += 1
    while place < len(pattern) - 1 and pattern[place] != "]":
        if pattern.startswith("[:", place) and (end := pattern.find(":]", place)) > 0:
            place = end + 2
        else:
            place += 2 if pattern[place] == "\\" else 1
    return place
