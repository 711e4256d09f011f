"""What a front and a replica send each other, beside requests, reports, segments and results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from timely_llm.dispatch.contract import ServerView

ReplicaQuestion = Literal["withdraw", "inquire", "skill_set", "register", "unregister"]


@dataclass(frozen=True)
class ReplicaTask:
    """What a replica is to be: the first message of its front.

    Attributes:
        name: the replica's.
        values: of the plan server's parameters, by name.
        skill_sets: sources and texts of the skill sets to register.
        folder: relative paths among the values begin there, if it exists.
    """

    name: str
    values: Mapping[str, Any]
    skill_sets: Sequence[tuple[str, str]]
    folder: str


@dataclass(frozen=True)
class EndRequest:
    """The front cancels a request at the replica."""

    request_id: str


@dataclass(frozen=True)
class Ask:
    """A question of the front.

    Attributes:
        number: the answer has it too.
        question: what is asked.
        about: a request's id, a skill set's name or its text.
    """

    number: int
    question: ReplicaQuestion
    about: str


@dataclass(frozen=True)
class Ping:
    """The front measures the time of a message there and back.

    Attributes:
        sent_s: on the front's clock.
    """

    sent_s: float


@dataclass(frozen=True)
class Stop:
    """The replica is to end."""


@dataclass(frozen=True)
class Ready:
    """The replica serves.

    Attributes:
        skill_sets: the names of those registered.
        pid: its process id.
    """

    skill_sets: Sequence[str]
    pid: int


@dataclass(frozen=True)
class Failed:
    """The replica cannot serve, or cannot any more.

    Attributes:
        problem: why, in one sentence.
    """

    problem: str


@dataclass(frozen=True)
class Beat:
    """The replica lives.

    Attributes:
        view: its newest view.
        statistics: counts and times of its loop.
    """

    view: ServerView
    statistics: Mapping[str, Any]


@dataclass(frozen=True)
class Reply:
    """The answer to a question."""

    number: int
    value: Any


@dataclass(frozen=True)
class Pong:
    """The answer to a `Ping`."""

    sent_s: float
