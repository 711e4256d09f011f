"""`engine-resume`: the time to resume a suspended plan, and the tokens recomputed for it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle, islice
from statistics import median
from typing import TYPE_CHECKING

from timely_llm.core.clock import timed
from timely_llm.core.errors import EngineError
from timely_llm.engines.contract import Engine
from timely_llm.engines.registry import make_engine, parse_engine_args
from timely_llm.engines.sequences import EngineLimits
from timely_llm.engines.vllm.version import import_core
from timely_llm.experiments.contract import (
    EngineOptions,
    Experiment,
    ExperimentError,
    ReportProgress,
)
from timely_llm.experiments.realtime.suspended_plan import PROMPT_TOKENS, SuspendedPlan
from timely_llm.experiments.results.document import Paper, Row, RunDocument

if TYPE_CHECKING:
    from timely_llm.engines.vllm.stock import StockVllm


def words(engine: Engine, tokens: int, first: int = 0) -> list[int]:
    """Return the first `tokens` tokens of a text that begins with the number `first`."""
    rooms = range(first, first + 90)
    numbers = " ".join(f"Room {number} has {number % 7} chairs." for number in rooms)
    return list(islice(cycle(engine.tokenizer.encode(numbers)), tokens))


OWN_TOKENS = 110
"""Tokens of a prompt that it shares with no other prompt."""
PASSES = 5
"""Measurements of each way in a repeat. Their medians count."""
_SPARE_TOKENS = 16

KEPT, PINNED, CACHED, PREFILLED = (
    "KV kept",
    "resubmitted, shared prompt pinned",
    "resubmitted to stock vLLM's prefix cache",
    "re-prefilled",
)
OFFLOADED = "KV offloaded to the host"
MEASURED = "yes"
OFFLOADS = ("kv_offloading_size", "kv_transfer_config")
"""vLLM's options that enable a KV connector."""
HOST_GIB = 4
KEYS = ("way", "measured")
MEASURES = ("recomputed_tokens", "next_token_ms", "next_token_cpu_ms")
DEFINITIONS = {
    "way": f"{KEPT}: the sequence is in the step plan again; {PINNED}: the sequence was removed,"
    f" and is added with all its tokens and the pinned prefix; {CACHED}: the request was aborted,"
    f" and all its tokens are the prompt of a new request; {PREFILLED}: the sequence was removed,"
    f" and no KV is kept; {OFFLOADED}: the sequence was evicted, has no pinned prefix, and vLLM's"
    " KV connector holds its KV",
    "recomputed_tokens": "tokens computed that had been computed before",
    "next_token_ms": "milliseconds from the resumption to the next token",
    "next_token_cpu_ms": "the same, CPU milliseconds of all threads",
}


@dataclass(frozen=True)
class EngineResumeOptions(EngineOptions):
    """Options of `engine-resume`."""

    tokens: int = 15


def run(options: EngineResumeOptions, progress: ReportProgress) -> RunDocument:
    """Return the cost of each way to resume a suspended plan."""
    bench = _ResumeBench(options)
    rows: list[Row] = []
    try:
        for repeat in range(options.repeats + 1):
            progress(repeat, options.repeats + 1)
            found = bench.rows(1 if not repeat else PASSES)
            if repeat:  # repeat 0 warms up
                rows += [{**row, "seed": repeat - 1} for row in found]
    finally:
        bench.close()
    offloaded = _offloaded(options, bench.prompt_tokens)
    progress(1, 1)
    return EXPERIMENT.document(
        f"{options.engine}, {options.model_name}",
        {
            **options.setup,
            "tokens of the prompt": bench.prompt_tokens,
            "tokens that all prompts share": bench.prompt_tokens - OWN_TOKENS,
            "tokens generated before the suspension": options.tokens,
            "repeats": options.repeats,
            "passes of a repeat, of which the median counts": PASSES,
        },
        keys=KEYS,
        measures=MEASURES,
        definitions=DEFINITIONS,
        rows=(*rows, *offloaded),
        papers=(_section_4_1(offloaded[0]["measured"]),),
    )


def _section_4_1(measured: object) -> Paper:
    return Paper(
        title="Ling et al. 2024, §4.1",
        note="Llama 3 8B in float16 on an RTX 4090: 170 MB of KV loaded from the host's memory, and"
        " the prompt computed again.",
        rows=(
            {"way": OFFLOADED, "measured": str(measured), "next_token_ms": 9.5},
            {"way": PREFILLED, "measured": MEASURED, "next_token_ms": 133.31},
        ),
    )


