"""Prompts of an engine, measured: with and without a beginning that is pinned."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle, islice
from statistics import median

from timely_llm.core.errors import EngineError
from timely_llm.engines.contract import Engine, Prefix
from timely_llm.policies.contract import StepPlan

LENGTHS = (256, 1024)
OWN_TOKENS = 64
"""Tokens of a prompt behind its pinned beginning."""
REPEATS = 9

_TEXT = "A robot asks for a plan: take the red cup from the table and bring it to the kitchen. "


@dataclass(frozen=True)
class MeasuredPrompt:
    """How long a prompt takes, up to its first token.

    Attributes:
        tokens: of the prompt.
        pinned: of these, tokens of its pinned beginning.
        computed: tokens that were computed for it.
        seconds: median of the repeats.
    """

    tokens: int
    pinned: int
    computed: int
    seconds: float


def measure_prompts(engine: Engine, repeats: int = REPEATS) -> list[MeasuredPrompt]:
    """Return how long prompts take with nothing of them pinned, and with all but a few tokens.

    Both take turns. A first round warms up and does not count. What is pinned stays in the engine.

    Args:
        engine: one that nobody else uses.
        repeats: prompts of each kind.

    Raises:
        EngineError: the engine fails, or is too small.
    """
    words = engine.tokenizer.encode(_TEXT)
    longest = engine.capacity.max_model_len - 1
    kinds: list[tuple[list[int], Prefix | None]] = []
    for tokens in dict.fromkeys(min(length, longest) for length in LENGTHS):
        prompt = list(islice(cycle(words), tokens))
        kinds += [(prompt, None), (prompt, engine.pin_prefix(prompt[:-OWN_TOKENS]))]
    found: list[list[tuple[int, float]]] = [[] for _ in kinds]
    for repeat in range(repeats + 1):
        for (prompt, prefix), taken in zip(kinds, found, strict=True):
            one = _first_token(engine, prompt, prefix)
            if repeat:
                taken.append(one)
    return [
        MeasuredPrompt(
            len(prompt), len(prefix.token_ids) if prefix else 0, taken[0][0],
            median(seconds for _, seconds in taken),
        )
        for (prompt, prefix), taken in zip(kinds, found, strict=True)
    ]  # fmt: skip


def _first_token(engine: Engine, prompt: list[int], prefix: Prefix | None) -> tuple[int, float]:
    """Return how many tokens were computed for a prompt, and the seconds of its steps."""
    engine.add("prompt", prompt, prefix)
    computed, seconds = 0, 0.0
    try:
        while True:
            engine.submit(StepPlan((("prompt", engine.capacity.max_step_tokens),)))
            result = engine.collect()
            for failure in result.failures.values():
                raise EngineError(f"a prompt cannot be measured: {failure}")
            computed += result.computed["prompt"]
            seconds += result.duration_s
            if result.tokens:
                return computed, seconds
    finally:
        engine.remove("prompt")
