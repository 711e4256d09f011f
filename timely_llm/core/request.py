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
    EXPIRED = 11
    NO_ANSWER = 12
    CLIENT_SILENT = 13
    INACTIVE = 14
    AGENT_LIMIT = 15
    NO_MEMORY = 16


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

    Attributes:
        temperature: 0 for the most likely token at each step, up to 2 for more variety.
        seed: with a temperature, the same seed gives the same plan.
        closed_loop: the robot reports what it executes: the request ends with the execution of its
            plan, not with its last word, so that any failure can lead to a new plan.

    Raises:
        RequestError: a field is empty, too long or out of its range.
    """

    request_id: str
    agent: str
    skill_set: str
    task: str
    time_utility: TimeUtility = NORMAL
    max_tokens: int = 256
    temperature: float = 0.0
    seed: int = 0
    closed_loop: bool = False

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
        if not 0.0 <= self.temperature <= 2.0:
            raise RequestError(f"temperature must be 0 to 2, not {self.temperature:g}")


@dataclass(frozen=True)
class ExecutionReport:
    """A robot's word about one segment.

    Attributes:
        request_id: the plan; empty with ALIVE: all of the agent's.
        index: the segment it is about; ignored for ALIVE.
        duration_s: seconds the segment took (FINISHED, FAILED), else 0.
        value: a blocking skill's return value as text, or the reason of a failure.
        epoch: the segment's; a report about an older epoch says only that the agent is there.
    """

    request_id: str
    agent: str
    state: ReportState
    index: int = 0
    duration_s: float = 0.0
    value: str = ""
    epoch: int = 0


@dataclass(frozen=True)
class PlanResult:
    """How a plan request ended.

    Attributes:
        plan: the text of all delivered segments of the last epoch.
        segments: delivered segments of all epochs.
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
    epoch: int = 0

    @classmethod
    def refused(cls, request: PlanRequest, code: ErrorCode, message: str) -> PlanResult:
        """Return the result of a request that was ended before anything was computed."""
        return cls(request.request_id, request.agent, code, message, "", 0, -1.0, 0.0, 0.0, 0, 0, 0)
