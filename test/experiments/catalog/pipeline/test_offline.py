"""Requests at once at stages: the paper's numbers, and which rule takes longest."""

from __future__ import annotations

import pytest

from timely_llm.experiments.catalog.pipeline.offline import ARMS, STOCK, UNLIMITED
from timely_llm.experiments.contract import ExperimentError
from timely_llm.experiments.registry import experiment
from timely_llm.experiments.results.document import RunDocument
from timely_llm.experiments.results.reported import AHN_TABLE_1, in_stages
from timely_llm.policies.micro_batches.policy import Mode
from timely_llm.report.load import LoadedRun
from timely_llm.report.page import render


def run(**options: object) -> RunDocument:
    found = experiment("pipeline-offline")
    given = {"workloads": ("24/96/96",), "jobs": 1, **options}
    return found.run(found.options(**given), lambda done, total: None)


def test_without_a_kv_limit_processing_is_that_of_the_table() -> None:
    made = run(workloads=("64/256/256",), policies=(STOCK,), kv=(UNLIMITED,))
    (row,) = made.rows
    papers = [said for said in AHN_TABLE_1.rows if said["workload"] == row["workload"]]
    baseline, _, best = (said["completion_s"] for said in papers)
    assert row["proc_s"] == pytest.approx(papers[0]["proc_s"], rel=0.05)
    assert row["completion_s"] == pytest.approx(best, rel=0.05)
    assert float(str(row["completion_s"])) < 0.9 * float(str(baseline))


@pytest.mark.parametrize("link", ["blocking", "overlapping"])
def test_the_packages_rule_takes_no_longer_than_others(link: str) -> None:
    made = run(links=(link,))
    assert set(made.keys) | set(made.measures) <= made.rows[0].keys()
    assert set(made.measures) <= made.definitions.keys()
    seconds = {str(row["policy"]): float(str(row["completion_s"])) for row in made.rows}
    assert list(seconds) == list(ARMS)
    assert seconds[ARMS[-1]] <= 1.02 * min(seconds.values())
    assert "pipeline-offline" in render([LoadedRun.of(made)])


def test_static_budgets_are_tried_with_rules_that_have_none_of_their_own() -> None:
    chunks = in_stages(Mode.FIXED_CHUNK)
    made = run(budgets=(2048, 64), policies=(STOCK, ARMS[-1], chunks), workloads=("4/32/8",))
    assert [(row["budget"], row["policy"]) for row in made.rows] == [
        (2048, STOCK), (2048, ARMS[-1]), (2048, chunks), (64, STOCK), (64, chunks),
    ]  # fmt: skip
    few, many = (int(str(made.rows[place]["steps"])) for place in (2, -1))
    assert few < many, "prompts pass in chunks of 64"
    assert made.rows[0]["completion_vs_stock"] == 1.0


def test_unknown_words_are_refused_in_a_sentence() -> None:
    with pytest.raises(ExperimentError, match="links must be of blocking, overlapping, not 'x'"):
        run(links=("x",))
    with pytest.raises(ExperimentError, match="kv must be of limited, unlimited, not ''"):
        run(kv=())
