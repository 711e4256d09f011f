"""A cloud without a model: its words come from a function, its times from a profile and a script.

It decodes a continuous batch step by step on the clock of its caller, which may be a virtual one.
"""

from __future__ import annotations

import heapq
import math
import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Literal, Protocol

from timely_llm.cloud.contract import CloudEnd, CloudEvent, CloudQuestion, CloudWords
from timely_llm.core.errors import ConfigurationError

_TOKEN = re.compile(r"\s*\S+\s*")
_BITS_A_BYTE = 8


class BatchPace(Protocol):
    """Seconds of a step; `timely_llm.engines.simulated.Profile` is one."""

    def step_s(self, rows: int, prefill_tokens: int = 0) -> float:
        """Return the seconds of a step with some rows that decode and some prompt tokens."""
        ...


@dataclass(frozen=True)
class CloudPath:
    """The way to a cloud and back.

    Attributes:
        rtt_s: seconds of an empty message there and back.
        mbit: bandwidth each way, Mbit/s.

    Raises:
        ConfigurationError: a number is impossible.
    """

    rtt_s: float = 0.02
    mbit: float = 100.0

    def __post_init__(self) -> None:
        if not (0.0 <= self.rtt_s < math.inf and self.mbit > 0.0):
            raise ConfigurationError(
                "a path needs a finite round trip from 0 s on and a bandwidth above 0 Mbit/s, not"
                f" {self.rtt_s} s and {self.mbit} Mbit/s"
            )

    def sent_s(self, text: str) -> float:
        """Return the seconds for which a text keeps the link busy."""
        return len(text.encode()) * _BITS_A_BYTE / (self.mbit * 1e6)


FaultKind = Literal["gone", "slow", "error", "cut"]


@dataclass(frozen=True)
class CloudFault:
    """What goes wrong for some time.

    Attributes:
        kind: `gone`: messages are lost both ways. `slow`: words arrive `delay_s` later. `error`: a
            question is refused after a round trip. `cut`: an answer ends after `tokens` tokens.
        from_s: when it begins, on the caller's clock.
        to_s: when it is over; infinite: never.
        delay_s: of `slow`, seconds.
        tokens: of `cut`.
        reason: of `error` and `cut`, for users: one sentence.
    """

    kind: FaultKind
    from_s: float = 0.0
    to_s: float = math.inf
    delay_s: float = 10.0
    tokens: int = 8
    reason: str = "the cloud answered 500"

    def at(self, time_s: float) -> bool:
        """Return whether the fault holds at a time."""
        return self.from_s <= time_s < self.to_s


@dataclass(eq=False)
class _Row:
    """A question on its way through the cloud; once `over` is set nothing of it is passed on."""

    question: CloudQuestion
    tokens: Sequence[str]
    prompt_tokens: int
    made: int = 0
    sent_s: float = 0.0
    lost: bool = False
    over: bool = False


def words_of(question: CloudQuestion) -> int:
    """Return the words of a question's messages."""
    return sum(len(message.content.split()) for message in question.messages)


