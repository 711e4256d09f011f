"""What a run leaves behind: one JSON document of flat rows, for tables, reports and other tools."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from timely_llm.core.errors import TimelyError
from timely_llm.core.output_file import JSON, OutputFileError, write_text

Value = str | bool | int | float | None
"""JSON has no infinite or missing numbers: both are null."""

Row = dict[str, Value]
SpanKind = Literal["waiting", "generating", "executing", "listening"]
Finite = Annotated[float, Field(allow_inf_nan=False)]

MAX_BYTES = 268_435_456


class DocumentError(TimelyError):
    """A run's document cannot be read or written."""


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Span(_Strict):
    """What went on at an agent: its request waited, was generated, was being executed or heard.

    Attributes:
        agent: whose row of the timeline it is in.
        request: index in the timeline's `requests`.
        kind: what went on.
        start_s, end_s: on the timeline's clock.
        label: what a reader wants to know of it: the segment's text, for example.
    """

    agent: str
    request: int
    kind: SpanKind
    start_s: Finite
    end_s: Finite
    label: str = ""


class Step(_Strict):
    """One step of the engine, and the requests that took part, as indices in `requests`."""

    start_s: Finite
    duration_s: Finite
    requests: tuple[int, ...]


class Timeline(_Strict):
    """What happened, or a part of it; seconds since the run's first request.

    Attributes:
        name: of what it shows: a policy, a load, a seed.
        requests: their ids.
        urgent: for each of them, whether it is urgent.
        spans: of all agents.
        steps: of the engine, in order; empty if nobody recorded them.
    """

    name: str
    requests: tuple[str, ...] = ()
    urgent: tuple[bool, ...] = ()
    spans: tuple[Span, ...] = ()
    steps: tuple[Step, ...] = ()


class Paper(_Strict):
    """What a paper reports of the same experiment: rows with the same columns, where it has them.

    Attributes:
        title: the paper and its figure or table.
        note: how it was read, and in what its setting differs.
        rows: its numbers.
    """

    title: str
    note: str = ""
    rows: tuple[Row, ...] = ()


class RunDocument(_Strict):
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
    setup: dict[str, Value] = {}
    keys: tuple[str, ...] = ("policy", "load")
    measures: tuple[str, ...] = ("utility",)
    definitions: dict[str, str] = {}
    rows: tuple[Row, ...] = ()
    task_rows: tuple[Row, ...] = ()
    papers: tuple[Paper, ...] = ()
    notes: tuple[str, ...] = ()
    timelines: tuple[Timeline, ...] = ()


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
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "top level"
        raise DocumentError(f"{path} is no run: at {place}: {first['msg']}") from error
    except (ValueError, RecursionError) as error:
        raise DocumentError(f"{path} is no JSON: {error}") from error
