"""Mistakes in what users write get one sentence that names the place."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, field_validator

from timely_llm.core.documents import load_document, read_document
from timely_llm.core.errors import TimelyError


class MenuError(TimelyError):
    """A menu is not valid."""


class Menu(BaseModel):
    """A document to try it with."""

    model_config = ConfigDict(extra="forbid")

    title: str
    prices: list[float]
    note: str = ""

    @field_validator("title")
    @classmethod
    def _has_no_title_in_capitals(cls, title: str) -> str:
        if title.isupper():
            raise ValueError("title must not shout")
        return title


def test_a_valid_document_is_returned() -> None:
    menu = read_document("title: Lunch\nprices: [4, 5.5]", Menu, "menu", MenuError)
    assert menu == Menu(title="Lunch", prices=[4.0, 5.5])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("title: Lunch", "menu: at prices: Field required"),
        ("{title: Lunch, prices: [1, x, y]}", r"menu: at prices.1: .* number.* \(and 1 more\)"),
        ("{title: LUNCH, prices: []}", "menu: at title: title must not shout"),
        ("{title: Lunch, prices: [], drinks: 1}", "menu: at drinks: Extra inputs are not"),
        ("{1: 2, title: Lunch, prices: []}", "menu: at 1: "),
        ("[]", "menu: must be a mapping with title and prices"),
        ("", "menu: must be a mapping with title and prices"),
        ("{", "menu: line 1, column 2 is not valid YAML: expected"),
        ("title: a\ntitle: b: c", "menu: line 2, column 9 is not valid YAML: mapping values"),
        ("title: !!python/name:os.system x", "is not valid YAML: could not determine a cons"),
        ("title: \0", "menu is not valid YAML: special characters are not allowed"),
        ("title: 2020-13-01", "menu is not valid YAML: month must be in 1..12"),
        ("title: !!bool maybe", "menu is not valid YAML: unreadable"),
        ("title: !!int ''", "menu is not valid YAML: unreadable"),
        ("title: &a [*a]", "menu: at title: Input should be a valid string"),
        ("[" * 1000, "menu is not valid YAML: too deeply nested"),
    ],
)
def test_a_mistake_gets_one_sentence_with_its_place(text: str, message: str) -> None:
    with pytest.raises(MenuError, match=message) as error:
        read_document(text, Menu, "menu", MenuError)
    assert "\n" not in str(error.value)


@settings(deadline=None, max_examples=60)
@given(st.text() | st.text("{}[]:,-&*!|>'\"\n ?#%@`ab1. ", max_size=20))
def test_any_text_is_a_document_or_refused(text: str) -> None:
    try:
        read_document(text, Menu, "menu", MenuError)
    except MenuError as error:
        assert str(error).startswith("menu")


def test_a_file_is_named_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "lunch.yaml"
    path.write_text("{title: Lunch, prices: []}")
    assert load_document(path, Menu, "menu", MenuError).title == "Lunch"
    path.write_text("[]")
    with pytest.raises(MenuError, match=r"lunch.yaml: must be a mapping"):
        load_document(path, Menu, "menu", MenuError)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "lunch.yaml"
    with pytest.raises(MenuError, match=r"cannot read menu .*lunch.yaml: No such file"):
        load_document(path, Menu, "menu", MenuError)
    with pytest.raises(MenuError, match=r"cannot read menu .*: Is a directory"):
        load_document(tmp_path, Menu, "menu", MenuError)
    path.write_bytes(b"\xff\xfe\xfd")
    with pytest.raises(MenuError, match=r"cannot read menu .*: 'utf-8' codec can't decode"):
        load_document(path, Menu, "menu", MenuError)
