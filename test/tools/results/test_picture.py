"""Pictures of a real run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.image import imread

from test.tools.results.tiny import PAGE, run
from tools.results.page import ResultsError
from tools.results.picture import MOST_BYTES, draw


def test_each_measure_is_a_chart_beside_the_others(tmp_path: Path) -> None:
    both, one = tmp_path / "both.png", tmp_path / "one.png"
    draw(run(), PAGE.picture, both)
    draw(run(), replace(PAGE.picture, measures=("utility",)), one)
    assert imread(both).shape[1] == 2 * imread(one).shape[1]
    assert both.stat().st_size < MOST_BYTES


def test_a_value_can_be_left_out(tmp_path: Path) -> None:
    every, less = tmp_path / "every.png", tmp_path / "less.png"
    draw(run(), PAGE.picture, every)
    draw(run(), replace(PAGE.picture, where={"policy": ("stream", "deadline")}), less)
    assert every.read_bytes() != less.read_bytes()


def test_some_settings_and_lines_between_few_points(tmp_path: Path) -> None:
    every, some, lines = tmp_path / "every.png", tmp_path / "some.png", tmp_path / "lines.png"
    draw(run(), PAGE.picture, every)
    draw(run(), replace(PAGE.picture, where={"robots": 2}), some)
    draw(run(), replace(PAGE.picture, lines=True), lines)
    assert len({path.read_bytes() for path in (every, some, lines)}) == 3


def test_a_column_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="tiny: the document has no chart of attainment"):
        draw(run(), replace(PAGE.picture, measures=("attainment",)), tmp_path / "a.png")
