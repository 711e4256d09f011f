"""`engine-overhead`: our serving loop on vLLM beside stock vLLM under the same load."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle, islice
from statistics import median
from typing import TYPE_CHECKING, Protocol, TypeVar

from timely_llm.core.clock import WallClock, timed
from timely_llm.core.errors import EngineError
from timely_llm.core.events.run_event import RunEvent
from timely_llm.core.events.schema import EndEvent
from timely_llm.core.request import ChatMessage, StreamRequest
from timely_llm.core.step import StepPlan
from timely_llm.engines.contract import Engine
from timely_llm.engines.registry import make_engine, parse_engine_args
from timely_llm.engines.sequences import EngineLimits
from timely_llm.engines.vllm.version import import_core
from timely_llm.experiments.contract import EngineOptions, Experiment, ReportProgress
from timely_llm.experiments.results.document import Row, RunDocument
from timely_llm.policies.fcfs import Fcfs
from timely_llm.serving.loop import Loop
from timely_llm.serving.publisher import Stats

if TYPE_CHECKING:
    from timely_llm.engines.vllm.stock import StockVllm


STOCK, STOCK_CORE, OURS, OUR_STEPS = "stock", "stock core", "ours", "our steps"

T = TypeVar("T")
_TEXT = (
    "The robot looks at the table, takes the red cup, and brings it to the kitchen, where it waits"
    " until a person says what comes next."
)
_WORDS = _TEXT.split()


class Arm(Protocol):
    """A way to serve a load. The answer of every request has `tokens` tokens; EOS is ignored."""

    def ask(self, prompts: Sequence[str], tokens: int) -> None:
        """Admit requests."""
        ...

    def step(self) -> int:
        """Make a step; return the number of its new tokens."""
        ...


@dataclass
class LoadCost:
    """The cost of a load on an arm.

    Attributes:
        wall_s: seconds from admission to the last token, without the turns of other arms.
        cpu_s: CPU seconds of all threads of the process in that time.
        decode_s: seconds of each step in which every request got a token.
        decode_cpu_s: CPU seconds of each such step.
        tokens: tokens generated.
    """

    wall_s: float = 0.0
    cpu_s: float = 0.0
    decode_s: list[float] = field(default_factory=list)
    decode_cpu_s: list[float] = field(default_factory=list)
    tokens: int = 0


def compare(arms: Sequence[Arm], prompts: Sequence[Sequence[str]], tokens: int) -> list[LoadCost]:
    """Serve a load with each arm. Arms take turns after each step, in alternating order.

    Other load of the machine so affects all arms alike.

    Args:
        arms: the arms to compare.
        prompts: the prompts of each arm's requests, equally many for each.
        tokens: tokens of each answer.

    Raises:
        EngineError: an engine generates another number of tokens.
    """
    spent = [LoadCost() for _ in arms]
    order = list(zip(arms, spent, prompts, strict=True))
    for arm, of, texts in order:
        _timed(of, partial(arm.ask, texts, tokens))
    wanted = len(prompts[0]) * tokens
    idle = 0
    while any(of.tokens < wanted for of in spent):
        idle += 1
        for arm, of, _ in order:
            if of.tokens < wanted:
                made, wall_s, cpu_s = _timed(of, arm.step)
                idle = 0 if made else idle
                of.tokens += made
                if made == len(prompts[0]):
                    of.decode_s.append(wall_s)
                    of.decode_cpu_s.append(cpu_s)
        order.reverse()
        if idle > wanted + sum(map(len, prompts[0])):  # more steps than tokens of all prompts
            raise EngineError("the engine makes steps but no tokens")
    if any(of.tokens != wanted for of in spent):
        raise EngineError(f"an engine made {max(of.tokens for of in spent)} tokens, not {wanted}")
    return spent


def prompts(number: int, marks: str, words: int = 40) -> list[str]:
    """Return texts of `words` words that differ from their first word on."""
    return [
        " ".join((f"{marks}{place}:", *islice(cycle(_WORDS), first, first + words)))
        for place in range(number)
        for first in (place % len(_WORDS),)
    ]


class LoopArm:
    """The whole serving loop: admission, the policy fcfs, its step plan, delivery of text.

    Args:
        engine: an engine for this arm alone; the arm disables its EOS tokens.
    """

    def __init__(self, engine: Engine) -> None:
        engine.tokenizer.eos_ids = frozenset()
        self._loop = Loop(engine, Fcfs(), WallClock())
        self._stats = Stats()
        self._error = ""
        self._asked = 0

    def ask(self, prompts: Sequence[str], tokens: int) -> None:
        """Take requests on."""
        for text in prompts:
            self._asked += 1
            name = f"loop-{self._asked}"
            messages = (ChatMessage("user", text),)
            self._loop.admit(StreamRequest(name, name, messages, max_tokens=tokens))
        self._take(self._loop.take_events())

    def step(self) -> int:
        """Make a step; return how many tokens it made."""
        before = self._stats.generated_tokens
        self._take(self._loop.turn().events)
        if self._error:
            raise EngineError(f"a request cannot be served: {self._error}")
        return self._stats.generated_tokens - before

    def _take(self, events: Iterable[RunEvent]) -> None:
        for event in events:
            self._stats.take(event)
            if isinstance(event, EndEvent):
                self._error = self._error or event.message


class StepsArm:
    """Our engine's steps alone, planned by a loop of a few lines."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._left: dict[str, int] = {}
        self._made: dict[str, int] = {}
        self._tokens = 0
        self._asked = 0

    def ask(self, prompts: Sequence[str], tokens: int) -> None:
        """Take requests on."""
        self._tokens = tokens
        for text in prompts:
            self._asked += 1
            key = f"steps-{self._asked}"
            token_ids = self._engine.tokenizer.encode_chat([{"role": "user", "content": text}])
            self._left[key] = self._engine.add(key, token_ids).to_compute
            self._made[key] = 0

    def step(self) -> int:
        """Make a step; return how many tokens it made."""
        capacity, entries = self._engine.capacity, []
        budget = capacity.max_step_tokens
        for key, left in islice(self._left.items(), capacity.max_rows):
            if not budget:
                break
            entries.append((key, min(left, budget)))
            budget -= entries[-1][1]
        self._engine.submit(StepPlan(tuple(entries)))
        result = self._engine.collect()
        for failure in result.failures.values():
            raise EngineError(f"a step cannot be made: {failure}")
        for key, computed in result.computed.items():
            self._left[key] -= computed
        for key in result.tokens:
            self._left[key] += 1
            self._made[key] += 1
            if self._made[key] == self._tokens:
                self._engine.remove(key)
                del self._left[key], self._made[key]
        return len(result.tokens)


