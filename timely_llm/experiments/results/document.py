"""What a run leaves behind: one JSON document of flat rows, for tables, reports and other tools."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    field_validator,
    model_serializer,
    model_validator,
)

from timely_llm.core.documents.problems import validation_problem
from timely_llm.core.errors import TimelyError
from timely_llm.core.events.decisions import DecisionSpan
from timely_llm.core.output_file import JSON, OutputFileError, write_text
from timely_llm.core.reason import Cause
from timely_llm.core.step import StageTimes

RowValue = str | bool | int | float | None
"""JSON has no infinite or missing numbers: both are null."""

Row = dict[str, RowValue]
SpanKind = Literal["waiting", "generating", "executing", "listening", "computing", "sending"]
FiniteNumber = Annotated[float, Field(allow_inf_nan=False)]

MAX_BYTES = 268_435_456


class DocumentError(TimelyError):
    """A run's document cannot be read or written."""


class _DocumentModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Span(_DocumentModel):
    """A time in which an agent's request waited, was generated, was executed or was heard.

    Attributes:
        agent: the robot, person or stage; its name labels the timeline's row.
        request: index in the timeline's `requests`.
        kind: what the request did in this time.
        start_s, end_s: on the timeline's clock.
        label: text for readers, such as the segment's; may be empty.
    """

    agent: str
    request: int
    kind: SpanKind
    start_s: FiniteNumber
    end_s: FiniteNumber
    label: str = ""


class StepStages(_DocumentModel):
    """The times of a step in each stage of a pipeline; see `core.step.StageTimes`."""

    begins_s: tuple[FiniteNumber, ...]
    stage_s: tuple[FiniteNumber, ...]
    link_s: tuple[FiniteNumber, ...]
    blocked_s: tuple[FiniteNumber, ...]
    idle_s: tuple[FiniteNumber, ...]

    @model_validator(mode="after")
    def _is_of_stages(self) -> Self:
        if not self.times.fit:
            raise ValueError("must have seconds, at least 0, of each stage and each link")
        return self

    @property
    def times(self) -> StageTimes:
        """The times themselves."""
        return StageTimes(**dict(self))


class TimelineStep(_DocumentModel):
    """One step of the engine, and the requests that took part, as indices in `requests`.

    Attributes:
        stages: its times in each stage of a pipeline; left out of the file if there are none.
    """

    start_s: FiniteNumber
    duration_s: FiniteNumber
    requests: tuple[int, ...]
    stages: StepStages | None = None

    @model_serializer(mode="wrap")
    def _without_no_stages(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        made: dict[str, Any] = dump(self)
        if self.stages is None:
            del made["stages"]
        return made


class Decision(_DocumentModel):
    """Why a request joined the engine's steps or not, in plans that follow each other.

    Attributes:
        request: index in the timeline's `requests`.
        cause: name of a `Cause`, in lower case.
        start_s, end_s: on the timeline's clock.
        plans: how many step plans.
        least, most: numbers of the reasons; None: they have none.
    """

    request: int
    cause: str
    start_s: FiniteNumber
    end_s: FiniteNumber
    plans: int
    least: FiniteNumber | None = None
    most: FiniteNumber | None = None

    @field_validator("cause")
    @classmethod
    def _is_known(cls, name: str) -> str:
        if name.upper() not in Cause.__members__:
            raise ValueError(f"{name!r} is not one of {', '.join(Cause.__members__).lower()}")
        return name

    @property
    def span(self) -> DecisionSpan:
        """The decision itself."""
        cause = Cause[self.cause.upper()]
        return DecisionSpan(cause, self.start_s, self.end_s, self.plans, self.least, self.most)


class TimelineDocument(_DocumentModel):
    """What happened, or a part of it; seconds since the run's first request.

    Attributes:
        name: of what it shows: a policy, a load, a seed.
        requests: their ids.
        urgent: for each of them, whether it is urgent.
        spans: of all agents.
        steps: of the engine, in order; empty if they were not recorded.
        decisions: about the requests, each one's in order; left out of the file if there are none.
    """

    name: str
    requests: tuple[str, ...] = ()
    urgent: tuple[bool, ...] = ()
    spans: tuple[Span, ...] = ()
    steps: tuple[TimelineStep, ...] = ()
    decisions: tuple[Decision, ...] = ()

    @model_validator(mode="after")
    def _are_about_requests(self) -> TimelineDocument:
        for one in self.decisions:
            if not 0 <= one.request < len(self.requests):
                raise ValueError(
                    f"a decision is about request {one.request}, which is none of its"
                    f" {len(self.requests)}"
                )
        return self

    @model_serializer(mode="wrap")
    def _without_empty_decisions(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        made: dict[str, Any] = dump(self)
        if not self.decisions:
            del made["decisions"]
        return made

    @property
    def decisions_by_request(self) -> dict[str, list[DecisionSpan]]:
        """The decisions about each request."""
        made: dict[str, list[DecisionSpan]] = {}
        for one in self.decisions:
            made.setdefault(self.requests[one.request], []).append(one.span)
        return made


class Paper(_DocumentModel):
    """What a paper reports of the same experiment: rows with the same columns, where it has them.

    Attributes:
        title: the paper and its figure or table.
        note: how it was read, and in what its setting differs.
        rows: its numbers.
    """

    title: str
    note: str = ""
    rows: tuple[Row, ...] = ()


class RunDocument(_DocumentModel):
    """A run of an experiment, or a scored recording.

    Attributes:
        experiment: its name.
        question: what it asks, one sentence.
        command: what made it.
        profile: where step times come from: a profile's name, or the engine that really ran.
        setup: what else is needed to understand the numbers.
        keys: columns that name a setting, in order; `seed` is not one of them.
        measures: columns that matter, the most important first.
        definitions: what each column means, one line each.
        rows: one for each setting and seed.
        task_rows: the same for each kind of task alone, by the column `task`.
        papers: what papers report of the same.
        notes: what a reader must know to judge the numbers.
        timelines: some runs in detail.
    """

    experiment: str
    question: str = ""
    command: str = ""
    profile: str = ""
    setup: dict[str, RowValue] = {}
    keys: tuple[str, ...] = ("policy", "load")
    measures: tuple[str, ...] = ("utility",)
    definitions: dict[str, str] = {}
    rows: tuple[Row, ...] = ()
    task_rows: tuple[Row, ...] = ()
    papers: tuple[Paper, ...] = ()
    notes: tuple[str, ...] = ()
    timelines: tuple[TimelineDocument, ...] = ()


def write_run(run: RunDocument, path: Path) -> None:
    """Write a run as JSON.

    Raises:
        DocumentError: it cannot be written.
    """
    try:
        write_text(path, JSON, json.dumps(run.model_dump(), indent=1) + "\n")
    except OutputFileError as error:
        raise DocumentError(str(error)) from error


def read_run(path: Path) -> RunDocument:
    """Return the run in a file; nothing in it is trusted.

    Raises:
        DocumentError: one sentence; it cannot be read or is no run.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise DocumentError(f"{path} is larger than {MAX_BYTES // 2**20} MiB")
        data: Any = json.loads(path.read_text(encoding="utf-8"))
        return RunDocument.model_validate(data)
    except OSError as error:
        raise DocumentError(f"cannot read {path}: {error.strerror}") from error
    except ValidationError as error:
        problem = validation_problem(error, RunDocument, data)
        raise DocumentError(f"{path} is no run: {problem}") from error
    except (ValueError, RecursionError) as error:
        raise DocumentError(f"{path} is no JSON: {error}") from error
