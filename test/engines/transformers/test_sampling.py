"""Sampled tokens: right odds, one stream per sequence, and failures of one sequence alone."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from test.engines.conftest import DEVICE
from timely_llm.core.errors import EngineError
from timely_llm.engines.contract import GREEDY, Decoding
from timely_llm.engines.grammars import Grammars, Matcher
from timely_llm.engines.sequences import EngineLimits, SequenceState
from timely_llm.engines.transformers.engine import TransformersEngine
from timely_llm.engines.transformers.sampling import Sampler

if TYPE_CHECKING:
    from timely_llm.conformance.engines.driver import Driver

ODDS = (0.5, 0.3, 0.0, 0.2)


def draw(sequences: list[SequenceState], odds: tuple[float, ...] = ODDS) -> list[int]:
    """Draw a token for each of the tracks."""
    logits = torch.tensor(odds).log().repeat(len(sequences), 1)
    tokens, failures, _ = Sampler(Grammars(None, frozenset(), 0)).choose(sequences, logits)
    assert not failures
    return [tokens[sequence.key] for sequence in sequences]


def sequence(key: str, decoding: Decoding, tokens: int = 1) -> SequenceState:
    return SequenceState(key, [0] * tokens, None, 0, 0, 0, decoding)


@pytest.mark.parametrize("by", ["seed", "position"])
def test_tokens_come_by_their_odds(by: str) -> None:
    sequences = [
        sequence(str(n), Decoding(1.0, seed=n if by == "seed" else 5), 1 if by == "seed" else n)
        for n in range(1, 4001)
    ]
    found = Counter(draw(sequences))
    for token, odds in enumerate(ODDS):
        assert found[token] / 4000 == pytest.approx(odds, abs=0.03)
    assert 2 not in found


def test_a_temperature_bends_the_odds() -> None:
    sequences = [sequence(str(n), Decoding(2.0, seed=n)) for n in range(4000)]
    roots = [odds**0.5 for odds in ODDS]
    found = Counter(draw(sequences))
    for token, root in enumerate(roots):
        assert found[token] / 4000 == pytest.approx(root / sum(roots), abs=0.03)


@pytest.mark.parametrize("temperature", [0.0, 1e-300, 1e-9])
def test_next_to_no_temperature_is_the_most_likely_token(temperature: float) -> None:
    assert draw([sequence(str(n), Decoding(temperature, seed=n)) for n in range(50)]) == [0] * 50


def test_a_row_is_drawn_as_if_it_were_alone() -> None:
    sequences = [sequence(str(n), Decoding(1.0, seed=n) if n % 3 else GREEDY) for n in range(12)]
    assert draw(sequences) == [draw([alone])[0] for alone in sequences]


def test_the_seed_decides(llama: Path, drive: type[Driver], fixed: str) -> None:
    engine = TransformersEngine(llama, device=DEVICE)
    driver = drive(engine)
    decodings = {
        "one": Decoding(1.0, seed=1), "again": Decoding(1.0, seed=1), "two": Decoding(1.0, seed=2),
        "greedy": GREEDY, "cold": Decoding(0.0, seed=9),
    }  # fmt: skip
    for key, decoding in decodings.items():
        driver.add(key, fixed, decoding=decoding)
        driver.answer(key)
    said = driver.said
    assert said["one"] == said["again"] != said["two"]
    assert said["cold"] == said["greedy"] != said["one"]


class Broken:
    """Takes the place of a matcher."""

    def forbidden(self) -> Any:
        raise EngineError("no way on")


class Stubborn:
    """Allows everything and takes nothing."""

    size = 0

    def forbidden(self) -> Any:
        return np.zeros(self.size, dtype=np.bool_)

    def take(self, token_id: int) -> None:
        raise EngineError("not this one")


@pytest.mark.parametrize("matcher", [Broken(), Stubborn()])
def test_a_sequence_without_a_next_token_fails_alone(
    llama: Path, drive: type[Driver], fixed: str, matcher: Matcher
) -> None:
    engine = TransformersEngine(llama, device=DEVICE, limits=EngineLimits(kv_tokens=500))
    driver = drive(engine)
    driver.add("a", fixed)
    expected = list(driver.answer("a", 8))
    driver.remove_all()
    driver.add("a", fixed)
    driver.add("bad", fixed)
    driver.answer("bad", 2)
    Stubborn.size = engine._model.vocabulary
    engine._sampler._matchers["bad"] = matcher
    kept = driver.computed["bad"]
    for _ in range(3):
        result = driver.step({"a": 500, "bad": 1})
        assert set(result.failures) == {"bad"}
    assert engine.capacity.free_tokens == 500 - driver.kept["a"] - kept
    assert engine._pool.free_slots == engine.capacity.free_tokens
    assert driver.answer("a", 8) == expected
    driver.remove_all()
    assert engine._pool.free_slots == engine.capacity.free_tokens == 500


def test_a_sequence_with_nan_logits_fails_alone() -> None:
    logits = torch.zeros(3, 4)
    logits[1, 2] = torch.nan
    sequences = [sequence(key, Decoding(1.0)) for key in "abc"]
    tokens, failures, _ = Sampler(Grammars(None, frozenset(), 0)).choose(sequences, logits)
    assert set(tokens) == {"a", "c"}
    assert "nan" in failures["b"]


def test_a_log_probability_is_that_of_the_model_at_any_temperature() -> None:
    sequences = [
        sequence(key, Decoding(t, seed=3, logprobs=key != "b"))
        for key, t in (("a", 0.0), ("b", 0.0), ("c", 2.0))
    ]
    logits = torch.tensor(ODDS).log().repeat(3, 1)
    tokens, _, logprobs = Sampler(Grammars(None, frozenset(), 0)).choose(sequences, logits)
    assert logprobs.keys() == {"a", "c"}
    for key, found in logprobs.items():
        assert math.exp(found) == pytest.approx(ODDS[tokens[key]])
