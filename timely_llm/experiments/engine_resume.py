"""`engine-resume`: how soon a suspended plan goes on, and what is computed again for it."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from timely_llm.core.errors import EngineError
from timely_llm.engines.contract import Engine
from timely_llm.engines.engine_args import parse_engine_args
from timely_llm.engines.registry import make_engine
from timely_llm.engines.track import Limits
from timely_llm.engines.vllm_version import import_core
from timely_llm.experiments.contract import OF_ENGINES, Experiment, ExperimentError, Options
from timely_llm.experiments.document import Paper, Row, RunDocument
from timely_llm.experiments.stage import Progress
from timely_llm.experiments.suspended_plan import SuspendedPlan, taken, words
from timely_llm.resources import resource

if TYPE_CHECKING:
    from timely_llm.engines.vllm_stock import StockVllm

MODEL = "models/tiny_planner"
PROMPT_TOKENS, OWN_TOKENS = 2884, 110
"""Of a prompt (paper 001, Table 1), and how many of them no other prompt has."""
PASSES = 5
"""Times that each way is measured in a repeat, of which the medians count."""
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
"""Options of vLLM's that give it a KV connector."""
HOST_GIB = 4
KEYS = ("way", "measured")
MEASURES = ("recomputed_tokens", "next_token_ms", "next_token_cpu_ms")
DEFINITIONS = {
    "way": f"{KEPT}: the sequence is in the step's plan again; {PINNED}: it was removed, and is"
    f" added with all its tokens and the pinned beginning; {CACHED}: the request was aborted, and"
    f" all its tokens are a new one's prompt; {PREFILLED}: it was removed, and nothing is kept;"
    f" {OFFLOADED}: its KV was given up for another, nothing of it is pinned, and vLLM's KV"
    " connector has it",
    "recomputed_tokens": "tokens computed that had been computed before",
    "next_token_ms": "milliseconds until the next token, with everything that leads to it",
    "next_token_cpu_ms": "the same, milliseconds of the CPU, of all threads",
}


def run(options: Options, progress: Progress) -> RunDocument:
    """Return what each way to go on with a suspended plan takes.

    Raises:
        TimelyError: vLLM is missing, or the model cannot be run or is made for too few tokens.
    """
    bench = _Bench(options)
    rows: list[Row] = []
    try:
        for repeat in range(options.repeats + 1):
            progress(repeat, options.repeats + 1)
            found = bench.rows(1 if not repeat else PASSES)
            if repeat:  # the first one warms up
                rows += [{**row, "seed": repeat - 1} for row in found]
    finally:
        bench.close()
    offloaded = _offloaded(options, bench.prompt_tokens)
    progress(1, 1)
    return RunDocument(
        experiment=EXPERIMENT.name,
        question=EXPERIMENT.question,
        profile=f"{options.engine}, {options.model or 'the embedded model'}",
        setup={
            "engine": options.engine,
            "model": options.model or "the embedded model",
            "tokens of the prompt": bench.prompt_tokens,
            "of these, those of all prompts": bench.prompt_tokens - OWN_TOKENS,
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
        title="Paper 001, §4.1",
        note="Llama 3 8B in float16 on an RTX 4090: 170 MB of KV from the host's memory, and the"
        " prompt computed again.",
        rows=(
            {"way": OFFLOADED, "measured": str(measured), "next_token_ms": 9.5},
            {"way": PREFILLED, "measured": MEASURED, "next_token_ms": 133.31},
        ),
    )


def _offloaded(options: Options, prompt_tokens: int) -> list[Row]:
    """Return the rows of a plan whose KV is in the host's memory, on an engine of its own."""
    if options.engine != "vllm":
        return _not_measured(options, f"the engine {options.engine} keeps KV on its device only")
    args = parse_engine_args(options.engine_args)
    if not args.keys() & OFFLOADS:
        args["kv_offloading_size"] = HOST_GIB
    longest = prompt_tokens + options.tokens + _SPARE_TOKENS
    try:
        engine = make_engine(
            "vllm", model=options.model or resource(MODEL), max_model_len=longest,
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
                # Words that nobody has had before, so that nothing is loaded for them.
                others = words(engine, prompt_tokens, first=100 * (1 + repeat * PASSES + turn))
                plan = SuspendedPlan(engine, prompt, None, options.tokens)
                plan.evict(others)
                found.append(taken(plan.until_token))
                plan.end()
            if repeat:
                row = _row(OFFLOADED, MEASURED, *map(median, zip(*found, strict=True)))
                rows.append({**row, "seed": repeat - 1})
    finally:
        engine.close()
    return rows


def _not_measured(options: Options, reason: str) -> list[Row]:
    row = _row(OFFLOADED, f"not measured: {reason}")
    return [{**row, "seed": repeat} for repeat in range(options.repeats)]


class _Bench:
    """An engine, maybe stock vLLM beside it, and a plan that is suspended again and again."""

    def __init__(self, options: Options) -> None:
        if options.engine == "simulated":
            raise ExperimentError("a simulated engine takes no time: name vllm or transformers")
        self._said = options.tokens
        model, args = options.model or resource(MODEL), parse_engine_args(options.engine_args)
        args = {name: value for name, value in args.items() if name not in OFFLOADS}
        limits = Limits(
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
                f"the model takes {longest} tokens: too few for {options.tokens} of an answer"
            )
        self._prompt = words(self._engine, self.prompt_tokens)
        self._prefix = self._engine.pin_prefix(self._prompt[:-OWN_TOKENS])
        self._stock: StockVllm | None = None
        if options.engine == "vllm":
            import_core()
            from timely_llm.engines.vllm_stock import StockVllm

            stock_limits = Limits(longest, limits.kv_tokens, limits.max_rows)
            self._stock = StockVllm(model, "float32", stock_limits, args)

    def rows(self, passes: int) -> list[Row]:
        """Return a row for each way, with the medians of so many passes."""
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
        """Suspend a plan and go on with it in each way; see `taken`."""
        plan = SuspendedPlan(self._engine, self._prompt, self._prefix, self._said)
        found = {KEPT: taken(plan.until_token)}
        found[PINNED] = taken(lambda: plan.anew(self._prefix))
        found[PREFILLED] = taken(lambda: plan.anew(None))
        plan.end()
        if self._stock is not None:
            found[CACHED] = self._of_stock(self._stock)
        return found

    def _of_stock(self, stock: StockVllm) -> tuple[int, float, float]:
        """The same on stock vLLM."""
        first = stock.ask(self._prompt, self._said + _SPARE_TOKENS // 2)
        said: list[int] = []
        while len(said) < self._said:
            said += stock.step()
        stock.stop(first)
        asked: list[str] = []

        def resubmit() -> int:
            whole = [*self._prompt, *said]
            asked.append(stock.ask(whole, 2))
            while not stock.step():
                pass
            return len(whole) - 1 - stock.cached

        cost = taken(resubmit)
        stock.stop(asked[0])
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
    question="How soon does a suspended plan go on, and what is computed again for it? (paper 001,"
    " §4.1)",
    run=run,
    defaults=Options(engine="vllm", tokens=15),
    understands=OF_ENGINES,
)
