"""What clients ask, what robots report, and how a request ends."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from timely_llm.core.errors import RequestError
from timely_llm.core.time_utility import NORMAL, TimeUtility

MAX_TASK_CHARACTERS = 8_000
MAX_ID_CHARACTERS = 128


class ErrorCode(IntEnum):
    """How a request ended; the constants of Plan.action have the same numbers."""

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


@dataclass(frozen=True)
class PlanRequest:
    """A robot's request for a plan.

    Raises:
        RequestError: a field is empty, too long or out of its range.
    """

    request_id: str
    agent: str
    skill_set: str
    task: str
    time_utility: TimeUtility = NORMAL
    max_tokens: int = 256

    def __post_init__(self) -> None:
        for name, text in (("request_id", self.request_id), ("agent", self.agent)):
            if not 1 <= len(text) <= MAX_ID_CHARACTERS:
                raise RequestError(
                    f"{name} must have 1 to {MAX_ID_CHARACTERS} characters, not {len(text)}"
                )
        if not self.task.strip():
            raise RequestError("the task is empty: say what the robot should do")
        if len(self.task) > MAX_TASK_CHARACTERS:
            raise RequestError(
                f"the task has {len(self.task)} characters,"
                f" at most {MAX_TASK_CHARACTERS} are allowed"
            )
        if not 1 <= self.max_tokens <= 4096:
            raise RequestError(f"max_tokens must be 1 to 4096, not {self.max_tokens}")


@dataclass(frozen=True)
class ExecutionReport:
    """A robot's word about one segment.

    Attributes:
        index: the segment it is about; ignored for ALIVE.
        duration_s: seconds the segment took (FINISHED, FAILED), else 0.
        value: a blocking skill's return value as text, or the reason of a failure.
    """

    request_id: str
    agent: str
    state: ReportState
    index: int = 0
    duration_s: float = 0.0
    value: str = ""


@dataclass(frozen=True)
class PlanResult:
    """How a plan request ended.

    Attributes:
        plan: the text of all delivered segments.
        response_s: from arrival to the delivery of the first segment; negative if none was.
        waiting_s: response time plus the gaps in which the robot had nothing to do.
        utility: TUF of the response time, 0 if no segment was delivered.
        prompt_tokens, generated_tokens, recomputed_tokens: counts of tokens.
    """

    request_id: str
    agent: str
    error_code: ErrorCode
    error_msg: str
    plan: str
    segments: int
    response_s: float
    waiting_s: float
    utility: float
    prompt_tokens: int
    generated_tokens: int
    recomputed_tokens: int

    @classmethod
    def refused(cls, request: PlanRequest, code: ErrorCode, message: str) -> PlanResult:
        """Return the result of a request that was ended before anything was computed."""
        return cls(request.request_id, request.agent, code, message, "", 0, -1.0, 0.0, 0.0, 0, 0, 0)