def _offloaded(options: EngineResumeOptions, prompt_tokens: int) -> list[Row]:
    """Return the rows of a plan with its KV in the host's memory, on a separate engine."""
    if options.engine != "vllm":
        return _not_measured(options, f"the engine {options.engine} keeps KV on its device only")
    args = parse_engine_args(options.engine_args)
    if not args.keys() & OFFLOADS:
        args["kv_offloading_size"] = HOST_GIB
    longest = prompt_tokens + options.tokens + _SPARE_TOKENS
    try:
        engine = make_engine(
            "vllm", model=options.model_path, max_model_len=longest,
            max_step_tokens=longest, kv_tokens=longest, max_rows=8, engine_args=args,
        )  # fmt: skip
    except EngineError as error:
        return _not_measured(options, str(error))
    rows: list[Row] = []
    try:
        prompt = words(engine, prompt_tokens)
        for repeat in range(options.repeats + 1):
            found = []
            for turn in range(1 if not repeat else PASSES):
                # New words, so that the connector has nothing to load for them.
                others = words(engine, prompt_tokens, first=100 * (1 + repeat * PASSES + turn))
                plan = SuspendedPlan(engine, prompt, None, options.tokens)
                plan.evict(others)
                found.append(timed(plan.until_token))
                plan.end()
            if repeat:
                row = _row(OFFLOADED, MEASURED, *map(median, zip(*found, strict=True)))
                rows.append({**row, "seed": repeat - 1})
    finally:
        engine.close()
    return rows


def _not_measured(options: EngineResumeOptions, reason: str) -> list[Row]:
    row = _row(OFFLOADED, f"not measured: {reason}")
    return [{**row, "seed": repeat} for repeat in range(options.repeats)]


class _ResumeBench:
    """An engine, and stock vLLM beside vLLM, with a plan that is suspended repeatedly."""

    def __init__(self, options: EngineResumeOptions) -> None:
        self._tokens = options.tokens
        model, args = options.model_path, parse_engine_args(options.engine_args)
        args = {name: value for name, value in args.items() if name not in OFFLOADS}
        limits = EngineLimits(
            max_model_len=PROMPT_TOKENS + options.tokens + _SPARE_TOKENS, kv_tokens=16_384,
            max_rows=8,
        )  # fmt: skip
        self._engine: Engine = make_engine(
            options.engine, model=model, max_model_len=limits.max_model_len,
            kv_tokens=limits.kv_tokens, max_rows=limits.max_rows, engine_args=args,
        )  # fmt: skip
        longest = self._engine.capacity.max_model_len
        self.prompt_tokens = longest - options.tokens - _SPARE_TOKENS
        if self.prompt_tokens <= 2 * OWN_TOKENS:
            raise ExperimentError(
                f"the model takes {longest} tokens: too few for an answer of {options.tokens}"
            )
        self._prompt = words(self._engine, self.prompt_tokens)
        self._prefix = self._engine.pin_prefix(self._prompt[:-OWN_TOKENS])
        self._stock: StockVllm | None = None
        if options.engine == "vllm":
            import_core()
            from timely_llm.engines.vllm.stock import StockVllm

            stock_limits = EngineLimits(longest, limits.kv_tokens, limits.max_rows)
            self._stock = StockVllm(model, "float32", stock_limits, args)

    def rows(self, passes: int) -> list[Row]:
        """Return a row for each way, with the medians of `passes` passes."""
        found: dict[str, list[tuple[int, float, float]]] = {}
        for _ in range(passes):
            for way, cost in self._pass().items():
                found.setdefault(way, []).append(cost)
        return [_row(way, MEASURED, *map(median, zip(*all_, strict=True)))
                for way, all_ in found.items()]  # fmt: skip

    def close(self) -> None:
        """Free the engines."""
        if self._stock is not None:
            self._stock.close()
        self._engine.close()

    def _pass(self) -> dict[str, tuple[int, float, float]]:
        """Suspend a plan and resume it in each way; the costs are those of `timed`."""
        plan = SuspendedPlan(self._engine, self._prompt, self._prefix, self._tokens)
        found = {KEPT: timed(plan.until_token)}
        found[PINNED] = timed(lambda: plan.anew(self._prefix))
        found[PREFILLED] = timed(lambda: plan.anew(None))
        plan.end()
        if self._stock is not None:
            found[CACHED] = self._of_stock(self._stock)
        return found

    def _of_stock(self, stock: StockVllm) -> tuple[int, float, float]:
        """Abort a request of stock vLLM and resubmit it; the cost is that of `timed`."""
        first = stock.ask(self._prompt, self._tokens + _SPARE_TOKENS // 2)
        answer: list[int] = []
        while len(answer) < self._tokens:
            answer += stock.step()
        stock.stop(first)
        ids: list[str] = []

        def resubmit() -> int:
            whole = [*self._prompt, *answer]
            ids.append(stock.ask(whole, 2))
            while not stock.step():
                pass
            return len(whole) - 1 - stock.cached

        cost = timed(resubmit)
        stock.stop(ids[0])
        return cost


def _row(way: str, measured: str, *found: float) -> Row:
    recomputed, wall_s, cpu_s = found or (None, None, None)
    return {
        "way": way,
        "measured": measured,
        "recomputed_tokens": recomputed,
        "next_token_ms": None if wall_s is None else 1e3 * wall_s,
        "next_token_cpu_ms": None if cpu_s is None else 1e3 * cpu_s,
    }


EXPERIMENT = Experiment(
    name="engine-resume",
    question="How soon is a suspended plan resumed, and how many tokens are recomputed for it?"
    " (Ling et al. 2024, §4.1)",
    run=run,
    defaults=EngineResumeOptions(),
    reasons={"trace": "since it measures an engine with tasks of its own"},
)
