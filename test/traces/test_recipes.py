from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely_llm.traces.model import TraceError
from timely_llm.traces.recipes import parse_groups, parse_tasks

_names = st.from_regex(r"[A-Za-z0-9_]{1,5}", fullmatch=True)


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("{(1,2), 8, 9}", (("1", "2"), ("8",), ("9",))),
        ("{7}", (("7",),)),
        (" { ( a , b_2 , a ) } ", (("a", "b_2", "a"),)),
    ],
)
def test_groups_are_events_in_order(text: str, groups: tuple[tuple[str, ...], ...]) -> None:
    assert parse_groups(text) == groups


@given(st.lists(st.lists(_names, min_size=1, max_size=3).map(tuple), min_size=1, max_size=4))
def test_what_is_written_is_read(groups: list[tuple[str, ...]]) -> None:
    written = ", ".join(f"({', '.join(group)})" for group in groups)
    assert parse_groups(f"{{{written}}}") == tuple(groups)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "'{' was expected at character 1, not the end; they are written like {(1, 2), 8, 9}"),
        ("1, 2", "'{' was expected at character 1, not '1'"),
        ("{}", "a task was expected at character 2, not '}'"),
        ("{1 2}", "'}' was expected at character 4, not '2'"),
        ("{(1, 2}", r"',' or '\)' was expected at character 7, not '}'"),
        ("{(1, (2))}", r"a task was expected at character 6, not '\('"),
        ("{1,}", "a task was expected at character 4, not '}'"),
        ("{1} 2", "the end was expected at character 5, not '2'"),
        ("{é}", "a task was expected at character 2, not 'é'"),
        ("{1-3}", "'}' was expected at character 3, not '-'"),
        ("{" * 30_000, "groups may have 20000 characters"),
    ],
)
def test_a_mistake_is_named_with_its_place(text: str, complaint: str) -> None:
    with pytest.raises(
        TraceError, match=complaint.replace("{", r"\{").replace("(1, 2)", r"\(1, 2\)")
    ):
        parse_groups(text)


@given(st.text("{}(),12 a-é", max_size=12))
def test_any_text_is_groups_or_a_sentence(text: str) -> None:
    for parse in (parse_groups, parse_tasks):
        try:
            assert parse(text)
        except TraceError as error:
            assert "\n" not in str(error)


def test_tasks_are_names_and_ranges() -> None:
    assert parse_tasks("1-3, 9,2 , cat") == ("1", "2", "3", "9", "cat")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "'' is not a task: tasks are written like 1-8, 10"),
        ("1,,2", "'' is not a task"),
        ("3-1", "'3-1' is not a range of tasks"),
        ("a-3", "'a-3' is not a range of tasks"),
        ("1-999999999", "is not a range of tasks"),
    ],
)
def test_what_is_no_list_of_tasks_is_named(text: str, complaint: str) -> None:
    with pytest.raises(TraceError, match=complaint):
        parse_tasks(text)
