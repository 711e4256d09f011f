"""Methods by name."""

from __future__ import annotations

import pytest

from timely_llm.core.errors import ConfigurationError
from timely_llm.experiments.contract import ExperimentError
from timely_llm.experiments.virtual.sketches.bench import Bench
from timely_llm.experiments.virtual.sketches.pice import Pice
from timely_llm.experiments.virtual.sketches.questions import questions
from timely_llm.experiments.virtual.sketches.score import METHODS, method
from timely_llm.experiments.virtual.sketches.testbed import Devices


@pytest.mark.parametrize("name", METHODS)
def test_each_method_answers_all_questions(name: str) -> None:
    bench = Bench(questions(60.0, 0, 4))
    assert all(one.end_s > one.question.at_s for one in bench.run(method(name)(bench, Devices())))


def test_options_replace_defaults() -> None:
    made = method("pice:batch=4:merge=off:least_share=0.3")(Bench([]), Devices())
    assert isinstance(made, Pice)
    assert (made.rules.batch, made.rules.merge, made.rules.least_share) == (4, False, 0.3)
    assert made.rules.most_queued == 4


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("best", ExperimentError, "unknown method 'best': choose one of cloud-only"),
        ("pice:speed=1", ConfigurationError, "'speed=1' is no option of pice: choose of levels"),
        ("cloud-only:rows=2", ConfigurationError, "it has none"),
    ],
)
def test_what_is_none_is_refused_in_one_sentence(
    text: str, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        method(text)
