from enum import StrEnum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely_llm.core.errors import ConfigurationError
from timely_llm.core.options import option_value, possible, read_options


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


KNOWN = {"rows": 4, "share": 0.5, "fast": True, "colour": Colour.RED}


def test_each_option_has_the_type_of_its_default() -> None:
    texts = ["", "rows=8", "share=inf", "fast=off", "colour=blue"]
    assert read_options("it", KNOWN, texts) == {
        "rows": 8, "share": float("inf"), "fast": False, "colour": Colour.BLUE,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("rows", "'rows' is no option of it: choose of rows=..., share=..., fast=..., colour=red|"),
        ("size=3", "'size=3' is no option of it: choose of rows=..."),
        ("rows=0", "it:rows must be a whole number from 1 on, not '0'"),
        ("rows=1.5", "it:rows must be a whole number from 1 on, not '1.5'"),
        ("share=-1", "it:share must be a number from 0 on or inf, not '-1'"),
        ("share=nan", "it:share must be a number from 0 on or inf, not 'nan'"),
        ("fast=yes", "it:fast must be on or off, not 'yes'"),
        ("colour=green", "it:colour must be red or blue, not 'green'"),
    ],
)
def test_an_impossible_option_is_refused_in_a_sentence(text: str, says: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        read_options("it", KNOWN, [text])
    assert str(refused.value).startswith(says)


def test_an_option_is_given_once_and_only_if_there_are_any() -> None:
    with pytest.raises(ConfigurationError, match="the option rows of it is given twice"):
        read_options("it", KNOWN, ["rows=1", "rows=2"])
    with pytest.raises(ConfigurationError, match="'rows=1' is no option of it: it has none"):
        read_options("it", {}, ["rows=1"])


@given(st.sampled_from(sorted(KNOWN)), st.text(max_size=20))
def test_any_text_is_a_value_of_the_type_or_refused(option: str, text: str) -> None:
    default = KNOWN[option]
    try:
        value = option_value(option, default, text)
    except ConfigurationError:
        return
    assert isinstance(value, type(default))
    assert possible(default)
