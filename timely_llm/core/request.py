"""What clients ask, what robots report, and how a request ends."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from timely_llm.core.echo import quoted, sentence
from timely_llm.core.errors import RequestError
from timely_llm.core.text import text_problem
from timely_llm.core.time_utility import NORMAL, TimeUtility

MAX_TASK_CHARACTERS = 8_000
MAX_ID_CHARACTERS = 128
MAX_TOKENS = 4096


class ErrorCode(IntEnum):
    """How a request ended; the constants of the actions have the same numbers."""

    NONE = 0
    INVALID_REQUEST = 1
    UNKNOWN_SKILL_SET = 2
    DUPLICATE_REQUEST = 3
    QUEUE_FULL = 4
    CANCELED = 5
    MALFORMED_PLAN = 6
    TOO_LONG = 7
    ENGINE_FAILED = 8
    SHUTTING_DOWN = 9
    EXECUTION_FAILED = 10
    EXPIRED = 11
    NO_ANSWER = 12
    CLIENT_SILENT = 13
    INACTIVE = 14
    AGENT_LIMIT = 15
    NO_MEMORY = 16
    UNKNOWN_CONVERSATION = 17


class ReportState(IntEnum):
    """What a robot says of a segment; the constants of ExecutionReport.msg."""

    ALIVE = 0
    STARTED = 1
    FINISHED = 2
    FAILED = 3
    RETURNED = 4


class Rejected(RequestError):
    """A request that was refused, with the code that its client gets."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


def check_name(what: str, name: str) -> None:
    """Find out whether a text can name something.

    Raises:
        RequestError: it is empty, has more than `MAX_ID_CHARACTERS`, or one that is not printable.
    """
    if not 1 <= len(name) <= MAX_ID_CHARACTERS:
        raise RequestError(f"{what} must have 1 to {MAX_ID_CHARACTERS} characters, not {len(name)}")
    if not name.isprintable():
        raise RequestError(f"{what} must be of printable characters, not {quoted(name)}")


def check_text(what: str, text: str) -> None:
    """Find out whether a text holds nothing but Unicode characters, tabs and line ends.

    Raises:
        RequestError: it does not.
    """
    problem = text_problem(what, text)
    if problem is not None:
        raise RequestError(problem)


@dataclass(frozen=True)
class Request:
    """What a client asks: a plan, or an answer in a conversation.

    Attributes:
        request_id: unique among those being served.
        agent: the robot or person that asks.
        max_tokens: most tokens to generate.
        temperature: 0 for the most likely token at each step, up to 2 for more variety.
        seed: with a temperature, the same seed gives the same text.

    Raises:
        RequestError: a field is empty, too long or out of its range.
    """

    request_id: str
    agent: str
    max_tokens: int = field(default=256, kw_only=True)
    temperature: float = field(default=0.0, kw_only=True)
    seed: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        check_name("request_id", self.request_id)
        check_name("agent", self.agent)
        if not 1 <= self.max_tokens <= MAX_TOKENS:
            raise RequestError(f"max_tokens must be 1 to {MAX_TOKENS}, not {self.max_tokens}")
        if not 0.0 <= self.temperature <= 2.0:
            raise RequestError(f"temperature must be 0 to 2, not {self.temperature:g}")

    def refused(self, code: ErrorCode, message: str) -> Result:
        """Return its result when it is ended before anything was computed."""
        raise NotImplementedError


@dataclass(frozen=True)
class Result:
    """How a request ended.

    Attributes:
        error_msg: one sentence, empty without an error; made short and printable if it is not.
    """

    request_id: str
    agent: str
    error_code: ErrorCode
    error_msg: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "error_msg", sentence(self.error_msg))


@dataclass(frozen=True)
class PlanRequest(Request):
    """A robot's request for a plan.

    Attributes:
        closed_loop: the robot reports what it executes: the request ends with the execution of its
            plan, not with its last word, so that any failure can lead to a new plan.

    Raises:
        RequestError: a field is empty, too long or out of its range.
    """

    skill_set: str
    task: str
    time_utility: TimeUtility = NORMAL
    closed_loop: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_name("skill_set", self.skill_set)
        if not self.task.strip():
            raise RequestError("the task is empty: say what the robot should do")
        if len(self.task) > MAX_TASK_CHARACTERS:
            raise RequestError(
                f"the task has {len(self.task)} characters,"
                f" at most {MAX_TASK_CHARACTERS} are allowed"
            )
        check_text("the task", self.task)

    def refused(self, code: ErrorCode, message: str) -> PlanResult:
        """Return its result when it is ended before anything was computed."""
        return PlanResult(self.request_id, self.agent, code, message)


@dataclass(frozen=True)
class ExecutionReport:
    """A robot's word about one segment.

    Attributes:
        request_id: the plan; empty with ALIVE: all of the agent's.
        index: the segment it is about; ignored for ALIVE.
        duration_s: seconds the segment took (FINISHED, FAILED), else 0.
        value: a blocking skill's return value as text, or the reason of a failure. The server reads
            no more than its beginning, so one of any length is taken.
        epoch: the segment's; a report about an older epoch says only that the agent is there.

    Raises:
        RequestError: a name is too long.
    """

    request_id: str
    agent: str
    state: ReportState
    index: int = 0
    duration_s: float = 0.0
    value: str = ""
    epoch: int = 0

    def __post_init__(self) -> None:
        for what, text in (("request_id", self.request_id), ("agent", self.agent)):
            if len(text) > MAX_ID_CHARACTERS:
                raise RequestError(
                    f"execution report: {what} has {len(text)} characters,"
                    f" at most {MAX_ID_CHARACTERS} are allowed"
                )


@dataclass(frozen=True)
class PlanResult(Result):
    """How a plan request ended.

    Attributes:
        plan: the text of all delivered segments of the last epoch.
        segments: delivered segments of all epochs.
        response_s: from arrival to the delivery of the first segment; negative if none was.
        waiting_s: response time plus the gaps in which the robot had nothing to do.
        utility: TUF of the response time, 0 if no segment was delivered.
        prompt_tokens, generated_tokens, recomputed_tokens: counts of tokens.
    """

    plan: str = ""
    segments: int = 0
    response_s: float = -1.0
    waiting_s: float = 0.0
    utility: float = 0.0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    recomputed_tokens: int = 0
    epoch: int = 0
