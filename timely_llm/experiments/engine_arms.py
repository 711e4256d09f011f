"""One load on an engine in four ways: the serving loop, bare steps, and stock vLLM's two."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle, islice
from typing import TYPE_CHECKING, Protocol, TypeVar

from timely_llm.core.clock import WallClock
from timely_llm.core.errors import EngineError
from timely_llm.core.request import Result
from timely_llm.core.stream import ChatMessage, StreamRequest
from timely_llm.engines.contract import Engine
from timely_llm.policies.contract import StepPlan
from timely_llm.policies.fcfs import Fcfs
from timely_llm.serving.loop import Loop
from timely_llm.serving.sink import Nobody

if TYPE_CHECKING:
    from timely_llm.engines.vllm_stock import StockVllm

STOCK, STOCK_CORE, OURS, OUR_STEPS = "stock", "stock core", "ours", "our steps"

_T = TypeVar("_T")
_TEXT = (
    "The robot looks at the table, takes the red cup, and brings it to the kitchen, where it waits"
    " until somebody says what comes next."
)
_WORDS = _TEXT.split()


class Arm(Protocol):
    """A way to serve a load: every request says `tokens` tokens, whatever the model ends with."""

    def ask(self, prompts: Sequence[str], tokens: int) -> None:
        """Take requests on."""
        ...

    def step(self) -> int:
        """Make a step; return how many tokens it made."""
        ...


@dataclass
class Spent:
    """What an arm took for a load.

    Attributes:
        wall_s: seconds from asking to the last token, the other arm's turns left out.
        cpu_s: seconds of the CPU in them, of all threads of the process.
        decode_s: seconds of each step in which every request got a token.
        decode_cpu_s: seconds of the CPU of each of these.
        tokens: made.
    """

    wall_s: float = 0.0
    cpu_s: float = 0.0
    decode_s: list[float] = field(default_factory=list)
    decode_cpu_s: list[float] = field(default_factory=list)
    tokens: int = 0


def compare(arms: Sequence[Arm], prompts: Sequence[Sequence[str]], tokens: int) -> list[Spent]:
    """Serve a load by each arm, which take turns after each step; who is first changes too.

    So whatever else the machine does hits all alike.

    Args:
        arms: to compare.
        prompts: of the requests of each arm, as many for each.
        tokens: that each request says.

    Raises:
        EngineError: an engine makes other tokens than these.
    """
    spent = [Spent() for _ in arms]
    order = list(zip(arms, spent, prompts, strict=True))
    for arm, of, texts in order:
        _timed(of, partial(arm.ask, texts, tokens))
    wanted = len(prompts[0]) * tokens
    idle = 0
    while any(of.tokens < wanted for of in spent):
        idle += 1
        for arm, of, _ in order:
            if of.tokens < wanted:
                wall_s, cpu_s, made = _timed(of, arm.step)
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
    """Return texts of so many words which differ from the first word on."""
    return [
        " ".join((f"{marks}{place}:", *islice(cycle(_WORDS), first, first + words)))
        for place in range(number)
        for first in (place % len(_WORDS),)
    ]


class LoopArm:
    """The whole serving loop: admission, the policy fcfs, its step plan, delivery of text.

    Args:
        engine: one that nobody else uses; its model cannot end an answer any more.
    """

    def __init__(self, engine: Engine) -> None:
        engine.tokenizer.eos_ids = frozenset()
        self._sink = _Ends()
        self._loop = Loop(engine, Fcfs(), self._sink, WallClock())
        self._asked = 0

    def ask(self, prompts: Sequence[str], tokens: int) -> None:
        """Take requests on."""
        for text in prompts:
            self._asked += 1
            name = f"loop-{self._asked}"
            messages = (ChatMessage("user", text),)
            self._loop.admit(StreamRequest(name, name, messages, max_tokens=tokens))

    def step(self) -> int:
        """Make a step; return how many tokens it made."""
        before = self._loop.stats.generated_tokens
        self._loop.turn()
        if self._sink.error:
            raise EngineError(f"a request cannot be served: {self._sink.error}")
        return self._loop.stats.generated_tokens - before


class StepsArm:
    """Our engine's steps alone: nobody but a loop of few lines says what they do."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._left: dict[str, int] = {}
        self._said: dict[str, int] = {}
        self._tokens = 0
        self._asked = 0

    def ask(self, prompts: Sequence[str], tokens: int) -> None:
        """Take requests on."""
        self._tokens = tokens
        for text in prompts:
            self._asked += 1
            key = f"steps-{self._asked}"
            token_ids = self._engine.tokenizer.encode_chat([{"role": "user", "content": text}])
            self._left[key] = self._engine.add(key, token_ids)
            self._said[key] = 0

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
            self._said[key] += 1
            if self._said[key] == self._tokens:
                self._engine.remove(key)
                del self._left[key], self._said[key]
        return len(result.tokens)


class StockArm:
    """Stock vLLM, whose own scheduler decides.

    Args:
        stock: the engine.
        encode: makes tokens of a prompt.
        text: make the text of tokens too, as for whoever asks vLLM's `LLMEngine`.
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
        """Forget the requests, which vLLM does not tell of if no text was made."""
        for request_id in self._ids:
            self._stock.stop(request_id)
        self._ids.clear()


class _Ends(Nobody):
    """Remembers how a request ended that was not served to its end."""

    error = ""

    def ended(self, result: Result) -> None:
        """Remember an error."""
        self.error = self.error or result.error_msg


def _timed(of: Spent, work: Callable[[], _T]) -> tuple[float, float, _T]:
    """Do some work and count it; return its seconds, those of the CPU, and what came of it."""
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    made = work()
    wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
    of.wall_s += wall_s
    of.cpu_s += cpu_s
    return wall_s, cpu_s, made