class SimulatedCloud:
    """A cloud on the caller's clock; see `timely_llm.cloud.contract.Cloud`.

    The batch is continuous: a question joins at the next step as soon as a row is free, its prompt
    is computed in that step beside the rows that decode, and it leaves with its last token.

    Args:
        pace: seconds of steps.
        answers: the whole answer to a question; in a sequence of texts, each text is one token.
        rows: most questions of a step; others wait in order of arrival.
        path: the way to it and back.
        faults: the script of what goes wrong.
        prompt_tokens: tokens that a question's prompt takes.

    Raises:
        ConfigurationError: it has no row.
    """

    def __init__(
        self,
        pace: BatchPace,
        answers: Callable[[CloudQuestion], str | Sequence[str]],
        rows: int = 20,
        path: CloudPath | None = None,
        faults: Sequence[CloudFault] = (),
        prompt_tokens: Callable[[CloudQuestion], int] = words_of,
    ) -> None:
        if rows < 1:
            raise ConfigurationError(f"a cloud needs at least one row, not {rows}")
        self._pace = pace
        self._answers = answers
        self._most = rows
        self._path = path or CloudPath()
        self._faults = tuple(faults)
        self._prompt_tokens = prompt_tokens
        self._number = count()
        self._open: dict[str, _Row] = {}
        self._coming: list[tuple[float, int, _Row]] = []
        self._queue: deque[_Row] = deque()
        self._rows: list[_Row] = []
        self._step: list[_Row] = []
        self._now = -math.inf
        self._step_ends_s = math.inf
        self._arrivals: list[tuple[float, int, _Row, CloudEvent]] = []

    @property
    def decoding(self) -> int:
        """Questions that have a row."""
        return len(self._rows)

    @property
    def waiting(self) -> int:
        """Questions that wait for a row."""
        return len(self._queue)

    def answer_s(self, tokens: float) -> float:
        """Return the seconds in which one more answer of some tokens is made beside the others.

        The time until it gets a row is not part of it.
        """
        rows = min(self.decoding + self.waiting + 1, self._most)
        return tokens * self._pace.step_s(rows)

    def ask(self, question: CloudQuestion, now: float) -> None:
        """Begin a question; see `Cloud.ask`.

        Raises:
            ConfigurationError: a question with this key has not ended.
        """
        if question.key in self._open:
            raise ConfigurationError(f"question {question.key!r} is being answered already")
        said = self._answers(question)
        tokens = _TOKEN.findall(said) if isinstance(said, str) else said
        row = _Row(question, tokens[: question.max_tokens], self._prompt_tokens(question))
        self._open[question.key] = row
        late = f"the cloud's answer was not whole within {question.timeout_s:g} s"
        self._end(row, now + question.timeout_s, 0, late)
        if self._fault("gone", now):
            row.lost = True
            return
        sent_s = sum(self._path.sent_s(message.content) for message in question.messages)
        there_s = now + sent_s + self._path.rtt_s / 2
        if refused := self._fault("error", there_s):
            self._end(row, there_s + self._path.rtt_s / 2, 0, refused.reason)
            return
        heapq.heappush(self._coming, (there_s, next(self._number), row))

    def poll(self, now: float) -> list[CloudEvent]:
        """Return what arrived since the last call; see `Cloud.poll`."""
        while self._next_step_s() <= now:
            self._turn()
        events: list[CloudEvent] = []
        while self._arrivals and self._arrivals[0][0] <= now:
            _, _, row, event = heapq.heappop(self._arrivals)
            if not row.over:
                if isinstance(event, CloudEnd):
                    self._drop(row)
                events.append(event)
        return events

    def cancel(self, key: str) -> None:
        """Give a question up; see `Cloud.cancel`."""
        if key in self._open:
            self._drop(self._open[key])

    def next_s(self) -> float:
        """Return when `poll` may have something new; see `Cloud.next_s`."""
        first_s = self._arrivals[0][0] if self._arrivals else math.inf
        return min(first_s, self._next_step_s())

    def close(self) -> None:
        """Cancel all questions."""
        for row in list(self._open.values()):
            self._drop(row)

    def _drop(self, row: _Row) -> None:
        row.over = True
        del self._open[row.question.key]
        if row in self._rows:
            self._rows.remove(row)
        elif row in self._queue:
            self._queue.remove(row)

    def _next_step_s(self) -> float:
        """Return when a step ends or, without one, when the next question comes."""
        if self._step:
            return self._step_ends_s
        return self._coming[0][0] if self._coming else math.inf

    def _turn(self) -> None:
        """Complete the step, if there is one, and begin the next."""
        self._now = self._next_step_s()
        for row in self._step:
            if not row.over:
                self._make(row)
        while self._coming and self._coming[0][0] <= self._now:
            row = heapq.heappop(self._coming)[2]
            if not row.over:
                self._queue.append(row)
        while self._queue and len(self._rows) < self._most:
            self._rows.append(self._queue.popleft())
        self._step = list(self._rows)
        prompts = sum(row.prompt_tokens for row in self._step if not row.made)
        decoding = sum(1 for row in self._step if row.made)
        if self._step:
            self._step_ends_s = self._now + self._pace.step_s(decoding, prompts)

    def _make(self, row: _Row) -> None:
        """Send the next token of a row, and its end after the last one."""
        if row.made < len(row.tokens):
            text = row.tokens[row.made]
            row.made += 1
            at_s = self._sent(row, text)
            if not row.lost:
                self._arrive(at_s, row, CloudWords(row.question.key, text, at_s))
        if row.made >= len(row.tokens):
            self._leave(row)
        elif (cut := self._fault("cut", self._now)) and row.made >= cut.tokens:
            self._leave(row, cut.reason)

    def _leave(self, row: _Row, error: str = "") -> None:
        """Give up a row, and send the end of its answer."""
        self._rows.remove(row)
        at_s = self._sent(row, "")
        if not row.lost:
            self._end(row, at_s, row.made, error)

    def _sent(self, row: _Row, text: str) -> float:
        """Send a text, and return when it arrives; what follows a lost one never does."""
        now = self._now
        if self._faults:
            row.lost = row.lost or self._fault("gone", now) is not None
            slow = self._fault("slow", now)
            now += slow.delay_s if slow else 0.0
        row.sent_s = max(row.sent_s, now) + self._path.sent_s(text)
        return row.sent_s + self._path.rtt_s / 2

    def _end(self, row: _Row, at_s: float, tokens: int, error: str) -> None:
        end = CloudEnd(row.question.key, at_s, row.prompt_tokens, tokens, error)
        self._arrive(at_s, row, end)

    def _arrive(self, at_s: float, row: _Row, event: CloudEvent) -> None:
        heapq.heappush(self._arrivals, (at_s, next(self._number), row, event))

    def _fault(self, kind: FaultKind, time_s: float) -> CloudFault | None:
        """Return the fault of a kind at a time, if there is one."""
        for fault in self._faults:
            if fault.kind == kind and fault.at(time_s):
                return fault
        return None
