"""Requests of clients, reports of robots, and results."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal, get_args

from timely_llm.core.arguments import kind, number, text, whole
from timely_llm.core.errors import RequestError
from timely_llm.core.slo import (
    FASTEST_WORDS_PER_S,
    MAX_WEIGHT,
    READING_WORDS_PER_S,
    SLOWEST_WORDS_PER_S,
    Slo,
)
from timely_llm.core.text import count_of, listed, quoted, sentence, text_problem
from timely_llm.core.time_utility import NORMAL, TimeUtility

MAX_TASK_CHARACTERS = 8_000
MAX_ID_CHARACTERS = 128
MAX_TOKENS = 4096
MAX_EPOCH = 2**31 - 1


class ErrorCode(IntEnum):
    """Outcome of a request; the constants of the actions have the same numbers."""

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
    BUSY = 18
    NOT_AUTHENTICATED = 19


class ReportState(IntEnum):
    """State in an execution report; the constants of ExecutionReport.msg."""

    ALIVE = 0
    STARTED = 1
    FINISHED = 2
    FAILED = 3
    RETURNED = 4


class RequestMode(IntEnum):
    """The author of an answer or a plan; the constants of the actions have the same numbers."""

    DIRECT = 0
    """The server alone: nothing of the request leaves it."""
    PROGRESSIVE = 1
    """A cloud writes a short sketch, and the server expands its parts."""
    AUTO = 2
    """The server chooses."""


class Rejected(RequestError):
    """A request is refused.

    Attributes:
        code: the error code for its client.
        retry_after_s: seconds after which the same request may be taken; 0: nothing is known.
    """

    def __init__(self, code: ErrorCode, message: str, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.code = code
        self.retry_after_s = retry_after_s


def unknown_skill_set(name: str, registered: Iterable[str]) -> Rejected:
    """Return the refusal of a skill set that is not registered.

    Args:
        name: of the skill set that was asked for.
        registered: the names that are known, in any order.
    """
    known = listed(sorted(registered))
    reason = f"unknown skill set {quoted(name)}: registered are {known}"
    return Rejected(ErrorCode.UNKNOWN_SKILL_SET, reason)


def served_already(request_id: str, what: str = "request") -> Rejected:
    """Return the refusal of a request, or of a goal, with the id of one that is being served."""
    reason = f"a {what} {quoted(request_id)} is being served already"
    return Rejected(ErrorCode.DUPLICATE_REQUEST, reason)


def skill_set_in_use(name: str, requests: int) -> Rejected:
    """Return the refusal to forget a skill set that some requests being served use."""
    users = count_of(requests, "request uses it", "requests use it")
    reason = f"{users}: skill set {quoted(name)} can be unregistered when they have ended"
    return Rejected(ErrorCode.INVALID_REQUEST, reason)


def goes_on(request_id: str) -> RequestError:
    """Return why a request is not given back: it has begun."""
    return RequestError(f"request {quoted(request_id)} has begun, and goes on here")


def check_name(what: str, name: str) -> None:
    """Check a name.

    Raises:
        RequestError: it is empty, has more than `MAX_ID_CHARACTERS`, or one that is not printable.
    """
    text(what, name)
    if not 1 <= len(name) <= MAX_ID_CHARACTERS:
        raise RequestError(f"{what} must have 1 to {MAX_ID_CHARACTERS} characters, not {len(name)}")
    if not name.isprintable():
        raise RequestError(f"{what} must be of printable characters, not {quoted(name)}")


def check_text(what: str, words: str) -> None:
    """Check that a text has only Unicode characters, tabs and line ends.

    Raises:
        RequestError: it has another character.
    """
    problem = text_problem(what, text(what, words))
    if problem is not None:
        raise RequestError(problem)


@dataclass(frozen=True)
class Request:
    """A client's request for a plan, or for an answer in a conversation.

    Attributes:
        request_id: unique among the requests being served.
        agent: the robot or person that asks.
        max_tokens: most tokens to generate.
        temperature: 0 for the most likely token at each step, up to 2 for more variety.
        seed: seed of the sampling; the same seed gives the same text.
        mode: its author.
        dispatcher: full name of the dispatcher that sent it; empty: its client did.

    Raises:
        RequestError: a field is empty, too long or out of its range.
    """

    request_id: str
    agent: str
    mode: RequestMode = field(default=RequestMode.DIRECT, kw_only=True)
    max_tokens: int = field(default=256, kw_only=True)
    temperature: float = field(default=0.0, kw_only=True)
    seed: int = field(default=0, kw_only=True)
    dispatcher: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        check_name("request_id", self.request_id)
        check_name("agent", self.agent)
        kind("mode", self.mode, RequestMode)
        whole("max_tokens", self.max_tokens, 1, MAX_TOKENS)
        number("temperature", self.temperature, 0, 2)
        if self.dispatcher:
            check_name("dispatcher", self.dispatcher)

    def refused(self, code: ErrorCode, message: str, retry_after_s: float = 0.0) -> Result:
        """Return the result of a request that ended before it was computed."""
        raise NotImplementedError


@dataclass(frozen=True)
class Result:
    """Outcome of a request.

    Attributes:
        error_msg: one sentence, empty without an error; clipped and made printable.
        retry_after_s: seconds after which a refused request may be taken; 0: nothing is known.
        mode_used: its author: `DIRECT` or `PROGRESSIVE`.
        cloud_tokens: tokens that a cloud generated for it; all other counts are the server's own.
        cloud_time_s: time in which a cloud worked on it, seconds.
        fallback: why a cloud that was asked for did not help, or not to the end, in one sentence;
            empty: it did.
    """

    request_id: str
    agent: str
    error_code: ErrorCode
    error_msg: str
    retry_after_s: float = field(default=0.0, kw_only=True)
    mode_used: RequestMode = field(default=RequestMode.DIRECT, kw_only=True)
    cloud_tokens: int = field(default=0, kw_only=True)
    cloud_time_s: float = field(default=0.0, kw_only=True)
    fallback: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "error_msg", sentence(self.error_msg))
        object.__setattr__(self, "fallback", sentence(self.fallback))

    @property
    def help_words(self) -> str:
        """How a cloud helped, or why not; empty: none was asked for."""
        words = self.fallback and f"without the cloud's help: {self.fallback}"
        if self.mode_used is RequestMode.PROGRESSIVE:
            words = f"with {self.cloud_tokens} tokens of the cloud in {self.cloud_time_s:.1f} s"
            words += f" ({self.fallback})" if self.fallback else ""
        return words


@dataclass(frozen=True)
class PlanRequest(Request):
    """A robot's request for a plan.

    Attributes:
        task: the task in words; may be empty with a given plan.
        closed_loop: the robot reports its execution. The request then ends with the execution of
            its plan, not with the last segment, so that any failure can lead to a new plan.
        given_plan: a plan written by hand; empty: the model generates one.
        epoch: epoch of its first segments, for a plan that goes on at another server.

    Raises:
        RequestError: a field is empty, too long or out of its range.
    """

    skill_set: str
    task: str
    time_utility: TimeUtility = NORMAL
    closed_loop: bool = False
    given_plan: str = ""
    epoch: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_name("skill_set", self.skill_set)
        kind("time_utility", self.time_utility, TimeUtility)
        text("the task", self.task)
        text("the given plan", self.given_plan)
        if not self.task.strip() and not self.given_plan:
            raise RequestError("the task is empty: say what the robot should do")
        if len(self.task) > MAX_TASK_CHARACTERS:
            raise RequestError(
                f"the task has {len(self.task)} characters,"
                f" at most {MAX_TASK_CHARACTERS} are allowed"
            )
        check_text("the task", self.task)
        if len(self.given_plan) > MAX_TASK_CHARACTERS:
            raise RequestError(
                f"the given plan has {len(self.given_plan)} characters,"
                f" at most {MAX_TASK_CHARACTERS} are allowed"
            )
        check_text("the given plan", self.given_plan)
        whole("epoch", self.epoch, 0, MAX_EPOCH)

    def refused(self, code: ErrorCode, message: str, retry_after_s: float = 0.0) -> PlanResult:
        """Return the result of a request that ended before it was computed."""
        return PlanResult(
            self.request_id, self.agent, code, message, given=bool(self.given_plan),
            epoch=self.epoch, retry_after_s=retry_after_s,
        )  # fmt: skip


SHORTEST_S = 1e-6
"""Reported duration of an executed segment that took no time, seconds: 0 is a skipped one."""


@dataclass(frozen=True)
class ExecutionReport:
    """A robot's report about one segment.

    Attributes:
        request_id: id of the plan request; empty with ALIVE: all requests of the agent.
        index: index of the segment; ignored for ALIVE.
        duration_s: seconds that the segment took (FINISHED, FAILED), else 0; 0 with FINISHED: it
            was skipped.
        value: a blocking skill's return value as text, or the reason of a failure; any length,
            since the server reads only its beginning. ALIVE with an empty request_id: the requests
            that the client has open, one id a line; empty: all requests of the agent.
        epoch: epoch of the segment; a report about an older epoch counts as ALIVE.

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
        for what, name in (("request_id", self.request_id), ("agent", self.agent)):
            if len(name) > MAX_ID_CHARACTERS:
                raise RequestError(
                    f"execution report: {what} has {len(name)} characters,"
                    f" at most {MAX_ID_CHARACTERS} are allowed"
                )


