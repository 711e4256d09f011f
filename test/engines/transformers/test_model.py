"""Fewer operations say what the library's modules say, or are not used."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from test.engines.conftest import DEVICE
from timely_llm.core.step import StepPlan
from timely_llm.engines.transformers.engine import TransformersEngine
from timely_llm.engines.transformers.model import FusedDecoder


def logits(engine: TransformersEngine, fused: bool) -> torch.Tensor:
    """Return what a step computes for a prompt and for the middle of another one."""
    engine._model.fuse(fused)
    assert engine._model.fused is fused
    found: list[torch.Tensor] = []
    choose = engine._sampler.choose

    def watch(sequences: Any, logits: torch.Tensor) -> Any:
        found.append(logits.clone())
        return choose(sequences, logits)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine._sampler, "choose", watch)
        engine.add("a", list(range(10, 40)))
        engine.add("b", list(range(20, 60)))
        for plan in ((("b", 9),), (("a", 30), ("b", 31)), (("b", 1), ("a", 1))):
            engine.submit(StepPlan(plan))
            assert not engine.collect().failures
    engine.remove("a")
    engine.remove("b")
    return torch.cat(found)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("Llama", {}),
        ("Llama", {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}),
        ("Qwen2", {}),
        ("Qwen3", {"head_dim": 32}),
        ("Mistral", {"sliding_window": 9}),
    ],
)
def test_same_logits_as_the_library(
    make_model: Callable[..., Path], name: str, options: dict[str, Any]
) -> None:
    engine = TransformersEngine(make_model(name, **options), device=DEVICE)
    assert engine._model.fused
    torch.testing.assert_close(logits(engine, True), logits(engine, False), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("name", "options"), [("Gemma2", {"head_dim": 16}), ("GPTNeoX", {})])
def test_models_that_are_built_otherwise(
    make_model: Callable[..., Path], name: str, options: dict[str, Any]
) -> None:
    assert not TransformersEngine(make_model(name, **options), device=DEVICE)._model.fused


def test_what_says_something_else_is_not_used(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forward = FusedDecoder.forward
    monkeypatch.setattr(FusedDecoder, "forward", lambda *given: forward(*given) * 1.5)
    assert not TransformersEngine(llama, device=DEVICE)._model.fused


def test_what_breaks_down_is_not_used(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FusedDecoder, "forward", lambda *given: torch.ones(3) @ torch.ones(4))
    engine = TransformersEngine(llama, device=DEVICE)
    assert not engine._model.fused
    assert engine._pool.free_slots == engine.capacity.free_tokens