class StockArm:
    """Stock vLLM with its own scheduler.

    Args:
        stock: the engine.
        engine: our engine; its tokenizer encodes prompts.
        text: detokenize, as vLLM's `LLMEngine` does.
    """

    def __init__(self, stock: StockVllm, engine: Engine, text: bool) -> None:
        self._stock = stock
        self._tokenizer = engine.tokenizer
        self._text = text
        self._ids: list[str] = []

    def ask(self, prompts: Sequence[str], tokens: int) -> None:
        """Take requests on."""
        for text in prompts:
            token_ids = self._tokenizer.encode_chat([{"role": "user", "content": text}])
            self._ids.append(self._stock.ask(token_ids, tokens))

    def step(self) -> int:
        """Make a step; return how many tokens it made."""
        return len(self._stock.step() if self._text else self._stock.core_step())

    def end(self) -> None:
        """Stop the requests. vLLM does not report their ends if no text was made."""
        for request_id in self._ids:
            self._stock.stop(request_id)
        self._ids.clear()


def _timed(of: LoadCost, work: Callable[[], T]) -> tuple[T, float, float]:
    """Call `work`, add its cost to `of`, and return as `timed` does."""
    made, wall_s, cpu_s = timed(work)
    of.wall_s += wall_s
    of.cpu_s += cpu_s
    return made, wall_s, cpu_s


