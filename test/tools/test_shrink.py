"""A smaller model out of a larger one: it says nearly the same as long as it is as large."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from tools.tiny_planner.shrink import shrunk  # noqa: E402

MODEL = Path(__file__).parents[2] / "models" / "tiny_planner"
TEXT = (
    "<|user|>Scene: [cup]\nTask: [A] Go forward 50 cm and take a picture.\n<|assistant|>"
    "mf(50);tp();->True;<|end|>"
)


def rows() -> Any:
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(MODEL)
    return torch.tensor([tokenizer(TEXT).input_ids])


def loss(model: Any) -> float:
    with torch.no_grad():
        return float(model(rows(), labels=rows()).loss)


def test_a_smaller_model_is_close_to_the_larger_one_and_has_its_own_sizes() -> None:
    large = transformers.LlamaForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
    same = shrunk(large, rows(), 192, 512, 4)
    assert loss(same) == pytest.approx(loss(large), rel=0.2), "only the last norm's weights differ"
    small = shrunk(large, rows(), 96, 128, 3)
    assert small.config.num_hidden_layers == len(small.model.layers) == 3
    assert 300_000 < sum(p.numel() for p in small.parameters()) < 500_000
    torch.manual_seed(0)
    assert loss(small) < loss(transformers.LlamaForCausalLM(small.config)) - 1.0
