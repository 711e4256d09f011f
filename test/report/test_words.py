import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely_llm.report.words import file_name, heading, short, slanted, text


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ("response_s", "response (s)"), ("step_ms", "step (ms)"), ("tokens_per_s", "tokens per s"),
        ("share_served", "share served"), ("_s", " s"), ("", ""),
    ],
)  # fmt: skip
def test_columns_are_called_by_words(column: str, words: str) -> None:
    assert heading(column) == words


@given(st.text())
def test_names_of_files_are_harmless(words: str) -> None:
    name = file_name(words)
    assert 0 < len(name) <= 80
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")


@given(st.text(), st.integers(1, 80))
def test_short_words_are_one_line_that_can_be_seen(words: str, most: int) -> None:
    line = short(words, most)
    assert len(line) <= most
    assert line.isprintable()


def test_long_labels_are_slanted() -> None:
    assert not slanted([])
    assert not slanted(["wid1, 1"] * 6)
    assert slanted(["1", "2", "a rather long label", "its own"])


def test_values_are_words() -> None:
    values = (None, True, False, 0.25, 1e6, 3, "a b")
    assert [text(value) for value in values] == ["–", "yes", "no", "0.25", "1e+06", "3", "a b"]  # noqa: RUF001
