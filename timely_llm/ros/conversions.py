"""Conversions between ROS messages and the dataclasses of `core`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from typing import Any, Generic, TypeVar

from rclpy.node import Node

from timely_llm import msg, srv
from timely_llm.action import Converse, Plan
from timely_llm.core.arguments import whole
from timely_llm.core.errors import RequestError
from timely_llm.core.generation import State
from timely_llm.core.request import (
    MAX_TASK_CHARACTERS,
    MAX_TOKENS,
    ChatMessage,
    ErrorCode,
    ExecutionReport,
    PlanRequest,
    PlanResult,
    ReportState,
    RequestMode,
    Result,
    StreamChunk,
    StreamRequest,
    StreamResult,
    check_messages,
)
from timely_llm.core.segment import ArgumentType, Segment, SkillCall, SkillParameter
from timely_llm.core.slo import (
    READING_WORDS_PER_S,
    SPEAKING_WORDS_PER_S,
    TEXT,
    VOICE,
    Slo,
    SloClass,
)
from timely_llm.core.step import StageTimes, StepResult
from timely_llm.core.text import listed, quoted
from timely_llm.core.time_utility import NORMAL, TimeUtility
from timely_llm.serving.server.face import RequestStatus, RunningRequest

Converted = TypeVar("Converted")
Converters = tuple[Callable[[Any], Any], Callable[[Any], Any]]


class MessageTable(Generic[Converted]):
    """Converts between a dataclass and the messages with its fields.

    Every attribute of the dataclass is a field, unless it is left out. A field has the attribute's
    name without the unit `_s`, unless it is renamed. An int in an attribute of type float becomes a
    float.

    Args:
        kind: the dataclass.
        message: the message.
        renamed: names of fields by attribute.
        converted: by attribute, the functions from the attribute to the field and back.
        left_out: attributes without a field; they are given to `read`.
    """

    def __init__(
        self,
        kind: type[Converted],
        message: Any,
        renamed: Mapping[str, str] | None = None,
        converted: Mapping[str, Converters] | None = None,
        left_out: tuple[str, ...] = (),
    ) -> None:
        self._kind, self._message = kind, message
        both = dict(converted or {})
        attributes = {one.name: one.type for one in fields(kind)}  # type: ignore[arg-type]
        unknown = {*(renamed or {}), *both, *left_out}.difference(attributes)
        if unknown:
            raise ValueError(f"{kind.__name__} has no {', '.join(sorted(unknown))}")
        self.names = {
            name: (renamed or {}).get(name, name.removesuffix("_s"))
            for name in attributes
            if name not in left_out
        }
        """Names of fields by attribute."""
        # The generated code writes the bits of an int into a field of type float64.
        self._to_field: dict[str, Callable[[Any], Any]] = {
            name: float for name, type_ in attributes.items() if type_ in ("float", float)
        }
        self._to_field |= {name: to_field for name, (to_field, _) in both.items()}
        self._to_attribute = {name: to_attribute for name, (_, to_attribute) in both.items()}

    def fields(self, value: Converted) -> dict[str, Any]:
        """Return the fields of a message by name."""
        made = {}
        for attribute, name in self.names.items():
            field = getattr(value, attribute)
            if attribute in self._to_field:
                field = self._to_field[attribute](field)
            made[name] = field
        return made

    def message(self, value: Converted, kind: Any = None) -> Any:
        """Return the message, or one of another type with some of its fields."""
        made = self.fields(value)
        if kind is None:
            return self._message(**made)
        known = kind.get_fields_and_field_types()
        return kind(**{name: field for name, field in made.items() if name in known})

    def read(self, message: Any, **given: Any) -> Converted:
        """Return the dataclass in a message; given attributes replace the message's."""
        made = dict(given)
        for attribute, name in self.names.items():
            if attribute in given:
                continue
            field = getattr(message, name)
            if attribute in self._to_attribute:
                field = self._to_attribute[attribute](field)
            made[attribute] = field
        return self._kind(**made)


AnyMessage = TypeVar("AnyMessage")


def stamped(node: Node, message: AnyMessage) -> AnyMessage:
    """Return a message, stamped with the present time of the node's clock."""
    message.stamp = node.get_clock().now().to_msg()  # type: ignore[attr-defined]
    return message


