"""What differs between two records, by kind and by how much it matters."""

from __future__ import annotations

import difflib
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

from tools.same_behaviour.record import Kind, Record

Verdict = Literal["value", "removed", "added", "wording"]
FAULTS: frozenset[Verdict] = frozenset(("value", "removed"))
"""What changes behaviour."""
ORDER = "order"
"""Key of a list with members that may be added but not moved."""
MOST_LINES = 6
MOST_CHARACTERS = 100
Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Difference:
    """Cells of one thing that differ in the same way.

    Attributes:
        kind: kind of behaviour.
        name: of the thing, such as an experiment or a command.
        verdict: how it differs.
        where: the keys; [*] stands for places in a list. Empty: the whole thing.
        cells: how many.
        largest: the largest relative difference of numbers; None: other values differ.
        example: the first of them, or of wording the changed lines.
    """

    kind: str
    name: str
    verdict: Verdict
    where: str
    cells: int
    largest: float | None
    example: str

    @property
    def is_fault(self) -> bool:
        """Whether it is more than an addition or other words."""
        return self.verdict in FAULTS

    def line(self) -> str:
        """Return it as text, the example aside."""
        where = f": {self.where}" if self.where else ""
        cells = f", {self.cells} cells" if self.cells > 1 else ""
        largest = ""
        if self.largest is not None:
            largest = f", largest relative difference {self.largest:.2g}"
        return f"{self.name}{where}{cells}{largest}"

    def document(self) -> dict[str, Any]:
        """Return it as JSON; an infinite difference is null."""
        found = asdict(self)
        if self.largest is not None and not math.isfinite(self.largest):
            found["largest"] = None
        return found


def differences(base: Record, head: Record) -> list[Difference]:
    """Return what differs in the kinds that both records have, by kind."""
    both = [kind for kind in base.kinds if kind in head.kinds]
    return [one for kind in both for one in _of_kind(kind, base.kinds[kind], head.kinds[kind])]


def _of_kind(kind: str, base: Kind, head: Kind) -> Iterator[Difference]:
    for name in base:
        if name not in head:
            yield Difference(kind, name, "removed", "", 1, None, "")
    for name in head:
        if name not in base:
            yield Difference(kind, name, "added", "", 1, None, "")
            continue
        if name not in base:
            continue
        yield from _of_values(kind, name, base[name].values, head[name].values)
        if base[name].words != head[name].words:
            lines = changed_lines(base[name].words, head[name].words)
            yield Difference(kind, name, "wording", "", 1, None, "\n".join(lines))


def _of_values(kind: str, name: str, base: Any, head: Any) -> Iterator[Difference]:
    groups: dict[tuple[Verdict, str], list[tuple[Path, Any, Any]]] = defaultdict(list)
    for verdict, path, before, after in cells(base, head, ()):
        groups[verdict, shown(path)].append((path, before, after))
    for (verdict, where), found in groups.items():
        relative = [relative_difference(before, after) for _, before, after in found]
        numbers = [one for one in relative if one is not None]
        path, before, after = found[0]
        example = f"{brief(before)} -> {brief(after)}"
        if verdict != "value":
            value = before if verdict == "removed" else after
            example = "" if value is True else brief(value)  # its key says all
        if len(found) > 1 and example:
            example = f"first at {places(path)}: {example}"
        yield Difference(
            kind, name, verdict, where, len(found),
            max(numbers) if len(numbers) == len(found) and verdict == "value" else None, example,
        )  # fmt: skip


def cells(base: Any, head: Any, path: Path) -> Iterator[tuple[Verdict, Path, Any, Any]]:
    """Yield the innermost values that differ, as verdict, keys, before and after."""
    if isinstance(base, dict) and isinstance(head, dict):
        for key in (*base, *(key for key in head if key not in base)):
            if key not in head:
                yield from _whole("removed", (*path, key), base[key])
            elif key not in base:
                yield from _whole("added", (*path, key), head[key])
            else:
                yield from cells(base[key], head[key], (*path, key))
    elif isinstance(base, list) and isinstance(head, list):
        if path and path[-1] == ORDER:
            common = [[one for one in side if one in base and one in head] for side in (base, head)]
            if common[0] != common[1]:
                yield "value", path, common[0], common[1]
            return
        for place, (one, other) in enumerate(zip(base, head, strict=False)):
            yield from cells(one, other, (*path, place))
        for place in range(len(head), len(base)):
            yield from _whole("removed", (*path, place), base[place])
        for place in range(len(base), len(head)):
            yield from _whole("added", (*path, place), head[place])
    elif not same(base, head):
        yield "value", path, base, head


def _whole(verdict: Verdict, path: Path, value: Any) -> Iterator[tuple[Verdict, Path, Any, Any]]:
    """Yield the innermost values of what only one side has."""
    for where, one in leaves(value, path):
        yield (verdict, where, one, None) if verdict == "removed" else (verdict, where, None, one)


def leaves(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    """Yield the innermost values of a document; an empty one is a value."""
    if isinstance(value, (dict, list)) and value:
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in pairs:
            yield from leaves(inner, (*path, key))
    else:
        yield path, value


def same(before: Any, after: Any) -> bool:
    """Return whether two values are the same; 1 and 1.0 are, 1 and true are not."""
    if isinstance(before, bool) or isinstance(after, bool):
        return before is after
    if isinstance(before, float) and isinstance(after, float) and math.isnan(before):
        return math.isnan(after)
    return bool(before == after)


def relative_difference(before: Any, after: Any) -> float | None:
    """Return the difference of two numbers over the larger one; None: they are not numbers."""
    for one in (before, after):
        if isinstance(one, bool) or not isinstance(one, (int, float)):
            return None
    if not (math.isfinite(before) and math.isfinite(after)):
        return math.inf
    return float(abs(after - before) / max(abs(before), abs(after)))


def shown(path: Path) -> str:
    """Return keys as text, places in lists left out."""
    words = "".join("[*]" if isinstance(key, int) else f".{key}" for key in path)
    return words.removeprefix(".")


def places(path: Path) -> str:
    """Return keys as text, with places in lists."""
    words = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)
    return words.removeprefix(".")


def brief(value: Any) -> str:
    """Return a value as short text."""
    text = repr(value)
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 3]}..."


def changed_lines(base: Any, head: Any) -> list[str]:
    """Return the lines of prose that differ, with - and + before them."""
    diff = difflib.unified_diff(list(_prose(base)), list(_prose(head)), lineterm="", n=0)
    found = [f"{line[0]} {line[1:]}" for line in list(diff)[2:] if not line.startswith("@@")]
    if len(found) > MOST_LINES:
        return [*found[:MOST_LINES], f"... {len(found) - MOST_LINES} more lines"]
    return found or ["in spaces or order"]


def _prose(value: Any) -> Iterator[str]:
    for path, one in leaves(value, ()):
        lines = str(one).splitlines() if isinstance(one, str) else [brief(one)]
        # A place in a list of paragraphs changes with each that comes before it.
        keys = tuple(key for key in path if isinstance(key, str))
        label = f"{places(keys)}: " if keys else ""
        yield from (f"{label}{line.rstrip()}" for line in lines)
