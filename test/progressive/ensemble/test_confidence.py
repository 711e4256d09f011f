"""Eq. 3 on worked examples."""

from __future__ import annotations

import math

import pytest

from timely_llm.core.clock import VirtualClock
from timely_llm.core.errors import ConfigurationError
from timely_llm.core.step import StepPlan
from timely_llm.engines.contract import Decoding
from timely_llm.engines.simulated import PROFILES, SimulatedEngine
from timely_llm.progressive.ensemble.confidence import (
    Candidate,
    CandidateTokens,
    LengthNorm,
    Weights,
    confidence,
    most_confident,
)

HALF, QUARTER = math.log(0.5), math.log(0.25)


def test_the_three_terms_are_weighted() -> None:
    one = Candidate("a", "the robot turns left", [HALF, QUARTER, HALF, QUARTER])
    # 2 ** mean(-1, -2, -1, -2) = 0.354; 4 of 8 tokens; 2 of 4 and 2 of 2 words: F1 = 2/3
    found = confidence(one, "robot left", 8.0)
    assert found == pytest.approx(0.5 * 2**-1.5 + 0.2 * 0.5 + 0.3 * 2 / 3)


def test_an_answer_longer_than_expected_gains_nothing() -> None:
    long, longer = (Candidate("a", "b", [HALF] * count) for count in (8, 16))
    assert confidence(long, "", 8.0) == confidence(longer, "", 8.0) == pytest.approx(0.45)


@pytest.mark.parametrize(
    ("norm", "lengths"),
    [
        (LengthNorm.CAPPED, (0.5, 1.0, 1.0)),
        (LengthNorm.NEAR, (0.5, 1.0, 0.5)),
        (LengthNorm.OPEN, (0.5, 1.0, 2.0)),
        (LengthNorm.LOGARITHMIC, (0.732, 1.0, 1.0)),
    ],
)
def test_a_length_is_normalized_as_the_weights_say(
    norm: LengthNorm, lengths: tuple[float, ...]
) -> None:
    weights = Weights(0.0, 1.0, norm)
    found = [confidence(Candidate("a", "b", [HALF] * n), "", 8.0, weights) for n in (4, 8, 16)]
    assert found == pytest.approx(lengths, abs=0.001)


def test_one_weight_alone_is_one_term() -> None:
    one = Candidate("a", "turn left", [HALF, HALF])
    assert confidence(one, "", 4.0, Weights(1.0, 0.0)) == pytest.approx(0.5)
    assert confidence(one, "", 4.0, Weights(0.0, 1.0)) == pytest.approx(0.5)
    assert confidence(one, "Turn left", 4.0, Weights(0.0, 0.0)) == pytest.approx(1.0)


def test_likeness_outweighs_a_model_that_is_never_sure() -> None:
    sure = Candidate("qwen", "bananas are yellow", [math.log(0.8)] * 3)
    unsure = Candidate("llama", "robots turn left", [math.log(0.6)] * 3)
    assert most_confident([sure, unsure], "robots left", 3.0) is unsure
    assert most_confident([sure, unsure], "robots left", 3.0, Weights(1.0, 0.0)) is sure


def test_the_first_of_equal_ones_is_taken_and_none_is_trusted_without_tokens() -> None:
    empty, other = Candidate("a", "", []), Candidate("b", "", [])
    assert confidence(empty, "", 1.0) == 0.0
    assert most_confident([empty, other], "", 1.0) is empty


def test_a_candidate_has_the_words_and_log_probabilities_of_an_engine() -> None:
    engine = SimulatedEngine(PROFILES["millisecond"], lambda key, prompt: key, VirtualClock())
    made = {key: CandidateTokens(key, key, engine.tokenizer) for key in ("robot", "left turn")}
    for seed, key in enumerate(made):
        engine.add(key, engine.tokenizer.encode("go"), None, Decoding(seed=seed, logprobs=True))
    left = dict.fromkeys(made, 1)
    while not all(one.ended for one in made.values()):
        engine.submit(StepPlan(tuple(left.items())))
        result = engine.collect()
        for one in made.values():
            one.take(result)
    for key, one in made.items():
        found = one.candidate
        assert found.text == key
        assert len(found.logprobs) == len(engine.tokenizer.encode(key))
        mean = sum(math.log2(math.exp(of)) for of in found.logprobs) / len(found.logprobs)
        assert confidence(found, "", 1e9, Weights(1.0, 0.0)) == pytest.approx(2**mean)


def test_impossible_weights_are_refused() -> None:
    for wrong in ((0.7, 0.5), (-0.1, 0.5)):
        with pytest.raises(ConfigurationError, match="their sum must be at most 1"):
            Weights(*wrong)
