"""Words in place of a model's."""

from __future__ import annotations

from statistics import fmean

import pytest

from timely_llm.experiments.virtual.sketches.wording import SPEAKERS, spoken, wording
from timely_llm.progressive.ensemble.rouge import rouge_1


def likeness(model: str, sketch: int, category: str = "stem") -> float:
    found = []
    for seed in range(10):
        made = wording(seed, 400, sketch, category)
        found.append(rouge_1(spoken(made, SPEAKERS[model], category, seed).text, made.text).f1)
    return fmean(found)


@pytest.mark.parametrize("model", SPEAKERS)
def test_a_longer_sketch_brings_an_answer_closer_to_the_clouds(model: str) -> None:
    assert likeness(model, 0) < likeness(model, 80) < likeness(model, 160)


def test_a_more_capable_model_needs_less_of_a_sketch() -> None:
    assert likeness("qwen2.5-1.5b", 0) < likeness("qwen2.5-7b", 0)
    assert likeness("qwen2.5-7b", 160) == pytest.approx(likeness("qwen2.5-1.5b", 160), abs=0.02)


def test_sketches_lose_meaning_in_code() -> None:
    assert likeness("qwen2.5-1.5b", 160, "coding") < likeness("qwen2.5-1.5b", 160) - 0.03


def test_llama_is_less_sure_of_the_same_words() -> None:
    made = wording(1, 400, 100, "stem")
    llama, qwen = (spoken(made, SPEAKERS[name], "stem", 1) for name in ("llama3-8b", "qwen2.5-7b"))
    assert fmean(llama.logprobs) < fmean(qwen.logprobs) - 0.2


def test_a_sketch_has_key_words_alone() -> None:
    made = wording(1, 400, 50, "stem")
    assert len(made.sketch.split()) == 50
    assert (made.given & ~made.key).sum() == 0
