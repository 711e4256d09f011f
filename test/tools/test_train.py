"""Training runs of a few steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from tools.tiny_planner import batches, corpus  # noqa: E402
from tools.tiny_planner.record import Settings  # noqa: E402
from tools.tiny_planner.train import Training, run  # noqa: E402

MODEL = Path(__file__).parents[2] / "models" / "tiny_planner"


@pytest.fixture(autouse=True)
def few_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "POOL", 60)


def settings(**given: Any) -> Settings:
    chosen: dict[str, Any] = {"steps": 3, "tokens": 256, "copy_steps": 0, "threads": 1, **given}
    return Settings(**chosen)


def test_a_run_of_some_steps_ends_after_them(tmp_path: Path) -> None:
    given = settings(
        hidden=32, inner=32, layers=1, tokenizer=str(MODEL), version=4, minutes=0.0, copy_steps=1
    )
    record = run(given, tmp_path / "out")
    assert record["steps"] == 3
    assert (tmp_path / "out" / "model.safetensors").exists()


def test_a_run_goes_on_from_a_smaller_model(tmp_path: Path) -> None:
    given = settings(hidden=96, inner=128, layers=3, go_on=str(MODEL), shrink=1, version=4)
    record = run(given, tmp_path / "out")
    assert record["parameters"] < 500_000
    assert [stream["version"] for stream in record["streams"]] == [1, 2, 6, 6, 4], (
        "what trained the larger model trained this one too"
    )


def test_sketches_are_trained_with_the_system_text_that_asks_for_them() -> None:
    training = Training(settings(go_on=str(MODEL), version=6, with_system=0.0, arm_system=0.0))
    texts = batches.system_texts()
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(MODEL)
    prompts = {
        tuple(tokenizer(f"<|system|>{texts[f'{robot} {corpus.SKETCH}']}").input_ids)
        for robot in ("drone", "arm")
    }
    steps = training.steps()
    drawn = [next(steps) for _ in range(8)]
    sketches = 0
    for batch in drawn:
        answers = [tokenizer.decode(row).partition("<|assistant|>")[2] for row in batch.rows]
        is_sketch = any("\n2. " in answer for answer in answers)
        assert (tuple(batch.prefix) in prompts) == is_sketch
        sketches += is_sketch
    assert 0 < sketches < len(drawn)
