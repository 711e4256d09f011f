from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely_llm.identity.canonical import canonical

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def typed(value: Any) -> Any:
    """Return a value that is equal to another one only if all types in it are equal too."""
    if isinstance(value, dict):
        return "dict", sorted((name, typed(one)) for name, one in value.items())
    if isinstance(value, list):
        return "list", [typed(one) for one in value]
    if isinstance(value, float):
        return "float", repr(value)
    return type(value).__name__, repr(value)


@given(VALUES, VALUES)
def test_different_values_have_different_bytes(one: Any, other: Any) -> None:
    assert (canonical(one) == canonical(other)) == (typed(one) == typed(other))


@pytest.mark.parametrize(("one", "other"), [
    (["ab", "c"], ["a", "bc"]), ([["a"], "b"], [["a", "b"]]), (1, True), (1, 1.0), ("1", 1),
    ("a", b"a"), ({"a": "b"}, ["a", "b"]), (0.0, -0.0), ("", []), ({}, []),
])  # fmt: skip
def test_values_that_look_alike_have_different_bytes(one: Any, other: Any) -> None:
    assert canonical(one) != canonical(other)


def test_the_order_of_a_mapping_does_not_count() -> None:
    assert canonical({"a": 1, "b": 2}) == canonical({"b": 2, "a": 1})


def test_special_floats_and_texts_have_bytes() -> None:
    found = {canonical(value) for value in (math.nan, math.inf, -math.inf, "\ud800", "\0")}
    assert len(found) == 5


def test_other_types_are_refused() -> None:
    with pytest.raises(TypeError, match="a NoneType cannot be signed"):
        canonical([None])  # type: ignore[list-item]