def stream_request(
    message: Converse.Goal | msg.StreamRequest,
    request_id: str,
    max_tokens: int,
    slo_classes: Mapping[str, SloClass],
) -> StreamRequest:
    """Return the request in a goal or a flat message.

    Args:
        message: a goal has no fields of dispatchers.
        request_id: the message's, or a new one if the message has none.
        max_tokens: used if the message has none.
        slo_classes: by name, `text` among them.

    Raises:
        RequestError: a field is empty, too large or not a sane number, or there is no service level
            of this name.
    """
    given = slo_classes.get(message.slo_class or TEXT.name)
    if given is None:
        raise RequestError(
            f"unknown service level {quoted(message.slo_class)}: choose one of"
            f" {listed(list(slo_classes))}"
        )
    check_messages(len(message.messages) + bool(message.prompt))  # before each one is read
    said = [ChatMessage(m.role, m.content) for m in message.messages]
    if message.prompt:
        said.append(ChatMessage("user", message.prompt))
    hears = SPEAKING_WORDS_PER_S if given.name == VOICE.name else READING_WORDS_PER_S
    return STREAM_REQUEST.read(
        message,
        request_id=request_id,
        messages=tuple(said),
        slo=_own(given.slo, ttft_s=message.ttft, tpot_s=message.tpot, deadline_s=message.deadline),
        weight=message.weight or given.weight,
        words_per_s=message.words_per_s or hears,
        max_tokens=message.max_tokens or max_tokens,
        **_of_dispatcher(message, "first_token"),
    )


def _own(slo: Slo, **values: float) -> Slo:
    """Return a service level with a request's own values; a value of 0 is not given."""
    return replace(slo, **{name: value for name, value in values.items() if value != 0.0})


def stream_request_message(request: StreamRequest, kind: Any = msg.StreamRequest) -> Any:
    """Return a request as a flat message or a goal, with its own service level, of no class."""
    made = STREAM_REQUEST.fields(request) | SLO.fields(request.slo)
    known = kind.get_fields_and_field_types()
    return kind(**{name: field for name, field in made.items() if name in known})


_VALUES: dict[int, Callable[[str], int | float | str]] = {
    ArgumentType.INTEGER: int,
    ArgumentType.NUMBER: float,
}


def plan_request(
    message: Plan.Goal | msg.PlanRequest, request_id: str, max_tokens: int
) -> PlanRequest:
    """Return the request in a goal or a flat message.

    Args:
        message: a goal has no fields of dispatchers.
        request_id: the message's, or a new one if the message has none.
        max_tokens: used if the message has none.

    Raises:
        RequestError: a field is empty, too large or not a sane number.
    """
    given = message.time_utility
    # A message that was not filled in has zeros only.
    unset = given.beta == given.alpha == given.ert == 0.0
    return PLAN_REQUEST.read(
        message,
        request_id=request_id,
        time_utility=NORMAL if unset else TIME_UTILITY.read(given),
        max_tokens=message.max_tokens or max_tokens,
        **_of_dispatcher(message, "epoch"),
    )


def _of_dispatcher(message: Any, *names: str) -> dict[str, Any]:
    """Return what only dispatchers set; goals have no fields for it."""
    flat = hasattr(message, "dispatcher")
    return {} if flat else {"dispatcher": "", **dict.fromkeys(names, 0)}


def skill_call(message: msg.SkillCall) -> SkillCall:
    """Return the skill call in a message."""
    return SKILL_CALL.read(
        message,
        arguments=tuple(map(argument, message.arguments)),
        parameters=tuple(SkillParameter(a.name, _argument_type(a.type)) for a in message.arguments),
    )


def argument(message: msg.SkillArgument) -> int | float | str:
    """Return the value of an argument in its type; a text that is no number stays a text."""
    convert = _VALUES.get(message.type, str)
    try:
        return convert(message.value)
    except ValueError:
        return str(message.value)


def _argument_type(number: int) -> ArgumentType:
    """Return the type of a number; an unknown type is a text."""
    return ArgumentType(number) if number in frozenset(ArgumentType) else ArgumentType.TEXT


