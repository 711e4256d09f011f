"""How much a program holds: what grows with the requests served shows here."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from typing import Any


def sizes(*roots: object, leave_out: Iterable[object] = ()) -> Counter[str]:
    """Return how many elements all containers of a program's objects hold, by their place.

    Objects of the package are looked into, and containers; functions and classes are not.

    Args:
        roots: where to begin.
        leave_out: objects that are not looked into.
    """
    seen = {id(one) for one in leave_out}
    found: Counter[str] = Counter()
    left: list[tuple[str, Any]] = [(type(root).__name__, root) for root in roots]
    while left:
        place, one = left.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        inner: Iterable[Any] = ()
        if isinstance(one, dict):
            found[place] += len(one)
            inner = [*one.keys(), *one.values()]
        elif isinstance(one, list | tuple | set | frozenset | deque):
            found[place] += len(one)
            inner = list(one)
        elif type(one).__module__.startswith(("timely_llm", "test")):
            names = [name for kind in type(one).__mro__ for name in getattr(kind, "__slots__", ())]
            names += getattr(one, "__dict__", {})
            left += [
                (f"{type(one).__name__}.{name}", getattr(one, name, None))
                for name in names
                if name not in ("__dict__", "__weakref__")
            ]
        left += [(place, each) for each in inner if not isinstance(each, str | int | float)]
    return found