PROMPT_TOKENS = 256
"""Most tokens of a prompt."""

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
    "requests": "requests at once, each for the same number of tokens",
    "arm": f"{STOCK}: vLLM's LLMEngine, its own scheduler, text delivered in each step; {OURS}: the"
    f" serving loop with the policy fcfs: admission, policy, step plan, delivery of text;"
    f" {STOCK_CORE}: vLLM's EngineCore, no text; {OUR_STEPS}: the engine's steps alone, no text",
    "tokens_per_second": "tokens over the seconds from admission to the last token, with prefill",
    "step_ms": "milliseconds of a step in which every request gets a token; median",
    "step_cpu_ms": "the same, CPU milliseconds of all threads: other programs do not count",
    "share_of_stock": f"tokens per second over those of {STOCK} ({OUR_STEPS}: of {STOCK_CORE}) in"
    " the same repeat",
    "cpu_share_of_stock": "the same, per CPU second",
    "over_stock_us": "CPU microseconds of such a step, less those of stock in the same repeat:"
    " scheduling and accounting, which hardly depend on the model",
}
NOTES = (
    "The aim is a share of stock of at least 0.97.",
    f"{STOCK} and {OURS} take turns after each step, and so do {STOCK_CORE} and {OUR_STEPS}: other"
    " load of the machine affects both alike. The first repeat warms up and does not count.",
    "All is measured twice, with ours started first and with stock vLLM started first: the memory"
    " that an engine gets changes a step by some per cent. Our loop writes no event log.",
    "Prompts differ from their first words on, so that no prefix cache shortens them. EOS tokens"
    " are disabled.",
    f"For an engine that is not vLLM, only {OURS} and {OUR_STEPS} are measured.",
)


@dataclass(frozen=True)
class EngineOverheadOptions(EngineOptions):
    """Options of `engine-overhead`.

    Attributes:
        requests: numbers of requests that are served at once.
    """

    requests: tuple[int, ...] = (1, 8, 64, 256)


def run(options: EngineOverheadOptions, progress: ReportProgress) -> RunDocument:
    """Return the cost of the serving loop on an engine, beside stock vLLM."""
    rows: list[Row] = []
    starts = (False, True) if options.engine == "vllm" else (False,)
    rounds = [(start, n) for start in starts for n in sorted(options.requests)]
    bench: _OverheadBench | None = None
    try:
        for place, (stock_first, requests) in enumerate(rounds):
            if bench is None or bench.stock_first != stock_first:
                if bench is not None:
                    bench.close()
                bench = _OverheadBench(options, stock_first)
            for repeat in range(options.repeats + 1):
                progress(
                    place * (options.repeats + 1) + repeat, len(rounds) * (options.repeats + 1)
                )
                found = bench.rows(requests, f"{requests}-{repeat}-")
                if repeat:  # repeat 0 warms up
                    seed = stock_first * options.repeats + repeat - 1
                    rows += [{**row, "seed": seed} for row in found]
    finally:
        if bench is not None:
            bench.close()
    progress(1, 1)
    return EXPERIMENT.document(
        f"{options.engine}, {options.model_name}",
        {
            **options.setup,
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


class _OverheadBench:
    """The engines, and the pairs of arms to compare."""

    def __init__(self, options: EngineOverheadOptions, stock_first: bool) -> None:
        self.stock_first = stock_first
        self._options = options
        most = max(options.requests)
        self._limits = EngineLimits(
            kv_tokens=max(131_072, most * (options.tokens + PROMPT_TOKENS)), max_rows=most
        )
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
            self._options.engine, model=self._options.model_path, kv_tokens=limits.kv_tokens,
            max_rows=limits.max_rows, max_step_tokens=limits.max_step_tokens,
            engine_args=self._args,
        )  # fmt: skip
        opened.callback(engine.close)
        return engine

    def _start_stock(self, opened: ExitStack) -> StockVllm:
        import_core()
        from timely_llm.engines.vllm.stock import StockVllm

        stock = StockVllm(self._options.model_path, "float32", self._limits, self._args)
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


def _measures(spent: LoadCost, stock: LoadCost | None) -> Row:
    return {
        "tokens_per_second": spent.tokens / spent.wall_s,
        "step_ms": _median_ms(spent.decode_s),
        "step_cpu_ms": _median_ms(spent.decode_cpu_s),
        "share_of_stock": stock.wall_s / spent.wall_s if stock else None,
        "cpu_share_of_stock": stock.cpu_s / spent.cpu_s if stock else None,
        "over_stock_us": _over_us(spent, stock),
    }


def _over_us(spent: LoadCost, stock: LoadCost | None) -> float | None:
    ours, theirs = _median_ms(spent.decode_cpu_s), _median_ms(stock.decode_cpu_s if stock else ())
    return None if ours is None or theirs is None else 1e3 * (ours - theirs)


def _median_ms(seconds: Sequence[float]) -> float | None:
    return 1e3 * median(seconds) if seconds else None


EXPERIMENT = Experiment(
    name="engine-overhead",
    question="How many tokens a second does the serving loop reach on vLLM, beside stock vLLM?",
    run=run,
    defaults=EngineOverheadOptions(),
    reasons={"trace": "since it measures an engine with tasks of its own"},
)
