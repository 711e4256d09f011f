"""Saved requests: what a journal has of a request, and how it is written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from json.encoder import encode_basestring
from typing import Any, Self

from timely_llm.core.generation import PlanTally
from timely_llm.core.request import (
    ChatMessage,
    ErrorCode,
    ExecutionReport,
    PlanRequest,
    PlanResult,
    ReportState,
    Request,
    RequestMode,
    Result,
    StreamRequest,
    StreamResult,
)
from timely_llm.core.segment import Segment
from timely_llm.core.slo import Slo
from timely_llm.core.time_utility import URGENT, TimeUtility

Record = dict[str, Any]
EncodedFields = str
"""Fields of a record as JSON, from the second one on: an id comes before them."""
_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, check_circular=False)


def as_json(record: Record) -> str:
    """Return a record as JSON."""
    return _ENCODER.encode(record)


def as_json_text(text: str) -> str:
    """Return a text as JSON."""
    return encode_basestring(text)


def head_of(request_id: str) -> str:
    """Return the beginning of a record of a request, before its other fields."""
    return f'{{"id":{encode_basestring(request_id)},'


def fields_of(record: Record) -> EncodedFields:
    """Return the fields of a record that has no id."""
    return _ENCODER.encode(record)[1:]


# Most records are reports and segments. So they are written by hand, at a third of the cost.


def report_fields(state: str, index: int) -> EncodedFields:
    """Return the fields of the record of a report.

    Args:
        state: the name of a state, in small letters.
        index: of its segment.
    """
    return f'"kind":"report","state":"{state}","index":{index}}}'


def accepted_record(request: Request) -> Record:
    """Return the record of an accepted request."""
    fields, nested = vars(request), dict[str, Any]()
    if isinstance(request, PlanRequest):
        nested["time_utility"] = vars(request.time_utility)
        return {"kind": "plan", "request": fields | nested}
    assert isinstance(request, StreamRequest)
    nested["slo"] = vars(request.slo)
    nested["messages"] = list(map(vars, request.messages))
    return {"kind": "answer", "request": fields | nested}


def segment_fields(segment: Segment, tokens: list[int], tally: PlanTally | None) -> EncodedFields:
    """Return the fields of the record of a segment that is about to be published.

    Args:
        segment: the segment.
        tokens: generated since the record before; empty: they are generated again.
        tally: of its plan, kept to nine digits; None: the plan has ended.
    """
    numbers = ""
    if tally is not None:
        seconds = f"{tally.response_s:.9g},{tally.waiting_s:.9g},{tally.utility:.9g}"
        if "n" in seconds:  # not a number, or infinite
            seconds = seconds.replace("inf", "Infinity").replace("nan", "NaN")
        numbers = f',"tally":[{tally.segments},{seconds}]'
    return (
        f'"kind":"segment","epoch":{segment.epoch},"index":{segment.index},'
        f'"text":{encode_basestring(segment.text)},"final":{"true" if segment.final else "false"},'
        f'"tokens":{tokens}{numbers}}}'
    )


def result_record(result: Result) -> Record:
    """Return a result as a part of the record of its end."""
    kind = "plan" if isinstance(result, PlanResult) else "answer"
    return {"kind": kind, **vars(result)}


def read_result(record: Mapping[str, Any]) -> Result:
    """Return the result in a part of a record.

    Raises:
        Exception: it is none.
    """
    values = dict(record)
    made = PlanResult if values.pop("kind") == "plan" else StreamResult
    values["error_code"] = ErrorCode(values["error_code"])
    values["mode_used"] = RequestMode(values["mode_used"])
    return made(**values)


@dataclass(frozen=True)
class SavedConversation:
    """A conversation between two turns.

    Attributes:
        key: id of the request of its newest turn.
        agent, name: its agent, and the agent's name for it.
        messages: all of it.
        turns: number of turns so far.
    """

    key: str
    agent: str
    name: str
    messages: tuple[ChatMessage, ...]
    turns: int

    def record(self, known: int) -> Record:
        """Return the record of its newest turn.

        Args:
            known: number of messages that earlier records have.
        """
        return {
            "kind": "turn", "id": self.key, "agent": self.agent, "name": self.name,
            "turns": self.turns, "known": known,
            "messages": [[one.role, one.content] for one in self.messages[known:]],
        }  # fmt: skip

    @classmethod
    def read(cls, record: Mapping[str, Any], earlier: SavedConversation | None) -> Self:
        """Return the conversation up to the turn of a record.

        Args:
            record: of a turn.
            earlier: the conversation before it; None: there was none.

        Raises:
            Exception: it is none, or no turn of this conversation.
        """
        known = int(record["known"])
        before = earlier.messages[:known] if earlier is not None else ()
        if len(before) < known:
            raise ValueError("a conversation lacks messages")
        new = tuple(ChatMessage(role, content) for role, content in record["messages"])
        names = str(record["id"]), str(record["agent"]), str(record["name"])
        return cls(*names, (*before, *new), int(record["turns"]))


@dataclass(eq=False)
class SavedRequest:
    """A request that had not ended.

    Attributes:
        request: as it was accepted.
        begun: a token of its answer, or a segment of its plan, was published.
        epoch: the newest epoch of a plan.
        task: what the model was asked for that epoch; empty: the task of the request.
        history: texts of the segments that were executed in earlier epochs.
        steps: generated tokens and reported values of that epoch, in order.
        published: text of each recorded segment of that epoch, and whether it was final.
        tally: segments, response time, waiting time and utility, as in `PlanTally`.
        started, finished: index of the newest segment of that epoch that was reported so; -1: none.
        heard: a report of its robot came.
    """

    request: Request
    begun: bool = False
    epoch: int = 0
    task: str = ""
    history: list[str] = field(default_factory=list)
    steps: list[list[int] | str] = field(default_factory=list)
    published: dict[int, tuple[str, bool]] = field(default_factory=dict)
    tally: tuple[int, float, float, float] = (0, -1.0, 0.0, 0.0)
    started: int = -1
    finished: int = -1
    heard: bool = False

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> SavedRequest:
        """Return the request of an accepted record.

        Raises:
            Exception: it is none.
        """
        values = dict(record["request"])
        values["mode"] = RequestMode(values["mode"])
        if record["kind"] == "plan":
            values["time_utility"] = TimeUtility(**values["time_utility"])
            plan = PlanRequest(**values)
            return cls(plan, epoch=plan.epoch)
        values["slo"] = Slo(**values["slo"])
        values["messages"] = tuple(ChatMessage(**message) for message in values["messages"])
        return cls(StreamRequest(**values))

    @property
    def tokens(self) -> int:
        """Generated tokens in `steps`."""
        return sum(len(step) for step in self.steps if not isinstance(step, str))

    def take(self, record: Mapping[str, Any]) -> None:
        """Enter a later record.

        Raises:
            Exception: it is none of this release.
        """
        match record["kind"]:
            case "begun":
                self.begun = True
            case "segment":
                self.begun = True
                self.published[int(record["index"])] = str(record["text"]), bool(record["final"])
                if record["tokens"]:
                    self.steps.append([int(token) for token in record["tokens"]])
                if "tally" in record:
                    segments, *seconds = record["tally"]
                    self.tally = (int(segments), *map(float, seconds))  # type: ignore[assignment]
            case "value":
                self.steps.append(str(record["value"]))
            case "report":
                self.reported(str(record["state"]), int(record["index"]))
            case "epoch":
                self.epoch, self.task = int(record["epoch"]), str(record["task"])
                self.history = [str(text) for text in record["history"]]
                self.steps, self.published = [], {}
                self.started = self.finished = -1
                self.heard = True
            case kind:
                raise ValueError(f"a record of the unknown kind {kind!r}")

    def reported(self, state: str, index: int) -> None:
        """Enter a report.

        Args:
            state: the name of a state, in small letters.
            index: of its segment.
        """
        self.heard = True
        if state == ReportState.STARTED.name.lower():
            self.started = max(self.started, index)
        else:
            self.finished = max(self.finished, index)

    @property
    def asked(self) -> PlanRequest:
        """Return what the model is asked for the newest epoch of a plan."""
        assert isinstance(self.request, PlanRequest)
        if not self.task:
            return self.request
        return replace(self.request, task=self.task, time_utility=URGENT)

    def reports(self) -> list[ExecutionReport]:
        """Return the newest reports about the segments of a plan."""
        made = []
        for state, index in (
            (ReportState.FINISHED, self.finished), (ReportState.STARTED, self.started),
        ):  # fmt: skip
            if index >= 0 and not (state is ReportState.STARTED and index <= self.finished):
                made.append(
                    ExecutionReport(
                        self.request.request_id, self.request.agent, state, index, epoch=self.epoch
                    )
                )
        return made