def skill_call_message(call: SkillCall) -> msg.SkillCall:
    """Return a skill call as a message."""
    return msg.SkillCall(**SKILL_CALL.fields(call), arguments=_argument_messages(call))


def _argument_messages(call: SkillCall) -> list[msg.SkillArgument]:
    parameters = call.parameters or [
        SkillParameter("", _type_of(value)) for value in call.arguments
    ]
    return [
        msg.SkillArgument(name=parameter.name, type=int(parameter.type), value=str(value))
        for parameter, value in zip(parameters, call.arguments, strict=True)
    ]


def _type_of(value: float | str) -> ArgumentType:
    if isinstance(value, str):
        return ArgumentType.TEXT
    return ArgumentType.INTEGER if isinstance(value, int) else ArgumentType.NUMBER


def execution_report(message: msg.ExecutionReport) -> ExecutionReport:
    """Return the report in a message.

    Raises:
        RequestError: the state is none of the constants, or a name is too long.
    """
    try:
        state = ReportState(message.state)
    except ValueError as error:
        allowed = ", ".join(f"{s.value} ({s.name})" for s in ReportState)
        raise RequestError(
            f"execution report: state must be one of {allowed}, not {message.state}"
        ) from error
    return EXECUTION_REPORT.read(message, state=state)


def _clipped(value: str) -> str:
    return value[:MAX_TASK_CHARACTERS]


def error_code(number: int) -> ErrorCode:
    """Return the code of a number; an unknown code means that the server failed."""
    return ErrorCode(number) if number in frozenset(ErrorCode) else ErrorCode.ENGINE_FAILED


def request_mode(number: int) -> RequestMode:
    """Return the mode of a number.

    Raises:
        RequestError: it is none of the constants.
    """
    try:
        return RequestMode(number)
    except ValueError as error:
        allowed = ", ".join(f"{mode.value} ({mode.name})" for mode in RequestMode)
        raise RequestError(f"mode must be one of {allowed}, not {number}") from error


def step_message(result: StepResult) -> msg.EngineStep:
    """Return the result of a step as a message."""
    return msg.EngineStep(
        duration=float(result.duration_s),
        shares=[
            msg.StepShare(request_id=key, tokens=tokens) for key, tokens in result.computed.items()
        ],
        stages=_stage_messages(result.stages) if result.stages is not None else [],
    )


def _stage_messages(times: StageTimes) -> list[msg.StageTime]:
    begins = times.begins_s or [-1.0] * len(times.stage_s)
    parts = begins, times.stage_s, times.idle_s, times.blocked_s, (*times.link_s, 0.0)
    return [
        msg.StageTime(begin=begin, compute=compute, idle=idle, blocked=blocked, link=link)
        for begin, compute, idle, blocked, link in zip(*parts, strict=True)
    ]


def stats_message(values: Mapping[str, Any]) -> msg.ServerStats:
    """Return statistics as a message, without a stamp.

    Args:
        values: by the names of the fields, with mappings as stages.
    """
    stages = [msg.StageUse(**stage) for stage in values["stages"]]
    return msg.ServerStats(**{**values, "stages": stages})


CODE = (int, error_code)
MODE = (int, request_mode)
TIME_UTILITY = MessageTable(TimeUtility, msg.TimeUtility)
SLO = MessageTable(Slo, None)
PLAN_REQUEST = MessageTable(
    PlanRequest,
    msg.PlanRequest,
    converted={"mode": MODE, "time_utility": (TIME_UTILITY.message, TIME_UTILITY.read)},
)
PLAN_RESULT = MessageTable(
    PlanResult,
    msg.PlanResult,
    renamed={"response_s": "response_time", "waiting_s": "waiting_time"},
    converted={"error_code": CODE, "mode_used": MODE},
)
SKILL_CALL = MessageTable(SkillCall, msg.SkillCall, left_out=("arguments", "parameters"))
SEGMENT = MessageTable(
    Segment,
    msg.Segment,
    converted={
        "calls": (
            lambda calls: [skill_call_message(call) for call in calls],
            lambda messages: tuple(map(skill_call, messages)),
        )
    },
)
EXECUTION_REPORT = MessageTable(
    ExecutionReport,
    msg.ExecutionReport,
    converted={"state": (int, ReportState), "value": (_clipped, _clipped)},
)
CHAT_MESSAGE = MessageTable(ChatMessage, msg.ChatMessage)
STREAM_REQUEST = MessageTable(
    StreamRequest,
    msg.StreamRequest,
    renamed={"words_per_s": "words_per_s"},
    converted={
        "mode": MODE,
        "messages": (
            lambda said: list(map(CHAT_MESSAGE.message, said)),
            lambda messages: tuple(map(CHAT_MESSAGE.read, messages)),
        ),
    },
    left_out=("slo", "part_of"),
)
STREAM_CHUNK = MessageTable(StreamChunk, msg.StreamChunk)
STREAM_RESULT = MessageTable(
    StreamResult, msg.StreamResult, converted={"error_code": CODE, "mode_used": MODE}
)

