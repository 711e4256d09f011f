"""A decode step of the embedded engine beside `generate`'s static batch of the same model."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, StoppingCriteria, StoppingCriteriaList

from timely_llm.core.step import StepPlan
from timely_llm.engines.sequences import EngineLimits
from timely_llm.engines.transformers.engine import TransformersEngine
from timely_llm.engines.transformers.model import DTYPES, choose_device


def rows(
    model: str | Path,
    batches: Sequence[int] = (1, 8, 32),
    dtype: str = "float32",
    devices: Sequence[str] = (),
    threads: int = 1,
    prompt_tokens: int = 128,
    pinned_tokens: int = 0,
    steps: int = 64,
    repetitions: int = 3,
) -> list[dict[str, Any]]:
    """Measure both in one process, in alternate steps, so that other load affects both alike.

    Args:
        model: folder, or id on the Hugging Face hub.
        batches: sequences that decode together.
        dtype: type of weights and KV.
        devices: cpu, cuda; if none is named, the CPU and an available CUDA device.
        threads: CPU threads.
        prompt_tokens: tokens of each sequence before the first step.
        pinned_tokens: tokens of the prefix that all prompts share.
        steps: decode steps of each generation.
        repetitions: generations of each batch.

    Returns:
        A row for each device and batch: median milliseconds of a step of both, and their ratio.

    Raises:
        EngineError, ModelError: the model cannot run with these arguments.
    """
    found = []
    for device in devices or dict.fromkeys(("cpu", choose_device("auto"))):
        tokens = (max(batches) + 1) * (prompt_tokens + steps + 1)
        limits = EngineLimits(prompt_tokens + steps + 2, tokens, max(batches), tokens)
        engine = TransformersEngine(model, dtype, device, threads, limits)
        static = _load(model, dtype, device)
        for batch in batches:
            pairs: list[tuple[float, float]] = []
            for seed in range(repetitions):
                prompts = _prompts(static.config.vocab_size, batch, prompt_tokens, seed)
                prompts[:, :pinned_tokens] = torch.arange(pinned_tokens) % static.config.vocab_size
                pairs += _turns_s(engine, static, prompts, pinned_tokens, steps)
            step_ms, generate_step_ms = (median(turn) * 1e3 for turn in zip(*pairs, strict=True))
            found.append(
                {
                    "device": device,
                    "batch": batch,
                    "step_ms": step_ms,
                    "generate_step_ms": generate_step_ms,
                    "times_as_fast": generate_step_ms / step_ms,
                }
            )
        engine.close()
    return found


def _prompts(vocabulary: int, batch: int, tokens: int, seed: int) -> Tensor:
    words = torch.Generator().manual_seed(seed)
    return torch.randint(vocabulary, (batch, tokens), generator=words)


def _turns_s(
    engine: TransformersEngine, static: Any, prompts: Tensor, pinned_tokens: int, steps: int
) -> list[tuple[float, float]]:
    """Return the seconds of the engine's and of `generate`'s steps for the same prompts."""
    prefix = engine.pin_prefix(prompts[0, :pinned_tokens].tolist())
    keys = [str(row) for row in range(len(prompts))]
    for key, prompt in zip(keys, prompts.tolist(), strict=True):
        engine.add(key, prompt, prefix)

    def step(tokens: int) -> None:
        engine.submit(StepPlan(tuple((key, tokens) for key in keys)))
        engine.collect()

    step(prompts.shape[1])
    turns = _Turns(lambda: step(1))
    prompts = prompts.to(static.device)
    static.generate(
        prompts,
        attention_mask=torch.ones_like(prompts),
        do_sample=False,
        max_new_tokens=steps + 1,
        eos_token_id=None,
        pad_token_id=0,
        stopping_criteria=StoppingCriteriaList([turns]),
    )
    for key in keys:
        engine.remove(key)
    return turns.seconds[2:]  # without the prefill and a first step that warms up


class _Turns(StoppingCriteria):
    """Makes a step of the engine after each step of `generate`, and times both.

    Args:
        step: makes a step of the engine.
    """

    def __init__(self, step: Callable[[], None]) -> None:
        self._step = step
        self._start_s = time.perf_counter()
        self.seconds: list[tuple[float, float]] = []

    def __call__(self, input_ids: Any, scores: Any, **kwargs: Any) -> Any:
        """Make and time a step; stop no generation."""
        if input_ids.is_cuda:
            torch.cuda.synchronize()
        middle_s = time.perf_counter()
        self._step()
        end_s = time.perf_counter()
        self.seconds.append((end_s - middle_s, middle_s - self._start_s))
        goes_on: Tensor = torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)
        self._start_s = time.perf_counter()
        return goes_on


def _load(model: str | Path, dtype: str, device: str) -> Any:
    loaded: Any = AutoModelForCausalLM.from_pretrained(str(model), dtype=DTYPES[dtype])
    return loaded.eval().to(device)
