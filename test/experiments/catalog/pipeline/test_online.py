"""Service levels at stages by the time at which requests came."""

from __future__ import annotations

from timely_llm.experiments.catalog.pipeline.offline import ARMS, STOCK
from timely_llm.experiments.registry import experiment
from timely_llm.report.load import LoadedRun
from timely_llm.report.page import render


def test_each_window_and_the_whole_have_a_row_and_thresholds_are_printed() -> None:
    found = experiment("pipeline-online")
    options = found.options(
        requests=(8,), rates=(0.02,), seeds=1, jobs=1, policies=(STOCK, ARMS[-1]), ttft_s=12.0,
        links=("blocking",),
    )  # fmt: skip
    made = found.run(options, lambda done, total: None)
    assert set(made.keys) | set(made.measures) <= made.rows[0].keys()
    for policy in options.policies:
        rows = [row for row in made.rows if row["policy"] == policy]
        assert rows[-1]["arrived"] == "all"
        assert rows[0]["arrived"] == "0-240"
        assert sum(int(str(row["count"])) for row in rows[:-1]) == rows[-1]["count"] == 8
    assert made.setup["time to the first token asked for (s)"] == 12.0
    assert made.setup["mean time of each later token asked for (s)"] == 0.2
    assert "pipeline-online" in render([LoadedRun.of(made)])


def test_static_budgets_bound_the_steps_of_the_stock_rule_alone() -> None:
    made = experiment("pipeline-online").run(
        experiment("pipeline-online").options(
            requests=(6,), rates=(0.5,), seeds=1, jobs=1, policies=(STOCK, ARMS[-1]),
            links=("blocking",), budgets=(2048, 256),
        ),
        lambda done, total: None,
    )  # fmt: skip
    rows = [row for row in made.rows if row["arrived"] == "all"]
    assert [(row["budget"], row["policy"]) for row in rows] == [
        (2048, STOCK), (2048, ARMS[-1]), (256, STOCK),
    ]  # fmt: skip
    assert rows[0]["span_s"] != rows[-1]["span_s"]
    assert made.definitions["budget"] == "most tokens of a step"
