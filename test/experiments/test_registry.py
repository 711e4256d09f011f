"""Experiments by name, and a user's own by module and name."""

import pytest

from timely_llm.experiments.contract import Experiment, ExperimentError, Options
from timely_llm.experiments.registry import EXPERIMENTS, experiment

OWN = Experiment("own", "Is it found?", lambda options, progress: None, Options())  # type: ignore[arg-type, return-value]
NONE = 7


def test_every_experiment_has_the_name_of_its_command() -> None:
    assert [experiment(name).name for name in EXPERIMENTS] == list(EXPERIMENTS)


def test_a_user_s_own_is_found() -> None:
    assert experiment(f"{__name__}:OWN") is OWN


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("best", "unknown experiment 'best': choose one of timelyllm-drone"),
        ("nowhere:OWN", "the module nowhere is not found"),
        (f"{__name__}:NONE", "is not an Experiment: it is 7"),
    ],
)
def test_what_is_none_is_refused_in_one_sentence(name: str, words: str) -> None:
    with pytest.raises(ExperimentError, match=words):
        experiment(name)
