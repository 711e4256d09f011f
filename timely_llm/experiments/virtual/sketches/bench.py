"""The event loop: questions come, sites answer calls, and people get words in order."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from operator import attrgetter
from typing import Protocol

from timely_llm.cloud.contract import CloudEnd, CloudQuestion, CloudWords
from timely_llm.cloud.simulated import BatchPace, CloudPath, SimulatedCloud
from timely_llm.core.request import ChatMessage
from timely_llm.experiments.virtual.clients import SimulationError
from timely_llm.experiments.virtual.sketches.questions import BenchQuestion
from timely_llm.progressive.answer import Assembly

_WORD = "word "
_BYTES_A_TOKEN = len(_WORD)
_PATIENCE_S = 1e6


class OpeningWords(Protocol):
    """The beginning of an answer that an edge says before a sketch is expanded."""

    @property
    def model(self) -> str:
        """Model that says it."""
        ...

    @property
    def tokens(self) -> int:
        """Tokens that it has so far."""
        ...

    def follow(self, now: float) -> None:
        """Record that words of the answer itself are there: it ends with its sentence."""
        ...


@dataclass(eq=False)
class ShownAnswer:
    """What one person gets.

    Attributes:
        question: what was asked.
        shown_s: when each word was shown.
        end_s: when the answer was whole; NaN: never.
        cloud_tokens, edge_tokens: made for it.
        sketch_tokens: of its sketch; 0: none.
        model: that wrote what was shown; empty: the cloud's.
        opening: the edge's own beginning, the part before the first; None: there is none.
    """

    question: BenchQuestion
    shown_s: list[float] = field(default_factory=list)
    end_s: float = math.nan
    cloud_tokens: int = 0
    edge_tokens: int = 0
    sketch_tokens: int = 0
    model: str = ""
    parts: Assembly = field(default_factory=Assembly)
    opening: OpeningWords | None = None

    @property
    def first_part(self) -> int:
        """Number of the first part of the answer itself."""
        return 0 if self.opening is None else 1

    def show(self, part: int, now: float) -> None:
        """Take a word of a part; with the first one of the answer itself the opening may end."""
        self._shown(self.parts.push(part, _WORD), now)
        if part and self.opening is not None:
            self.opening.follow(now)

    def end(self, part: int, now: float) -> None:
        """End a part; the answer ends with the last one."""
        self._shown(self.parts.end(part), now)
        if self.parts.done:
            self.end_s = now

    def _shown(self, texts: Sequence[tuple[int, str]], now: float) -> None:
        for _, text in texts:
            self.shown_s += [now] * (len(text) // _BYTES_A_TOKEN)


@dataclass(eq=False)
class SiteCall:
    """What is asked of a site.

    Attributes:
        tokens: to be made.
        prompt_tokens: that the site has no KV of.
        word: called with each token's number, from 1 on, and its time.
        end: called with the time of the end.
        made: tokens so far.
        key: of it at its site.
        over: it was given up.
    """

    tokens: int
    prompt_tokens: int
    word: Callable[[int, float], None]
    end: Callable[[float], None]
    made: int = 0
    key: str = ""
    over: bool = False

    @property
    def through(self) -> bool:
        """Whether no token of it follows."""
        return self.over or self.made >= self.tokens


class DecodingSite:
    """A cloud, or an edge with one model.

    Args:
        name: unique.
        pace: seconds of steps.
        rows: most calls of a step.
        path: from the front to the site.
    """

    def __init__(self, name: str, pace: BatchPace, rows: int, path: CloudPath) -> None:
        self.name = name
        self.pace = pace
        self.max_rows = rows
        self.calls: dict[str, SiteCall] = {}
        self.cloud = SimulatedCloud(
            pace, lambda asked: [_WORD] * self.calls[asked.key].tokens, rows, path, (),
            lambda asked: self.calls[asked.key].prompt_tokens,
        )  # fmt: skip
        self.rtt_s = path.rtt_s
        self.path = path
        self.active = True
        self.prefill_token_s = float(getattr(pace, "prefill_token_s", 0.0))
        self.next_s = math.inf
        self._number = count()

    @property
    def requests(self) -> int:
        """Calls that it has: with those of `timely_llm.progressive.choice`, it is an `EdgeView`."""
        return len(self.calls)

    def step_s(self, rows: int) -> float:
        """Return the seconds of a step of some rows."""
        return self.pace.step_s(rows)

    def row_s(self, tokens: float) -> float:
        """Return the seconds of an answer in one row, with nothing beside it."""
        return tokens * self.pace.step_s(1)

    def call(self, one: SiteCall, now: float) -> None:
        """Ask something of it."""
        one.key = key = f"{self.name}-{next(self._number)}"
        self.calls[key] = one
        text = "w" * (_BYTES_A_TOKEN * one.prompt_tokens)
        message = (ChatMessage("user", text),)
        self.cloud.ask(CloudQuestion(key, message, one.tokens, _PATIENCE_S), now)
        self.next_s = self.cloud.next_s()

    def give_up(self, one: SiteCall) -> None:
        """Make no more of a call; its end is not called."""
        one.over = True
        if self.calls.pop(one.key, None) is not None:
            self.cloud.cancel(one.key)
            self.next_s = self.cloud.next_s() if self.calls else math.inf

    def poll(self, now: float) -> int:
        """Let its calls take what arrived; return the number of ended calls."""
        ended = 0
        for event in self.cloud.poll(now):
            one = self.calls.get(event.key)
            if one is None:
                continue  # given up after an event of this poll
            match event:
                case CloudWords(at_s=at_s):
                    one.made += 1
                    one.word(one.made, at_s)
                case CloudEnd(at_s=at_s):
                    del self.calls[event.key]
                    one.end(at_s)
                    ended += 1
        self.next_s = self.cloud.next_s() if self.calls else math.inf
        return ended


class Method(Protocol):
    """How questions are answered."""

    sites: list[DecodingSite]

    def begin(self, answer: ShownAnswer, now: float) -> None:
        """Take a question that has come."""
        ...

    def turn(self, now: float) -> None:
        """Give work to sites that have room: called after whatever happened."""
        ...


class Bench:
    """Runs a method on questions.

    Args:
        asked: the questions.
    """

    def __init__(self, asked: Sequence[BenchQuestion]) -> None:
        self.answers = [ShownAnswer(one) for one in asked]
        self._timers: list[tuple[float, int, Callable[[float], None]]] = []
        self._order = count()

    def at(self, time_s: float, happen: Callable[[float], None]) -> None:
        """Let something happen at a time."""
        heapq.heappush(self._timers, (time_s, next(self._order), happen))

    def run(self, method: Method) -> list[ShownAnswer]:
        """Return the answers.

        Raises:
            SimulationError: a question is left that the method never answers.
        """
        for answer in self.answers:
            self.at(answer.question.at_s, partial(method.begin, answer))
        while True:
            nearest = min(method.sites, key=_next_s)
            now = nearest.next_s
            if self._timers and self._timers[0][0] <= now:
                now, _, happen = heapq.heappop(self._timers)
                happen(now)
            elif now == math.inf:
                break
            elif not nearest.poll(now):
                continue
            method.turn(now)
        left = sum(1 for answer in self.answers if math.isnan(answer.end_s))
        if left:
            raise SimulationError(f"{left} questions are left, and nothing will ever happen")
        return self.answers


_next_s = attrgetter("next_s")
