"""Mistakes in what users write get one sentence that names the place."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, field_validator

from test.examples import examples
from timely_llm.core.documents import nodes
from timely_llm.core.documents.nodes import DocumentTooLarge, Size, bounded_document
from timely_llm.core.documents.read import load_document, read_document
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
        ("title: Lunch", "menu: line 1: the field 'prices' is missing"),
        (
            "{title: Lunch, prices: [1, x, y]}",
            r"menu: line 1: prices.1: must be a number, not 'x' \(and 1 more\)",
        ),
        ("{title: LUNCH, prices: []}", "menu: line 1: title: title must not shout"),
        (
            "{title: Lunch, prices: [], drinks: 1}",
            "menu: line 1: unknown field 'drinks': allowed are title, prices, note",
        ),
        (
            "{1: 2, title: Lunch, prices: []}",
            "menu: line 1: unknown field '1': allowed are title, prices, note",
        ),
        ("[]", "menu: must be a mapping with title and prices"),
        ("", "menu: must be a mapping with title and prices"),
        ("{", r"menu: line \d, column \d is not valid YAML: a value is expected: close brackets"),
        (
            "title: a\ntitle: b: c",
            "menu: line 2, column 9 is not valid YAML: a colon followed by a space",
        ),
        ("title: !!python/name:os.system x", "is not valid YAML: a tag after ! is not known"),
        ("title: \0", r"menu is not valid YAML: the text holds .* which cannot stand in it"),
        ("title: 2020-13-01", "menu: line 1: '2020-13-01' looks like a date and is none: quote it"),
        ("title: !!bool maybe", "menu: line 1: 'maybe' looks like a truth value and is none"),
        ("title: !!int ''", "menu: line 1: '' looks like a number and is none: quote it"),
        ("title: &a [*a]", "menu: line 1, column 12 is not valid YAML: an anchor contains itself"),
        (
            "title: 1\n---\ntitle: 2",
            "menu: line 2, column 1 is not valid YAML: a second document begins here",
        ),
        (
            "title: *a",
            "menu: line 1, column 8 is not valid YAML: .* names an anchor that does not exist",
        ),
        ("[" * 1000, "menu is nested more than 32 levels deep, the most allowed"),
        ("x" * 300_000, "menu has 300000 characters, at most 262144 are allowed"),
        (
            f"{'x' * 900}: 1\ntitle: a\nprices: []",
            r"menu: line 1: unknown field 'x{80}\.\.\.': allowed are",
        ),
        (
            r'title: "a\0b"',
            r"menu: line 1: the text at title holds '\\x00' at place 1, a control character:",
        ),
        (
            r'{title: a, prices: ["\x1b"]}',
            r"menu: line 1: the text at prices\.0 holds '\\x1b' at place 0",
        ),
        (r'{title: a, prices: [], "\x07": 1}', r"menu: line 1: a key holds '\\x07' at place 0"),
        ("title: 1" + ":1" * 60, "menu: line 1: a value that is no text has 121 characters, at mo"),
    ],
)
def test_a_mistake_gets_one_sentence_with_its_place(text: str, message: str) -> None:
    with pytest.raises(MenuError, match=message) as error:
        read_document(text, Menu, "menu", MenuError)
    assert "\n" not in str(error.value)


@examples(60)
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


MERGES = "a0: &a0 {k: v}\n" + "".join(
    f"a{i}: &a{i} {{<<: [*a{i - 1}, *a{i - 1}]}}\n" for i in range(1, 32)
)
LAUGHS = "a0: &a0 [ha, ha]\n" + "".join(
    f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}, *a{i - 1}]\n" for i in range(1, 28)
)


@pytest.mark.parametrize("text", [MERGES, LAUGHS, "- a\n" * 60_000, "[" + "a," * 60_000])
def test_what_a_document_means_is_no_larger_than_allowed(text: str) -> None:
    with pytest.raises(MenuError, match="menu has more than 20000 values and keys, the most"):
        read_document(text, Menu, "menu", MenuError)


def test_a_text_that_is_no_unicode_is_refused_by_either_of_the_yaml_libraries_parsers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for loader in (yaml.SafeLoader, nodes._Loader):
        monkeypatch.setattr(nodes, "_Loader", loader)
        for text in ('title: "\\uD800"', "title: \ud800", '"\\uDFFF": 1'):
            with pytest.raises(MenuError, match=r"^menu[ :].*") as error:
                read_document(text, Menu, "menu", MenuError)
            str(error.value).encode()  # it can be sent


leaves = st.sampled_from(["1", "x", "'y'", "~", "2020-01-02", "[]", "{}"])


@examples(100)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), leaves, st.booleans()), max_size=6))
def test_aliases_and_merges_mean_what_they_mean_elsewhere_or_are_too_large(
    parts: list[tuple[int, int, str, bool]],
) -> None:
    lines = [f"a0: &a0 {{k: {parts[0][2] if parts else 1}}}"]
    for number, (one, other, leaf, merge) in enumerate(parts, start=1):
        names = f"*a{one % number}, *a{other % number}"
        value = f"{{<<: [{names}], k{number}: {leaf}}}" if merge else f"{{v: [{names}], w: {leaf}}}"
        lines.append(f"a{number}: &a{number} {value}")
    text = "\n".join(lines)
    meant = yaml.safe_load(text)
    assert bounded_document(text, Size(100_000, 100))[0] == meant
    expanded, depth = measured(meant)
    try:
        bounded_document(text, Size(expanded - 1, 100))
    except DocumentTooLarge:
        pass
    else:
        assert "<<" in text  # a merge counts more than what it leaves
    if "<<" not in text:
        assert bounded_document(text, Size(expanded, depth))[0] == meant


def measured(data: object) -> tuple[int, int]:
    """Return the values and keys of a document without merges, and its levels."""
    inner: list[object] = []
    if isinstance(data, dict):
        inner = [*data.keys(), *data.values()]
    elif isinstance(data, list):
        inner = data
    sizes = [measured(each) for each in inner]
    return 1 + sum(n for n, _ in sizes), 1 + max((depth for _, depth in sizes), default=0)
