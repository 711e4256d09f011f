"""Timelines of stages, in a document and in a picture."""

from __future__ import annotations

from pathlib import Path

from timely_llm.experiments.catalog.pipeline.offline import ARMS, STOCK
from timely_llm.experiments.registry import experiment
from timely_llm.report.document_timeline import document_timeline
from timely_llm.report.load import LoadedRun
from timely_llm.report.page import render
from timely_llm.report.png import write_timeline


def test_each_rule_has_a_timeline_with_a_lane_for_each_stage(tmp_path: Path) -> None:
    found = experiment("pipeline-timeline")
    options = found.options(workloads=("8/32/32",), jobs=1, seconds=0.5, policies=(STOCK, ARMS[-1]))
    made = found.run(options, lambda done, total: None)
    assert [one.name.split(",")[0] for one in made.timelines] == [STOCK, ARMS[-1]]
    for saved in made.timelines:
        drawn = document_timeline(saved)
        assert [lane.agent for lane in drawn.lanes] == [f"stage {n}" for n in range(1, 5)]
        assert drawn.limits[1] - drawn.limits[0] <= 0.5
        write_timeline(drawn, tmp_path / "stages.png")
    html = render([LoadedRun.of(made)])
    assert "the stage computes a step" in html