@dataclass(frozen=True)
class PlanResult(Result):
    """Outcome of a plan request.

    Attributes:
        plan: text of all delivered segments of the last epoch.
        segments: number of delivered segments of all epochs.
        response_s: arrival to first segment, robots' seconds; negative: no segment.
        waiting_s: response time plus idle times of the robot, robots' seconds.
        utility: time utility of the response time; 0 without a segment.
        prompt_tokens, generated_tokens, recomputed_tokens: counts of tokens.
        epoch: the last epoch.
        given: the plan was written by hand and came with the request.
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
    given: bool = False


MAX_MESSAGES = 256
MAX_MESSAGE_CHARACTERS = 65_536
Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True)
class ChatMessage:
    """A message of a conversation: the role of its author, and its text.

    Raises:
        RequestError: the role is unknown.
    """

    role: str
    content: str

    def __post_init__(self) -> None:
        if self.role not in get_args(Role):
            allowed = ", ".join(get_args(Role))
            raise RequestError(
                f"the role of a message must be one of {allowed}, not {quoted(self.role)}"
            )
        text("the content of a message", self.content)


def check_messages(number: int) -> None:
    """Check the number of messages of a request.

    Raises:
        RequestError: it is out of its range.
    """
    if not 1 <= number <= MAX_MESSAGES:
        raise RequestError(f"there must be 1 to {MAX_MESSAGES} messages, not {number}")


@dataclass(frozen=True)
class StreamRequest(Request):
    """A request of a person or a machine for an answer, delivered token by token.

    Attributes:
        messages: the conversation so far; the last message is the user's. In a later turn of a kept
            conversation: only the new messages.
        slo: service-level objective of the answer.
        weight: worth of an answer that meets it, relative to others; no unit.
        conversation: name under which the server keeps the conversation; empty: it keeps none.
        turn: turns of the conversation so far; 0 begins it anew.
        words_per_s: speed at which the listener reads or hears, words a second.
        first_token: index of its first token, for an answer that goes on at another server.
        part_of: name of an answer that is made by several requests; the server keeps the KV of
            their prompts for the next one. Empty: it keeps none.

    Raises:
        RequestError: a field is empty, too long or out of its range.
    """

    messages: tuple[ChatMessage, ...]
    slo: Slo = field(default_factory=Slo)
    weight: float = 1.0
    conversation: str = ""
    turn: int = 0
    words_per_s: float = READING_WORDS_PER_S
    first_token: int = 0
    part_of: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_messages(len(self.messages))
        for message in self.messages:
            kind("a message", message, ChatMessage)
        kind("slo", self.slo, Slo)
        last = self.messages[-1]
        if last.role != "user" or not last.content.strip():
            raise RequestError("the last message must be the user's and say something")
        characters = sum(len(message.content) for message in self.messages)
        if characters > MAX_MESSAGE_CHARACTERS:
            raise RequestError(
                f"the messages have {characters} characters,"
                f" at most {MAX_MESSAGE_CHARACTERS} are allowed"
            )
        for place, message in enumerate(self.messages):
            check_text(f"message {place}", message.content)
        number("weight", self.weight, 0, MAX_WEIGHT)
        text("the name of an answer", self.part_of)
        text("the name of a conversation", self.conversation)
        if self.conversation:
            check_name("the name of a conversation", self.conversation)
        whole("turn", self.turn, 0, 2**32 - 1)
        if self.turn and not self.conversation:
            raise RequestError("a later turn needs the name of its conversation")
        number("words_per_s", self.words_per_s, SLOWEST_WORDS_PER_S, FASTEST_WORDS_PER_S)
        whole("first_token", self.first_token, 0, MAX_EPOCH)

    def refused(self, code: ErrorCode, message: str, retry_after_s: float = 0.0) -> StreamResult:
        """Return the result of a request that ended before it was computed."""
        return StreamResult(self.request_id, self.agent, code, message, retry_after_s=retry_after_s)


@dataclass(frozen=True)
class StreamChunk:
    """One token of an answer, published in the step that generated it.

    Attributes:
        index: number of the token, from 0, without gaps.
        text: whole characters; empty while a character is incomplete.
        final: the answer is complete.
        part: number of the sketch's part that it expands, from 1; 0: it expands none.
    """

    request_id: str
    agent: str
    index: int
    text: str
    final: bool = False
    part: int = 0


@dataclass(frozen=True)
class StreamResult(Result):
    """Outcome of a stream request.

    Attributes:
        text: the delivered part of the answer.
        cut: whether the answer reached `max_tokens` before the model ended it.
        ttft_s: arrival to first token, seconds; negative: no token.
        tpot_s: mean seconds between tokens; 0 with fewer than two.
        largest_gap_s: longest time between two tokens, seconds.
        completion_s: arrival to last token, seconds; negative: not complete.
        stalled_s: time that the listener waited for words, seconds.
        slo_met: whether the answer is complete and met its service level.
        prompt_tokens, generated_tokens, recomputed_tokens: counts of tokens.
        kept_tokens: prompt tokens with KV from earlier turns.
    """

    text: str = ""
    cut: bool = False
    ttft_s: float = -1.0
    tpot_s: float = 0.0
    largest_gap_s: float = 0.0
    completion_s: float = -1.0
    stalled_s: float = 0.0
    slo_met: bool = False
    prompt_tokens: int = 0
    generated_tokens: int = 0
    recomputed_tokens: int = 0
    kept_tokens: int = 0


def mean_gap_s(first_s: float, last_s: float, tokens: int) -> float:
    """Return the mean seconds between tokens, 0 with fewer than two (TPOT)."""
    if tokens < 2 or math.isnan(first_s):
        return 0.0
    return (last_s - first_s) / (tokens - 1)
