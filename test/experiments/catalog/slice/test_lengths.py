import pytest

from timely_llm.experiments.catalog.slice.lengths import CANDIDATES, TARGET, distances
from timely_llm.experiments.contract import ExperimentError
from timely_llm.experiments.registry import experiment
from timely_llm.experiments.results.document import Row
from timely_llm.experiments.virtual.slice_workload import LengthRange

FOUND = experiment("slice-lengths")
PAPER = {"attainment": 0.3125, "rt_attainment": 0.26, "nrt_attainment": 0.41}


def test_the_target_is_what_the_paper_says_of_orca() -> None:
    assert TARGET == PAPER


def test_the_distance_is_that_of_the_mean_over_the_seeds() -> None:
    low, high = ({name: share + by for name, share in PAPER.items()} for by in (-0.1, 0.1))
    rows: list[Row] = [{"lengths": "a", **low}, {"lengths": "a", **high}, {"lengths": "b", **high}]
    assert distances(rows) == {"a": pytest.approx(0.0), "b": pytest.approx(0.1)}


def test_candidates_are_lengths_and_the_usual_ones_are_among_them() -> None:
    assert [str(LengthRange.parse(one)) for one in CANDIDATES] == list(CANDIDATES)
    assert str(LengthRange()) in CANDIDATES


def test_orca_alone_chooses_the_candidate_that_is_closest_to_the_paper() -> None:
    short, long = "2-4:5-10", "14-22:120-360"
    options = FOUND.options(lengths=(short, long), seeds=1, jobs=1)
    made = FOUND.run(options, lambda done, total: None)
    assert [(row["lengths"], row["policy"]) for row in made.rows] == [
        (short, "orca"),
        (long, "orca"),
    ]
    near, far = (row["distance"] for row in reversed(made.rows))
    assert isinstance(near, float) and isinstance(far, float) and near < 0.1 < far
    assert f"closest to the paper's Orca is {long}" in made.notes[-1]
    with pytest.raises(ExperimentError, match="slice-lengths has no option policies"):
        FOUND.options(policies=("slice",))
