"""`make test-fast` tries each property with fewer examples."""

import re
from collections.abc import Iterator

import pytest
from hypothesis import settings

from test.examples import examples
from timely_llm.resources import resource
from tools import words

ROOT = resource("package.xml").parent


@pytest.fixture
def fast() -> Iterator[None]:
    """Let the profile of `make test-fast` be the current one during a test."""
    before = settings.default
    settings.load_profile("fast")
    yield
    settings.register_profile("before", before)
    settings.load_profile("before")


@pytest.mark.usefixtures("fast")
def test_the_fast_profile_tries_a_fifth_of_the_examples() -> None:
    assert [examples(count).max_examples for count in (200, 100, 1)] == [40, 20, 1]


def test_no_property_of_the_fast_tests_has_a_number_of_its_own() -> None:
    makefile = (ROOT / "Makefile").read_text()
    folders = re.search(r"^FAST := (.+)$", makefile, re.M)
    assert folders is not None
    files = [*words.files(ROOT / folder for folder in folders[1].split())]
    assert len(files) > 50
    assert [file for file in files if re.search(r"\bmax_examples=", file.read_text())] == []
