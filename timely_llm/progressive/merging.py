"""How many sequences expand a sketch: parts are merged into groups, a sequence each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from timely_llm.progressive.sketch import Part

PartGroup = tuple[Part, ...]
"""Parts that one sequence expands, one after another, in their order."""


def merged(groups: Sequence[PartGroup]) -> list[PartGroup]:
    """Return half as many groups, rounded up: Zhan et al. 2025 (PICE), §IV-B.

    Groups are sorted by their words; the shortest one goes with the longest one, the second
    shortest with the second longest, and so on. One in the middle stays alone.
    """
    by_words = sorted(groups, key=lambda group: (_words(group), group[0].index))
    pairs = zip(by_words, reversed(by_words), strict=True)
    halves = [(*one, *other) for one, other in pairs][: len(by_words) // 2]
    if len(by_words) % 2:
        halves.append(by_words[len(by_words) // 2])
    return [tuple(sorted(half, key=_index)) for half in halves]


def merged_in_time(
    parts: Sequence[Part], in_time: Callable[[Sequence[PartGroup]], bool]
) -> list[PartGroup]:
    """Return the fewest groups that merging by pairs leaves in time.

    Args:
        parts: of one sketch.
        in_time: whether groups meet the bound of the latency: Eq. 2 with their number as p.
    """
    groups: list[PartGroup] = [(part,) for part in parts]
    while len(groups) > 1 and in_time(halved := merged(groups)):
        groups = halved
    return groups


def just_in_time(
    parts: Sequence[Part],
    tokens: Sequence[float],
    due_s: Sequence[float],
    token_s: Callable[[int], float],
    listener_s: float = 0.0,
    most: int = 64,
) -> list[PartGroup]:
    """Return the fewest groups with which no part is late.

    A part is late if its first token comes after its due time, or if its last token does after the
    consumer's pace. Parts go to groups in their order, each to the group that is done first. Where
    no number of groups is in time, the number with the least total lateness is taken, and of equal
    ones the smallest.

    Args:
        parts: of one sketch, in order.
        tokens: expected tokens of each part.
        due_s: seconds from now at which the consumer is through with the part before.
        token_s: seconds of a token, by the number of groups that are expanded at once.
        listener_s: seconds in which the consumer takes a token; 0: it takes a part as a whole.
        most: most groups.
    """
    best: list[PartGroup] = []
    least_s = float("inf")
    for groups in range(1, min(len(parts), most) + 1):
        step_s = token_s(groups)
        lanes: list[list[Part]] = [[] for _ in range(groups)]
        free_s = [0.0] * groups
        late_s = 0.0
        for part, length, due in zip(parts, tokens, due_s, strict=True):
            lane = min(range(groups), key=free_s.__getitem__)
            lanes[lane].append(part)
            first_s = free_s[lane] + step_s
            free_s[lane] += step_s * length
            end_late_s = free_s[lane] - due - listener_s * length
            late_s += max(first_s - due if listener_s else end_late_s, end_late_s, 0.0)
        if late_s < least_s:
            best, least_s = [tuple(lane) for lane in lanes], late_s
        if late_s == 0.0:
            break
    return best


def _words(group: PartGroup) -> int:
    return sum(part.words for part in group)


def _index(part: Part) -> int:
    return part.index