_STATES = {
    state: getattr(msg.RequestStatus, state.name) for state in State if state is not State.ENDED
}
_PLAN, _ANSWER = msg.RequestStatus.PLAN, msg.RequestStatus.ANSWER
REQUEST_STATUS = MessageTable(
    RequestStatus,
    msg.RequestStatus,
    renamed={"plan": "kind"},
    converted={
        "plan": (lambda plan: _PLAN if plan else _ANSWER, lambda kind: bool(kind == _PLAN)),
        "state": (_STATES.__getitem__, {n: s for s, n in _STATES.items()}.__getitem__),
    },
)


def fill_answer(
    response: srv.GetResult.Response,
    served: bool,
    so_far: RunningRequest | None,
    result: Result | None,
) -> srv.GetResult.Response:
    """Fill in the state of a request.

    Args:
        response: filled in and returned.
        served: the request is being served; `result` is that of an older one with its id.
        so_far: the request with what was made of it; None: that is not known.
        result: how it ended; None: that is not known.
    """
    if served:
        response.state = response.SERVED
        if so_far and isinstance(so_far.request, StreamRequest) and not so_far.request.first_token:
            answer = response.answer
            answer.request_id, answer.agent = so_far.request.request_id, so_far.request.agent
            answer.text, answer.generated_tokens = so_far.text, so_far.made
    elif isinstance(result, PlanResult):
        response.state = response.PLAN
        response.plan = PLAN_RESULT.message(result)
    elif isinstance(result, StreamResult):
        response.state = response.ANSWER
        response.answer = STREAM_RESULT.message(result)
    else:
        response.state = response.UNKNOWN
    return response


def result_in(response: srv.GetResult.Response) -> Result | None:
    """Return how a request ended; None: it has not, or the server does not know it."""
    if response.state == response.PLAN:
        return PLAN_RESULT.read(response.plan)
    if response.state == response.ANSWER:
        return STREAM_RESULT.read(response.answer)
    return None


def fill_requests(
    response: srv.GetRequests.Response, served: Iterable[RunningRequest]
) -> srv.GetRequests.Response:
    """Fill in the requests that a server serves, in order of arrival, without stamps."""
    for one in served:
        if isinstance(one.request, PlanRequest):
            response.plans.append(PLAN_REQUEST.message(one.request))
        elif isinstance(one.request, StreamRequest):
            request = one.request
            index = request.first_token + one.made
            text = StreamChunk(request.request_id, request.agent, index, one.text)
            response.answers.append(stream_request_message(request))
            response.texts.append(STREAM_CHUNK.message(text))
    return response


def requests_in(response: srv.GetRequests.Response) -> list[RunningRequest]:
    """Return the requests that a server serves: plans, then answers, each in order of arrival.

    Raises:
        RequestError: one has an impossible field, or the texts are not those of the answers.
    """
    served = [
        RunningRequest(plan_request(one, one.request_id, one.max_tokens)) for one in response.plans
    ]
    if [one.request_id for one in response.answers] != [one.request_id for one in response.texts]:
        raise RequestError("the requests of a server have other texts than answers")
    for one, text in zip(response.answers, response.texts, strict=True):
        request = stream_request(one, one.request_id, one.max_tokens, {TEXT.name: TEXT})
        made = text.index - request.first_token
        whole("the number of an answer's tokens", made, 0, MAX_TOKENS)
        served.append(RunningRequest(request, made, text.text))
    return served
