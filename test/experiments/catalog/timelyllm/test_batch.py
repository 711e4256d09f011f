from pathlib import Path

import pytest

from test.experiments.bursts import bursts_file
from timely_llm.experiments.catalog.timelyllm.batch import EXPERIMENT, SIZES
from timely_llm.experiments.results.document import RunDocument


def quiet(done: int, total: int) -> None:
    pass


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDocument:
    folder: Path = tmp_path_factory.mktemp("traces")
    return EXPERIMENT.run(EXPERIMENT.options(trace=bursts_file(folder), seeds=1, jobs=1), quiet)


def test_every_policy_has_every_size_that_it_can_have(run: RunDocument) -> None:
    found: dict[object, list[object]] = {}
    for row in run.rows:
        found.setdefault(row["policy"], []).append(row["batch"])
    assert found == {
        "fcfs": [*SIZES],
        "timely": [*SIZES, "adaptive"],
        "timely:lead_s=0.5": [*SIZES, "adaptive"],
        "timely:rows=256:admissions=8": ["its own"],
        "timelyllm:rows=16": ["its own"],
        "deadline": ["its own"],
        "fcfs:harness": [*SIZES],
    }
    assert "batch" in run.definitions


def test_a_batch_of_one_makes_plans_one_after_another(run: RunDocument) -> None:
    response_s = {
        (row["policy"], row["batch"]): float(row["longest_response_s"] or 0.0) for row in run.rows
    }
    # Nine plans, each a prefill of 110 tokens and 17 or 18 steps more; the last is asked 8 ms late.
    plan_s = 0.0216 + 110 * 0.00011 + 17.67 * 0.02175
    assert response_s["fcfs", 1] == pytest.approx(9 * plan_s - 0.008, rel=0.02)
    assert response_s["fcfs", 1] == response_s["fcfs:harness", 1]
    assert response_s["fcfs", 16] < response_s["fcfs", 4] < response_s["fcfs", 1]
    assert response_s["fcfs", 16] < response_s["fcfs:harness", 16], "one admission a step is slower"


def test_beyond_the_burst_a_larger_batch_changes_nothing(run: RunDocument) -> None:
    utility = {(row["policy"], row["batch"]): row["utility"] for row in run.rows}
    assert utility["fcfs", 10] == utility["fcfs", 16]
    assert utility["timely", 10] == utility["timely", 16]
