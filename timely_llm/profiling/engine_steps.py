"""Measured steps of an engine: decode rows, chunks of prompts, both at once, and whole prompts."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from statistics import median, quantiles

from timely_llm.core.errors import EngineError
from timely_llm.core.step import Capacity, StageTimes, StepPlan, StepResult
from timely_llm.engines.contract import Engine, Prefix

ROWS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
CHUNKS = (2, 16, 64, 128, 256, 512, 1024)
CONTEXTS = {32: 128, 256: 64, 1024: 16}
"""Context tokens of a row before its first step, and most rows with this context in a step."""

MOST_ROWS = max(ROWS) + 1
"""Rows of the largest step: decode rows and one prompt."""

KV_TOKENS = 98_304
"""KV capacity that a measurement needs: sequences with all contexts stay in the engine."""

REPEATS = 9
UNSEEN = 24
_GROWTH = 512
"""Most tokens by which a sequence grows during the measurement."""

_TEXT = "The robot looks at the table, takes the red cup, and brings it to the kitchen. "

ReportProgress = Callable[[int, int], None]


@dataclass(frozen=True)
class Setting:
    """The contents of a step.

    Attributes:
        rows: sequences that decode one token each.
        row_context: context tokens of each of them before its first step.
        chunk: prompt tokens of one more sequence; 0 for none.
        chunk_context: tokens of this prompt that were computed before.
        unseen: the step tests a fit and takes no part in it.
    """

    rows: int
    row_context: int
    chunk: int = 0
    chunk_context: int = 0
    unseen: bool = False


@dataclass(frozen=True)
class MeasuredStep:
    """A measured step.

    Attributes:
        setting: its contents.
        context_tokens: context tokens of all its sequences, without those that it computes.
        seconds: median of the repeats.
        spread: interquartile range, as a share of `seconds`.
        stages: medians of the times in each stage; None: the engine has one stage, or measures
            none.
    """

    setting: Setting
    context_tokens: int
    seconds: float
    spread: float
    stages: StageTimes | None = None


def measure(
    engine: Engine,
    repeats: int = REPEATS,
    seed: int = 0,
    progress: ReportProgress = lambda done, total: None,
) -> list[MeasuredStep]:
    """Measure the engine's steps.

    The settings take turns, in another order in each round, so that other load of the machine
    affects all alike. The first round warms up and does not count.

    Args:
        engine: an engine for this call alone, with at least `MOST_ROWS` and `KV_TOKENS`.
        repeats: steps of each setting, at least 2.
        seed: seed of the order and of the unseen settings.
        progress: called with the finished and the total number of rounds.

    Raises:
        EngineError: the engine fails, or is too small.
    """
    rng = random.Random(seed)
    settings = settings_for(engine.capacity, rng)
    bench = _StepBench(engine, rng, [one for one in CONTEXTS if _fits(engine.capacity, one)])
    found: dict[Setting, list[tuple[int, StepResult]]] = {setting: [] for setting in settings}
    for done in range(repeats + 1):
        progress(done, repeats + 1)
        for setting in rng.sample(settings, len(settings)):
            step = bench.step(setting)
            if done:
                found[setting].append(step)
    bench.close()
    return [_median(setting, steps) for setting, steps in found.items()]


def settings_for(capacity: Capacity, rng: random.Random) -> list[Setting]:
    """Return the settings that are measured on an engine of this capacity, each once.

    Raises:
        EngineError: the engine is too small.
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
    """Return a random setting that tests fits."""
    context = rng.choice(contexts) if kind != "prompt" else 0
    rows = rng.randint(1, CONTEXTS[context]) if context else 0
    chunk = rng.randint(2, chunks[-1]) if kind != "decode" else 0
    return Setting(rows, context, chunk, unseen=True)


def _fits(capacity: Capacity, context: int) -> bool:
    return context + _GROWTH <= capacity.max_model_len


class _StepBench:
    """An engine with sequences of all contexts, ready to decode."""

    def __init__(self, engine: Engine, rng: random.Random, contexts: Sequence[int]) -> None:
        self._engine = engine
        self._rng = rng
        self._words = engine.tokenizer.encode(_TEXT)
        self._computed: dict[str, int] = {}
        self._waiting = {
            context: [self._begin(context) for _ in range(CONTEXTS[context])]
            for context in contexts
        }

    def step(self, setting: Setting) -> tuple[int, StepResult]:
        """Make a step; return its context tokens and its result."""
        keys = self._rng.sample(self._waiting.get(setting.row_context, ()), setting.rows)
        entries = [(key, 1) for key in keys]
        context = sum(self._computed[key] for key in keys) + setting.chunk_context
        if setting.chunk:
            self._add("prompt", setting.chunk_context + setting.chunk)
            if setting.chunk_context:
                self._run([("prompt", setting.chunk_context)])
            entries.append(("prompt", setting.chunk))
        result = self._run(entries)
        for key in keys:
            self._computed[key] += 1
        self._engine.remove("prompt")
        return context, result

    def close(self) -> None:
        """Remove all sequences from the engine."""
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

    def _run(self, entries: Sequence[tuple[str, int]]) -> StepResult:
        self._engine.submit(StepPlan(tuple(entries)))
        result = self._engine.collect()
        if result.failures:
            raise EngineError(f"a step cannot be measured: {next(iter(result.failures.values()))}")
        return result


def _median(setting: Setting, steps: Sequence[tuple[int, StepResult]]) -> MeasuredStep:
    contexts, results = zip(*steps, strict=True)
    seconds = [result.duration_s for result in results]
    low, middle, high = quantiles(seconds, n=4, method="inclusive")
    stages = [result.stages for result in results if result.stages is not None]
    return MeasuredStep(
        setting, round(median(contexts)), middle, (high - low) / middle,
        _median_stages(stages) if len(stages) == len(results) else None,
    )  # fmt: skip


def _median_stages(stages: Sequence[StageTimes]) -> StageTimes:
    """Return the median of each time."""
    return StageTimes(
        *(tuple(map(median, zip(*one, strict=True))) for one in zip(*stages, strict=True))
    )


LENGTHS = (256, 1024)
OWN_TOKENS = 64
"""Tokens of a prompt after its pinned prefix."""


@dataclass(frozen=True)
class MeasuredPrompt:
    """A measured prompt, up to the first token of its answer.

    Attributes:
        tokens: tokens of the prompt.
        pinned: tokens of its pinned prefix.
        computed: computed tokens.
        seconds: median of the repeats.
    """

    tokens: int
    pinned: int
    computed: int
    seconds: float


def measure_prompts(engine: Engine, repeats: int = REPEATS) -> list[MeasuredPrompt]:
    """Measure prompts without a pinned prefix, and with all but `OWN_TOKENS` pinned.

    Both take turns. The first round warms up and does not count. Prefixes stay in the engine.

    Args:
        engine: an engine for this call alone.
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
    """Compute a prompt; return the number of computed tokens and the seconds of its steps."""
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
