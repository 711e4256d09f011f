"""What a recorded bag says about one request: plain facts, each with the time it was received."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Generic, TypeVar, cast

from timely_llm.core.request import ReportState
from timely_llm.traces.model import Conversation, Job

Line = TypeVar("Line", Job, Conversation)
M = TypeVar("M")
_TIME_NS = attrgetter("time_ns")


@dataclass(frozen=True)
class Asked:
    """A request as it was sent to the server, or taken by it: the message."""

    time_ns: int
    message: Any


@dataclass(frozen=True)
class Delivered:
    """A segment, or a token of an answer, as the server published it; a segment may come twice.

    Attributes:
        epoch: of a segment; 0 of tokens.
    """

    time_ns: int
    epoch: int
    index: int
    text: str
    final: bool


@dataclass(frozen=True)
class Reported:
    """A robot's word about a segment; `duration_s` is a number >= 0, or not known."""

    time_ns: int
    epoch: int
    index: int
    state: ReportState
    duration_s: float | None


@dataclass(frozen=True)
class Ended:
    """How a request ended.

    Attributes:
        epoch: of a plan; 0 of answers.
        new_tokens: of the prompt, those that were not there from earlier turns.
    """

    time_ns: int
    error_code: int
    epoch: int
    generated_tokens: int
    new_tokens: int


@dataclass(frozen=True)
class Stepped:
    """A step of the engine, published when it was done."""

    time_ns: int
    duration_s: float
    ids: tuple[str, ...]


@dataclass
class About(Generic[Line]):
    """What is said about one request id; it may have been used more than once.

    Attributes:
        taken: what the server accepted, from the topic `requests` or `streams`.
        sent: what came by topic, from robots, people or a played bag.
        line: what a trace's line says of it.
    """

    taken: list[Asked] = field(default_factory=list)
    sent: list[Asked] = field(default_factory=list)
    delivered: list[Delivered] = field(default_factory=list)
    reported: list[Reported] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)
    line: Line | None = None

    def sort(self) -> None:
        """Put what is said in order of time."""
        for messages in (self.taken, self.sent, self.delivered, self.reported, self.ended):
            cast(list[Any], messages).sort(key=_TIME_NS)

    def between(self, low_ns: int, high_ns: int) -> About[Line]:
        """Return what was said, in order of time, from `low_ns` on and before `high_ns`."""

        def cut(messages: list[M]) -> list[M]:
            low, high = (bisect_left(messages, ns, key=_TIME_NS) for ns in (low_ns, high_ns))
            return messages[low:high]

        mine = cut(self.delivered), cut(self.reported), cut(self.ended)
        return About([], [], *mine, self.line)
