"""The model of all workloads: requests of agents, arrivals, and execution times of robots."""

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
    """A trace cannot be read or written, or has an impossible value."""


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
        agent: name of the robot; a robot may have several jobs.
        task: kind of task: an LRTrace trace id, or any name.
        skill_set: name of the robot's skill set.
        text: text of the task.
        time_utility: utility of the first segment over time.
        skill_times: measured executions of skills, in order.
        plan: the reference plan; empty if unknown.
        segment_tokens: tokens of each generated segment; empty if unknown.
        given: the plan was written by hand and came with the request.

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
    given: bool = False

    def __post_init__(self) -> None:
        _check_request(self)
        if self.given and not self.plan:
            raise TraceError(f"job {self.id}: a given plan must not be empty")
        for name, text in (("task", self.task), ("skill_set", self.skill_set)):
            _check_name(f"job {self.id}: {name}", text)
        _check_text(f"job {self.id}: plan", self.plan, 0, MAX_TEXT_CHARACTERS)
        for tokens in self.segment_tokens:
            _check_range(f"job {self.id}: segment_tokens", tokens, 1, MAX_TOKENS)

    @property
    def urgent(self) -> bool:
        """Whether the job has more utility than a normal one (Ling et al. 2024, §7.1)."""
        return self.time_utility.beta > 1.0


@dataclass(frozen=True)
class Conversation:
    """A stream request of one person.

    Attributes:
        id: unique in its trace.
        arrival_s: seconds after the trace's origin.
        agent: name of the person.
        prompt_tokens, output_tokens: counts of tokens.
        ttft_s, tpot_s: service level: seconds to the first token, and for each later token.
        deadline_s: seconds to the whole answer; infinite without a deadline.
        weight: its utility.
        text: the prompt; empty if unknown.
        max_tokens: most tokens of the answer; 0 if unknown.

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
        name: name of the workload.
        source: its origin: a citation, or the command that composed it.

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
        """Names of all agents."""
        return frozenset(j.agent for j in self.jobs) | frozenset(
            c.agent for c in self.conversations
        )

    @property
    def span_s(self) -> float:
        """Seconds from the first arrival to the last."""
        times = [j.arrival_s for j in self.jobs] + [c.arrival_s for c in self.conversations]
        return max(times) - min(times) if times else 0.0


def printable(text: str) -> str:
    """Return an untrusted text on one line, without control characters."""
    return "".join(character if character.isprintable() else " " for character in text)


def _check_request(request: Job | Conversation) -> None:
    """Raise a TraceError if a field of both jobs and conversations is not possible."""
    _check_name("an id", request.id, 1)
    _check_name(f"{request.id}: agent", request.agent, 1)
    _check_text(f"{request.id}: text", request.text, 0, MAX_TEXT_CHARACTERS)
    _check_range(f"{request.id}: arrival_s", request.arrival_s, 0, LONGEST_SPAN_S)


def _check_range(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:  # also true of NaN
        raise TraceError(f"{name} must be {low:g} to {high:g}, not {value!r}")


def _check_name(what: str, name: str, low: int = 0) -> None:
    _check_text(what, name, low, MAX_NAME_CHARACTERS)
    if not name.isprintable():
        raise TraceError(f"{what} must have printable characters only, not {name[:80]!r}")


def _check_text(name: str, text: str, low: int, high: int) -> None:
    """Raise a TraceError if a text is too short or long, or impossible in a ROS message."""
    if not low <= len(text) <= high:
        raise TraceError(f"{name} must have {low} to {high} characters, not {len(text)}")
    if "\0" in text:
        raise TraceError(f"{name} must not contain a null character, which ends ROS strings")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise TraceError(f"{name} is not a Unicode text: {error.reason}") from error


def _check_order(requests: Sequence[Job | Conversation]) -> None:
    for earlier, later in pairwise(requests):
        if later.arrival_s < earlier.arrival_s:
            raise TraceError(
                f"{later.id} arrives at {later.arrival_s:g} s and stands after {earlier.id},"
                f" which arrives at {earlier.arrival_s:g} s: requests must be in order of arrival"
            )
