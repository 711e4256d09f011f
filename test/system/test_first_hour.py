"""The page docs/first_hour.md, followed literally: its files, its commands, and what they print."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from test.system.conftest import ROOT
from test.system.page import settled, steps_of
from test.system.reader import Reader

PAGE = ROOT / "docs/first_hour.md"
BY_HAND = {
    "Install": "downloads and compiles",
    "Put a language model behind it": "a model's words differ between processors",
    "From ROS 2": "needs ros2launch and ros2cli",
}


@pytest.fixture
def reader(tmp_path: Path, domain: int) -> Iterator[Reader]:
    made = Reader(tmp_path, domain)
    yield made
    made.close()


@pytest.mark.extended
def test_the_first_hour_goes_as_the_page_says(reader: Reader) -> None:
    steps = [step for step in steps_of(PAGE.read_text()) if step.section not in BY_HAND]
    assert {"file", "command", "interrupt"} == {step.kind for step in steps}
    for step in steps:
        assert settled(reader.follow(step)) == settled(step.text), step.name


def test_what_is_followed_by_hand_stands_in_the_page() -> None:
    assert BY_HAND.keys() <= {step.section for step in steps_of(PAGE.read_text())}
