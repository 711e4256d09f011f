"""One model for every workload: who asks what, when, and how long the robots take."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from timely_llm.core.errors import TimelyError
from timely_llm.core.time_utility import TimeUtility

LONGEST_SPAN_S = 366 * 86_400.0
"""Latest arrival of a trace, seconds after its origin."""

MAX_NAME_CHARACTERS = 256
MAX_TEXT_CHARACTERS = 65_536
MAX_TOKENS = 10_000_000


class TraceError(TimelyError):
    """A trace cannot be read or written, or holds what no workload can be."""


@dataclass(frozen=True)
class SkillTime:
    """A skill that a robot executed for a job, and the seconds it took."""

    skill: str
    seconds: float

    def __post_init__(self) -> None:
        _check_name("the name of a skill", self.skill, 1)
        if not (math.isfinite(self.seconds) and 0.0 <= self.seconds <= 86_400.0):
            raise TraceError(f"{self.skill}: seconds must be 0 to 86400, not {self.seconds}")


@dataclass(frozen=True)
class Job:
    """A plan request of one robot.

    Attributes:
        id: unique in its trace.
        arrival_s: seconds after the trace's origin.
        agent: who asks; one agent may ask often.
        task: what kind of task it is: an LRTrace trace id, or any name.
        skill_set: name of the robot's skill set.
        text: what is asked.
        time_utility: worth of the first segment over time.
        skill_times: what the robot executed, in order, as measured.
        plan: the reference plan, empty if unknown.
        segment_tokens: tokens of each segment that the model generates, empty if unknown.

    Raises:
        TraceError: a value is not possible.
    """

    id: str
    arrival_s: float
    agent: str
    task: str
    skill_set: str
    text: str
    time_utility: TimeUtility
    skill_times: tuple[SkillTime, ...] = ()
    plan: str = ""
    segment_tokens: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        _check_request(self)
        for name, text in (("task", self.task), ("skill_set", self.skill_set)):
            _check_name(f"job {self.id}: {name}", text)
        _check_text(f"job {self.id}: plan", self.plan, 0, MAX_TEXT_CHARACTERS)
        for tokens in self.segment_tokens:
            _check_range(f"job {self.id}: segment_tokens", tokens, 1, MAX_TOKENS)

    @property
    def urgent(self) -> bool:
        """Whether it is of the urgent class: worth more than a normal one (paper 001 §7.1)."""
        return self.time_utility.beta > 1.0


@dataclass(frozen=True)
class Conversation:
    """A stream request of one person.

    Attributes:
        id: unique in its trace.
        arrival_s: seconds after the trace's origin.
        agent: who talks.
        prompt_tokens, output_tokens: counts of tokens.
        ttft_s, tpot_s: service level: seconds to the first token, and for each later one.
        deadline_s: seconds to the whole answer; infinite if there is none.
        weight: its worth.
        text: the prompt, empty if unknown.
        max_tokens: most tokens that were asked for, 0 if that is not known.

    Raises:
        TraceError: a value is not possible.
    """

    id: str
    arrival_s: float
    agent: str
    prompt_tokens: int
    output_tokens: int
    ttft_s: float = 1.0
    tpot_s: float = 0.125
    deadline_s: float = math.inf
    weight: float = 1.0
    text: str = ""
    max_tokens: int = 0

    def __post_init__(self) -> None:
        _check_request(self)
        about = f"conversation {self.id}:"
        _check_range(f"{about} prompt_tokens", self.prompt_tokens, 0, MAX_TOKENS)
        _check_range(f"{about} output_tokens", self.output_tokens, 1, MAX_TOKENS)
        _check_range(f"{about} max_tokens", self.max_tokens, 0, MAX_TOKENS)
        _check_range(f"{about} ttft_s", self.ttft_s, 0, 86_400)
        _check_range(f"{about} tpot_s", self.tpot_s, 0, 86_400)
        _check_range(f"{about} weight", self.weight, 0, 1e6)
        if self.deadline_s != math.inf:
            _check_range(f"{about} deadline_s", self.deadline_s, 0, LONGEST_SPAN_S)


@dataclass(frozen=True)
class Trace:
    """A workload, its jobs and conversations in order of arrival.

    Attributes:
        name: of the workload.
        source: where it comes from: a citation, or the command that composed it.

    Raises:
        TraceError: requests are not in order of arrival, or two have the same id.
    """

    name: str
    source: str = ""
    jobs: tuple[Job, ...] = ()
    conversations: tuple[Conversation, ...] = field(default=())

    def __post_init__(self) -> None:
        _check_name("the name of a trace", self.name)
        _check_text("the source of a trace", self.source, 0, MAX_TEXT_CHARACTERS)
        requests: tuple[Job | Conversation, ...] = (*self.jobs, *self.conversations)
        ids = Counter(request.id for request in requests)
        if len(ids) < len(requests):
            ((repeated, count),) = ids.most_common(1)
            raise TraceError(f"{count} requests have the id {repeated!r}: each must have its own")
        _check_order(self.jobs)
        _check_order(self.conversations)

    @property
    def agents(self) -> frozenset[str]:
        """Everybody who asks."""
        return frozenset(j.agent for j in self.jobs) | frozenset(
            c.agent for c in self.conversations
        )

    @property
    def span_s(self) -> float:
        """Seconds from the first arrival to the last."""
        times = [j.arrival_s for j in self.jobs] + [c.arrival_s for c in self.conversations]
        return max(times) - min(times) if times else 0.0


def printable(text: str) -> str:
    """Return a text that nobody vouches for on one line, without what a terminal would obey."""
    return "".join(character if character.isprintable() else " " for character in text)


def _check_request(request: Job | Conversation) -> None:
    """Raise a TraceError if what jobs and conversations share is not possible."""
    _check_name("an id", request.id, 1)
    _check_name(f"{request.id}: agent", request.agent, 1)
    _check_text(f"{request.id}: text", request.text, 0, MAX_TEXT_CHARACTERS)
    _check_range(f"{request.id}: arrival_s", request.arrival_s, 0, LONGEST_SPAN_S)


def _check_range(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:  # what is not a number is in no range
        raise TraceError(f"{name} must be {low:g} to {high:g}, not {value!r}")


def _check_name(what: str, name: str, low: int = 0) -> None:
    _check_text(what, name, low, MAX_NAME_CHARACTERS)
    if not name.isprintable():
        raise TraceError(f"{what} must be of printable characters, not {name[:80]!r}")


def _check_text(name: str, text: str, low: int, high: int) -> None:
    """Raise a TraceError if a text is too short or long, or ROS could not carry it."""
    if not low <= len(text) <= high:
        raise TraceError(f"{name} must have {low} to {high} characters, not {len(text)}")
    if "\0" in text:
        raise TraceError(f"{name} must not hold a null character: texts of ROS end there")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise TraceError(f"{name} is no Unicode text: {error.reason}") from error


def _check_order(requests: Sequence[Job | Conversation]) -> None:
    for earlier, later in pairwise(requests):
        if later.arrival_s < earlier.arrival_s:
            raise TraceError(
                f"{later.id} arrives at {later.arrival_s:g} s and stands after {earlier.id},"
                f" which arrives at {earlier.arrival_s:g} s: requests must be in order of arrival"
            )
