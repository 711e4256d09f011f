"""Events of the probes that benchmarks start."""

from __future__ import annotations

from timely_llm.core.events.run_event import RunEvent, run_event


@run_event
class TopicEvent(RunEvent):
    """A probe received a segment on the topic.

    Attributes:
        sent_s: when it was published, seconds on the machine's clock of the day.
    """

    id: str
    index: int
    sent_s: float


@run_event
class DirectEvent(RunEvent):
    """A probe of a dispatcher received a segment on the topic of the server itself.

    Attributes:
        sent_s: when it was published, seconds on the machine's clock of the day.
    """

    id: str
    index: int
    sent_s: float


@run_event
class FeedbackEvent(RunEvent):
    """A probe received a segment as feedback of the action."""

    id: str
    index: int


@run_event
class ServedEvent(RunEvent):
    """A probe received the first segment of its plan.

    Attributes:
        asked_s: time of the request, seconds on the clock of `t`.
    """

    id: str
    asked_s: float


@run_event
class ProbeFailedEvent(RunEvent):
    """A request of a probe ended with an error.

    Attributes:
        words: the error.
    """

    words: str


@run_event
class AttackEvent(RunEvent):
    """An attack began.

    Attributes:
        name: name of the attack.
    """

    name: str


@run_event
class AttackAnsweredEvent(RunEvent):
    """An attack was answered, or had no answer in time.

    Attributes:
        name: name of the attack.
        words: the server's answer, or that there was none.
    """

    name: str
    words: str


@run_event
class OverEvent(RunEvent):
    """All attacks were made."""


@run_event
class AcceptedEvent(RunEvent):
    """A probe heard that a request was accepted."""

    id: str


@run_event
class KillEvent(RunEvent):
    """Something was done to a process of a benchmark.

    Attributes:
        process: name of the process.
        kind: started, killed, stopped, continued, deactivated, activated, or died by itself.
        words: how it died; empty: it did not.
    """

    process: str
    kind: str
    words: str = ""


@run_event
class ServingEvent(RunEvent):
    """A probe asked a server what it serves, after the last request.

    Attributes:
        server: full name of the server's node.
        ids: ids of the requests that it serves.
    """

    server: str
    ids: tuple[str, ...]


PROBE_EVENTS: tuple[type[RunEvent], ...] = (
    TopicEvent, DirectEvent, FeedbackEvent, ServedEvent, ProbeFailedEvent, AttackEvent,
    AttackAnsweredEvent, OverEvent, AcceptedEvent, KillEvent, ServingEvent,
)  # fmt: skip
"""The events of probes that event logs have."""
