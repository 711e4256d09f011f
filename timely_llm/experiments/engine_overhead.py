"""`engine-overhead`: our serving loop on vLLM beside stock vLLM under the same load."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from statistics import median
from typing import TYPE_CHECKING

from timely_llm.engines.contract import Engine
from timely_llm.engines.engine_args import parse_engine_args
from timely_llm.engines.registry import make_engine
from timely_llm.engines.track import Limits
from timely_llm.engines.vllm_version import import_core
from timely_llm.experiments.contract import OF_ENGINES, Experiment, ExperimentError, Options
from timely_llm.experiments.document import Row, RunDocument
from timely_llm.experiments.engine_arms import (
    OUR_STEPS,
    OURS,
    STOCK,
    STOCK_CORE,
    Arm,
    LoopArm,
    Spent,
    StepsArm,
    StockArm,
    compare,
    prompts,
)
from timely_llm.experiments.stage import Progress
from timely_llm.resources import resource

if TYPE_CHECKING:
    from timely_llm.engines.vllm_stock import StockVllm

MODEL = "models/tiny_planner"
PROMPT_TOKENS = 256
"""Room for the prompt of a request, of which it takes less."""

KEYS = ("requests", "arm")
MEASURES = (
    "tokens_per_second",
    "step_ms",
    "step_cpu_ms",
    "share_of_stock",
    "cpu_share_of_stock",
    "over_stock_us",
)
DEFINITIONS = {
    "requests": "asked at once, each for the same tokens",
    "arm": f"{STOCK}: vLLM's LLMEngine, its own scheduler, text delivered in each step; {OURS}: the"
    f" serving loop with the policy fcfs: admission, policy, step plan, delivery of text;"
    f" {STOCK_CORE}: vLLM's EngineCore, no text; {OUR_STEPS}: the engine's steps alone, no text",
    "tokens_per_second": "tokens over all seconds from asking to the last one, prompts included",
    "step_ms": "milliseconds of a step in which everybody gets a token; median",
    "step_cpu_ms": "the same, milliseconds of the CPU, of all threads: other programs do not count",
    "share_of_stock": f"tokens per second over those of {STOCK} ({OUR_STEPS}: of {STOCK_CORE}) in"
    " the same repeat",
    "cpu_share_of_stock": "the same per second of the CPU",
    "over_stock_us": "microseconds of the CPU of such a step, less those of stock in the same"
    " repeat: scheduling and books, which hardly depend on the model",
}
NOTES = (
    "The aim is a share of stock of at least 0.97.",
    f"{STOCK} and {OURS} take turns after each step, and so do {STOCK_CORE} and {OUR_STEPS}: what"
    " else the machine does hits both alike. The first repeat warms up and does not count.",
    "All is measured twice, with ours started first and with stock vLLM started first: which memory"
    " an engine gets matters by some per cent of a step. Of ours, nobody keeps a journal.",
    "Prompts differ from their first words on, so that no prefix cache shortens them. The model"
    " cannot end an answer.",
    f"Of an engine that is not vLLM only {OURS} and {OUR_STEPS} are measured.",
)


def run(options: Options, progress: Progress) -> RunDocument:
    """Return what the serving loop costs an engine, beside stock vLLM.

    Raises:
        TimelyError: vLLM is missing, or the model cannot be run.
    """
    if options.engine == "simulated":
        raise ExperimentError("a simulated engine takes no time: name vllm or transformers")
    rows: list[Row] = []
    starts = (False, True) if options.engine == "vllm" else (False,)
    rounds = [(start, n) for start in starts for n in sorted(options.requests)]
    bench: _Bench | None = None
    try:
        for place, (stock_first, requests) in enumerate(rounds):
            if bench is None or bench.stock_first != stock_first:
                if bench is not None:
                    bench.close()
                bench = _Bench(options, stock_first)
            for repeat in range(options.repeats + 1):
                progress(
                    place * (options.repeats + 1) + repeat, len(rounds) * (options.repeats + 1)
                )
                found = bench.rows(requests, f"{requests}-{repeat}-")
                if repeat:  # the first one warms up
                    seed = stock_first * options.repeats + repeat - 1
                    rows += [{**row, "seed": seed} for row in found]
    finally:
        if bench is not None:
            bench.close()
    progress(1, 1)
    return RunDocument(
        experiment=EXPERIMENT.name,
        question=EXPERIMENT.question,
        profile=f"{options.engine}, {options.model or 'the embedded model'}",
        setup={
            "engine": options.engine,
            "model": options.model or "the embedded model",
            "options of vLLM's own": ", ".join(options.engine_args) or "none",
            "tokens of an answer": options.tokens,
            "repeats": f"{options.repeats} with each start" if len(starts) > 1 else options.repeats,
        },
        keys=KEYS,
        measures=MEASURES,
        definitions=DEFINITIONS,
        rows=tuple(sorted(rows, key=lambda row: int(row["requests"] or 0))),
        notes=NOTES,
    )


class _Bench:
    """The engines, and each pair of arms that is compared."""

    def __init__(self, options: Options, stock_first: bool) -> None:
        self.stock_first = stock_first
        self._options = options
        most = max(options.requests)
        self._limits = Limits(
            kv_tokens=max(131_072, most * (options.tokens + PROMPT_TOKENS)), max_rows=most
        )
        self._model = options.model or resource(MODEL)
        self._args = parse_engine_args(options.engine_args)
        with ExitStack() as opened:
            stock = self._start_stock(opened) if stock_first else None
            engine = self._start(opened)
            if options.engine == "vllm" and stock is None:
                stock = self._start_stock(opened)
            self._opened = opened.pop_all()
        self._pairs: list[dict[str, Arm]] = [{OURS: LoopArm(engine)}, {OUR_STEPS: StepsArm(engine)}]
        if stock is not None:
            text, core = (StockArm(stock, engine, text) for text in (True, False))
            self._pairs = [{STOCK: text, **self._pairs[0]}, {STOCK_CORE: core, **self._pairs[1]}]

    def _start(self, opened: ExitStack) -> Engine:
        limits = self._limits
        engine = make_engine(
            self._options.engine, model=self._model, kv_tokens=limits.kv_tokens,
            max_rows=limits.max_rows, max_step_tokens=limits.max_step_tokens,
            engine_args=self._args,
        )  # fmt: skip
        opened.callback(engine.close)
        return engine

    def _start_stock(self, opened: ExitStack) -> StockVllm:
        import_core()
        from timely_llm.engines.vllm_stock import StockVllm

        stock = StockVllm(self._model, "float32", self._limits, self._args)
        opened.callback(stock.close)
        return stock

    def rows(self, requests: int, marks: str) -> list[Row]:
        """Return a row for each arm."""
        made = []
        for number, pair in enumerate(self._pairs):
            texts = [prompts(requests, f"{marks}{number}{place}-") for place in range(len(pair))]
            found = compare(list(pair.values()), texts, self._options.tokens)
            for arm in pair.values():
                if isinstance(arm, StockArm):
                    arm.end()
            stock = found[0] if len(pair) > 1 else None
            for name, spent in zip(pair, found, strict=True):
                made.append({"requests": requests, "arm": name, **_measures(spent, stock)})
        return made

    def close(self) -> None:
        """Free the engines."""
        self._opened.close()


def _measures(spent: Spent, stock: Spent | None) -> Row:
    return {
        "tokens_per_second": spent.tokens / spent.wall_s,
        "step_ms": _median_ms(spent.decode_s),
        "step_cpu_ms": _median_ms(spent.decode_cpu_s),
        "share_of_stock": stock.wall_s / spent.wall_s if stock else None,
        "cpu_share_of_stock": stock.cpu_s / spent.cpu_s if stock else None,
        "over_stock_us": _over_us(spent, stock),
    }


def _over_us(spent: Spent, stock: Spent | None) -> float | None:
    ours, theirs = _median_ms(spent.decode_cpu_s), _median_ms(stock.decode_cpu_s if stock else ())
    return None if ours is None or theirs is None else 1e3 * (ours - theirs)


def _median_ms(seconds: Sequence[float]) -> float | None:
    return 1e3 * median(seconds) if seconds else None


EXPERIMENT = Experiment(
    name="engine-overhead",
    question="How many tokens a second does the serving loop get out of vLLM, beside vLLM as it"
    " comes?",
    run=run,
    defaults=Options(engine="vllm"),
    understands=OF_ENGINES | {"requests"},
)
