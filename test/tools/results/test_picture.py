"""Pictures of a real run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.image import imread

from test.tools.results.tiny import PICTURE, run
from timely_llm.experiments.results.document import Span, TimelineDocument
from tools.results.page import ResultsError, Timelines
from tools.results.picture import MOST_BYTES, draw


def test_each_measure_is_a_chart_beside_the_others(tmp_path: Path) -> None:
    both, one = tmp_path / "both.png", tmp_path / "one.png"
    draw(run(), PICTURE, both)
    draw(run(), replace(PICTURE, measures=("utility",)), one)
    assert imread(both).shape[1] == 2 * imread(one).shape[1]
    assert both.stat().st_size < MOST_BYTES


def test_a_value_can_be_left_out(tmp_path: Path) -> None:
    every, less = tmp_path / "every.png", tmp_path / "less.png"
    draw(run(), PICTURE, every)
    draw(run(), replace(PICTURE, where={"policy": ("stream", "deadline")}), less)
    assert every.read_bytes() != less.read_bytes()


def test_some_settings_and_lines_between_few_points(tmp_path: Path) -> None:
    every, some, lines = tmp_path / "every.png", tmp_path / "some.png", tmp_path / "lines.png"
    draw(run(), PICTURE, every)
    draw(run(), replace(PICTURE, where={"robots": 2}), some)
    draw(run(), replace(PICTURE, lines=True), lines)
    assert len({path.read_bytes() for path in (every, some, lines)}) == 3


def test_timelines_stand_one_below_the_other(tmp_path: Path) -> None:
    span = Span(agent="drone", request=0, kind="executing", start_s=0.0, end_s=1.0)
    timelines = tuple(
        TimelineDocument(name=f"{name}, load 1", requests=("a",), urgent=(True,), spans=(span,))
        for name in ("fcfs", "timely")
    )
    made = run().model_copy(update={"timelines": timelines})
    one, both = tmp_path / "one.png", tmp_path / "both.png"
    draw(made, Timelines("tiny", ("timely",), "one"), one)
    draw(made, Timelines("tiny", ("fcfs", "timely"), "both"), both)
    assert imread(both).shape[0] == 2 * imread(one).shape[0]
    with pytest.raises(ResultsError, match="tiny: the document has no timeline of deadline"):
        draw(made, Timelines("tiny", ("deadline",), "none"), one)


def test_a_column_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="tiny: the document has no chart of attainment"):
        draw(run(), replace(PICTURE, measures=("attainment",)), tmp_path / "a.png")
