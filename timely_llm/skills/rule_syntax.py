"""What rules of plan languages may be written with: only what has a bound on time and memory.

The package `regex` can do much more. Groups that call groups, fuzzy matching and full case folding
let a pattern of twenty characters fill hundreds of megabytes, or run for seconds beyond its
timeout. So rules are written with the constructs listed here, and no others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from timely_llm.core.echo import quoted

MAX_COPIES = 2000
"""Copies of its parts that a pattern may stand for: a{3} stands for three of `a`."""
MAX_DEPTH = 50
"""Groups within each other."""

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
                place = _set_end(pattern, place)
        place += 2 if char == "\\" else 1
    return sum(groups), deepest


def _set_end(pattern: str, place: int) -> int:
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
