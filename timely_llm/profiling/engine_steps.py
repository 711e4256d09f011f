"""Real steps of an engine, measured: rows that decode, prompts in chunks, and both at once."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from statistics import median, quantiles

from timely_llm.core.errors import EngineError
from timely_llm.engines.contract import Engine
from timely_llm.policies.contract import Capacity, StepPlan

ROWS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
CHUNKS = (2, 16, 64, 128, 256, 512, 1024)
CONTEXTS = {32: 128, 256: 64, 1024: 16}
"""Tokens that rows attend to at the beginning, and most rows of each kind in one step."""

MOST_ROWS = max(ROWS) + 1
"""Of a step: those that decode and one prompt."""

KV_TOKENS = 98_304
"""What an engine must have to be measured: sequences of all kinds stay in it."""

REPEATS = 9
UNSEEN = 24
_GROWTH = 512
"""Tokens that a sequence may grow by while it is measured."""

_TEXT = "The robot looks at the table, takes the red cup, and brings it to the kitchen. "

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Setting:
    """What a step is made of.

    Attributes:
        rows: sequences that decode one token each.
        row_context: tokens that each of them attended to before the first step.
        chunk: prompt tokens of one more sequence, 0 for none.
        chunk_context: tokens of this prompt that were computed before.
        unseen: it is there to test a fit, not to make it.
    """

    rows: int
    row_context: int
    chunk: int = 0
    chunk_context: int = 0
    unseen: bool = False


@dataclass(frozen=True)
class MeasuredStep:
    """How long a step takes.

    Attributes:
        setting: what it is made of.
        context_tokens: tokens that all its sequences attend to, but for those it computes.
        seconds: median of the repeats.
        spread: half of them lie within so large a share of `seconds`.
    """

    setting: Setting
    context_tokens: int
    seconds: float
    spread: float


def measure(
    engine: Engine,
    repeats: int = REPEATS,
    seed: int = 0,
    progress: Progress = lambda done, total: None,
) -> list[MeasuredStep]:
    """Return how long the engine's steps take.

    The settings take turns, in another order in each round, so that whatever else the machine does
    hits all alike. A first round warms up and does not count.

    Args:
        engine: one that nobody else uses, of `MOST_ROWS` and `KV_TOKENS` at least.
        repeats: steps of each setting, 2 or more.
        seed: of the order, and of the settings that no fit sees.
        progress: called with rounds done and all rounds.

    Raises:
        EngineError: the engine fails, or is too small.
    """
    rng = random.Random(seed)
    settings = settings_for(engine.capacity, rng)
    bench = _Bench(engine, rng, [one for one in CONTEXTS if _fits(engine.capacity, one)])
    found: dict[Setting, list[tuple[int, float]]] = {setting: [] for setting in settings}
    for done in range(repeats + 1):
        progress(done, repeats + 1)
        for setting in rng.sample(settings, len(settings)):
            step = bench.step(setting)
            if done:
                found[setting].append(step)
    bench.close()
    return [_median(setting, steps) for setting, steps in found.items()]


def settings_for(capacity: Capacity, rng: random.Random) -> list[Setting]:
    """Return what is measured on an engine of this capacity, each setting once.

    Raises:
        EngineError: it is too small.
    """
    contexts = [context for context in CONTEXTS if _fits(capacity, context)]
    if not contexts or capacity.max_rows < MOST_ROWS or capacity.free_tokens < KV_TOKENS:
        raise EngineError(
            f"to be measured, an engine needs {MOST_ROWS} rows, {KV_TOKENS} tokens of KV, and"
            f" {min(CONTEXTS) + _GROWTH} tokens for a sequence"
        )
    longest = min(capacity.max_model_len - 1, capacity.max_step_tokens) - MOST_ROWS
    chunks = [chunk for chunk in CHUNKS if chunk <= longest]
    decode = [
        Setting(rows, context)
        for context in contexts
        for rows in (ROWS if context == contexts[0] else ROWS[::2])
        if rows <= CONTEXTS[context]
    ]
    prompts = [Setting(0, 0, chunk) for chunk in chunks]
    continued = [Setting(0, 0, chunk, context) for context in contexts[1:] for chunk in (64, 256)]
    both = [Setting(rows, contexts[0], chunk) for rows in (1, 8, 32) for chunk in (64, 256)]
    drawn = [_draw(rng, kind, contexts, chunks) for kind in islice(cycle(_KINDS), UNSEEN)]
    made = [*decode, *prompts, *continued, *both, *drawn]
    return [s for s in dict.fromkeys(made) if s.chunk + s.chunk_context < capacity.max_model_len]


_KINDS = ("decode", "prompt", "both")


def _draw(rng: random.Random, kind: str, contexts: Sequence[int], chunks: Sequence[int]) -> Setting:
    """Return a setting that no fit sees."""
    context = rng.choice(contexts) if kind != "prompt" else 0
    rows = rng.randint(1, CONTEXTS[context]) if context else 0
    chunk = rng.randint(2, chunks[-1]) if kind != "decode" else 0
    return Setting(rows, context, chunk, unseen=True)


def _fits(capacity: Capacity, context: int) -> bool:
    return context + _GROWTH <= capacity.max_model_len


class _Bench:
    """An engine with sequences of all lengths that wait to be decoded."""

    def __init__(self, engine: Engine, rng: random.Random, contexts: Sequence[int]) -> None:
        self._engine = engine
        self._rng = rng
        self._words = engine.tokenizer.encode(_TEXT)
        self._computed: dict[str, int] = {}
        self._waiting = {
            context: [self._begin(context) for _ in range(CONTEXTS[context])]
            for context in contexts
        }

    def step(self, setting: Setting) -> tuple[int, float]:
        """Return the tokens that a step attends to, and its seconds."""
        keys = self._rng.sample(self._waiting.get(setting.row_context, ()), setting.rows)
        entries = [(key, 1) for key in keys]
        context = sum(self._computed[key] for key in keys) + setting.chunk_context
        if setting.chunk:
            self._add("prompt", setting.chunk_context + setting.chunk)
            if setting.chunk_context:
                self._run([("prompt", setting.chunk_context)])
            entries.append(("prompt", setting.chunk))
        seconds = self._run(entries)
        for key in keys:
            self._computed[key] += 1
        self._engine.remove("prompt")
        return context, seconds

    def close(self) -> None:
        """Free the engine's memory."""
        for key in self._computed:
            self._engine.remove(key)

    def _begin(self, tokens: int) -> str:
        """Add a sequence, compute its prompt and return its key."""
        key = str(len(self._computed))
        self._add(key, tokens)
        self._run([(key, tokens)])
        self._computed[key] = tokens
        return key

    def _add(self, key: str, tokens: int) -> None:
        first = self._rng.randrange(len(self._words))
        self._engine.add(key, list(islice(cycle(self._words), first, first + tokens)))

    def _run(self, entries: Sequence[tuple[str, int]]) -> float:
        self._engine.submit(StepPlan(tuple(entries)))
        result = self._engine.collect()
        if result.failures:
            raise EngineError(f"a step cannot be measured: {next(iter(result.failures.values()))}")
        return result.duration_s


def _median(setting: Setting, steps: Sequence[tuple[int, float]]) -> MeasuredStep:
    contexts, seconds = zip(*steps, strict=True)
    low, middle, high = quantiles(seconds, n=4, method="inclusive")
    return MeasuredStep(setting, round(median(contexts)), middle, (high - low) / middle)
