"""What skills return: the values with which a plan can go on, and those that mean nothing in it."""

from __future__ import annotations

import inspect
import math
from typing import TYPE_CHECKING, Literal

from timely_llm.core.errors import SkillFailed
from timely_llm.core.segment import SkillCall, Value

if TYPE_CHECKING:
    from timely_llm.skills.stop_checker import Term

Returns = Literal["nothing", "boolean", "number", "text"]
MAX_SHOWN = 40
MAX_BITS = 1024
"""Of a whole number, as of the largest float."""

_ALLOWED = {
    "boolean": "True or False",
    "number": "a number",
    "text": "a text",
    "nothing": "True, False, a number or a text",
}
_ORDERS = frozenset(("<", ">", "<=", ">="))


def used_value(call: SkillCall, returns: Returns, term: Term | None, value: object) -> Value | None:
    """Return what a call returned, as its plan goes on with it; None: the plan does not use it.

    The value of a statement that does not block is not used, whatever it is. That of a
    blocking call and of a term of a condition must be of the kind that the skill set declares; a
    skill that is declared to return nothing may return any kind in a condition. `<`, `>`, `<=` and
    `>=` compare a number with a number or a text with a text. numpy's scalars are taken as what
    they hold.

    Args:
        call: which call.
        returns: what its skill returns, as the skill set says.
        term: the term of a condition that it stands in; None: it is a statement.
        value: what its callable returned.

    Raises:
        SkillFailed: the plan cannot go on with the value.
    """
    if inspect.isawaitable(value) or inspect.isgenerator(value):
        if inspect.iscoroutine(value):
            value.close()
        raise SkillFailed(f"{call.name} returned a {_kind_name(value)}, so nothing was done")
    if term is None and not call.blocking:
        return None
    plain = _plain(value)
    kind = None if plain is None else kind_of(plain)
    if isinstance(plain, str) and any("\ud800" <= char <= "\udfff" for char in plain):
        raise SkillFailed(f"{call.name} returned a text that is no Unicode")
    if plain is None or (returns != "nothing" and kind != returns):
        raise SkillFailed(f"{call.name} must return {_ALLOWED[returns]}, not {_shown(value)}")
    if term is not None and term.comparison in _ORDERS:
        wanted = kind_of(term.literal)
        if kind != wanted or kind == "boolean":
            raise SkillFailed(
                f"{call.name} returned {_shown(plain)}, which is not comparable"
                f" by {term.comparison} with {_shown(term.literal)}"
            )
    return plain


def kind_of(value: Value) -> Returns:
    """Return the kind of a value, in the words of skill sets."""
    if isinstance(value, bool):
        return "boolean"
    return "text" if isinstance(value, str) else "number"


def _plain(value: object) -> Value | None:
    """Return a value as Python's own kind; None: it is none that plans know."""
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        value = value.item()
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if value.bit_length() <= MAX_BITS else None
    if isinstance(value, float):
        return None if math.isnan(value) else float(value)
    return str.__str__(value) if isinstance(value, str) else None


def _shown(value: object) -> str:
    plain = _plain(value)
    if plain is None:
        if isinstance(value, float):
            return "NaN"
        return "None" if value is None else f"a value of type {_kind_name(value)}"
    words = repr(plain)
    return words if len(words) <= MAX_SHOWN else words[: MAX_SHOWN - 3] + "..."


def _kind_name(value: object) -> str:
    return type(value).__name__
