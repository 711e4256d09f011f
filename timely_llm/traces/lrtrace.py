"""Import of LRTrace's traces (paper 001 §6): as published, and in a compact form."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    StrictFloat,
    StrictInt,
    StrictStr,
    ValidationError,
)

from timely_llm.core.errors import RequestError
from timely_llm.core.time_utility import TimeUtility
from timely_llm.skills.skill_set import SkillSet
from timely_llm.traces.lines import MAX_REQUESTS
from timely_llm.traces.lrtrace_robots import Executed, Robots, segment_tokens
from timely_llm.traces.model import (
    LONGEST_SPAN_S,
    Job,
    SkillTime,
    Trace,
    TraceError,
    printable,
)

MAX_FILE_BYTES = 16_777_216
"""Of a file. Published ones have 0.2 to 0.9 MB."""

MAX_SKILLS = 1000
"""That a robot executes for one job."""

FORMS = "a list of jobs as LRTrace publishes it, or an object with `tasks` and `jobs`"

_Id = Annotated[StrictInt, Field(ge=0, le=2**63 - 1)]
_Tuf = tuple[StrictFloat, StrictFloat, StrictFloat]
_Read = TypeVar("_Read", bound=BaseModel)


class _Task(BaseModel):
    """A kind of task, in the compact form."""

    trace_id: _Id
    task_input: StrictStr
    tuf: _Tuf


class _Job(BaseModel):
    """A job in either form; what `_IGNORED` names is allowed, and not read."""

    model_config = ConfigDict(extra="allow")

    job_id: _Id
    trigger_time: StrictFloat = Field(
        validation_alias=AliasChoices("trigger time", "trigger_time"), ge=0, le=LONGEST_SPAN_S
    )
    agent_id: _Id
    trace_id: _Id
    exe_time_detail: Annotated[
        list[tuple[StrictStr, StrictFloat]], Field(min_length=1, max_length=MAX_SKILLS)
    ]
    task_input: StrictStr | None = None
    tuf: _Tuf | None = None
    robot_type: StrictStr = ""


_IGNORED = frozenset(("task_exe_time", "robot_system", "output_len"))
"""Fields of published jobs: a sum of `exe_time_detail`; a language; words that nobody executes."""


@dataclass
class _Notes:
    """What the trace's source tells of the import."""

    estimated: int = 0
    moved: int = 0
    unknown: set[str] = field(default_factory=set)

    def sentences(self) -> Iterator[str]:
        if self.moved:
            yield f"{self.moved} jobs stood behind later ones"
        if self.estimated:
            yield f"the segments' tokens of {self.estimated} jobs are estimates"
        if self.unknown:
            names = ", ".join(sorted(printable(name[:40]) for name in self.unknown)[:10])
            yield f"fields that are not known were left out: {names}"


def read_lrtrace(path: Path, skill_sets: Sequence[SkillSet] = ()) -> Trace:
    """Return a trace of LRTrace's, its jobs in order of their times.

    It is a list of jobs, as published, or an object with `tasks` (what a kind of task asks, and its
    worth) and `jobs`. A job's robot is found by its `robot_type` or by the skills that it executes;
    the trace's source tells what had to be guessed or left out.

    `tuf` is (utility, deadline, zero time): the worth of a response until the deadline, and when it
    is worth nothing, in seconds. Names of skills such as "s(" lose their bracket; arms' `take` and
    `drop` are the skills `pick` and `place` of the skill set `arm`. Kinds of tasks keep their
    numbers, which begin at 0; Table 2 of the paper numbers them in another order (of drones 0 to 4
    are its traces 1 to 5; 5, 6 and 7 its traces 7, 8 and 6).

    Args:
        path: the JSON file.
        skill_sets: those that its robots may be of; none: those that come with the package.

    Raises:
        TraceError: one sentence; it cannot be read, is no such trace, or no skill set fits.
    """
    published = _parsed(path)
    if isinstance(published, list):
        source, tasks, entries = "", {}, published
    elif isinstance(published, dict) and {"tasks", "jobs"} <= published.keys():
        source, tasks = _source(path, published), _tasks(path, published["tasks"])
        entries = _list(path, "jobs", published["jobs"])
    else:
        raise TraceError(f"{path} is no LRTrace: it must be {FORMS}")
    if not 1 <= len(entries) <= MAX_REQUESTS:
        raise TraceError(f"{path} has {len(entries)} jobs: a trace has 1 to {MAX_REQUESTS}")
    robots, notes = Robots(skill_sets), _Notes()
    places: dict[int, int] = {}
    jobs: list[Job] = []
    for number, entry in enumerate(entries, start=1):
        read = _entry(path, _label(entry, number), _Job, entry)
        if (before := places.setdefault(read.job_id, number)) != number:
            raise TraceError(
                f"{path}: jobs number {before} and {number} both have the job_id {read.job_id}:"
                " each must have its own"
            )
        try:
            jobs.append(_job(read, tasks, robots, notes))
        except (TraceError, RequestError) as error:
            raise TraceError(f"{path}: job {read.job_id}: {error}") from error
    latest_s = 0.0
    for job in jobs:
        notes.moved += job.arrival_s < latest_s
        latest_s = max(latest_s, job.arrival_s)
    jobs.sort(key=lambda job: job.arrival_s)
    source = "; ".join((source or f"LRTrace, imported from {path.name}", *notes.sentences()))
    try:
        return Trace(path.stem, source, tuple(jobs))
    except TraceError as error:
        raise TraceError(f"{path}: {error}") from error


def _job(read: _Job, tasks: Mapping[int, _Task] | None, robots: Robots, notes: _Notes) -> Job:
    task = tasks.get(read.trace_id) if tasks else None
    if tasks and task is None:
        raise TraceError(f"its trace_id is {read.trace_id}, and no task has that")
    text = task.task_input if task and read.task_input is None else read.task_input
    tuf = task.tuf if task and read.tuf is None else read.tuf
    if text is None or tuf is None:
        raise TraceError(f"it lacks {'task_input' if text is None else 'tuf'}")
    skills = tuple(name.split("(")[0] for name, _ in read.exe_time_detail)
    if "" in skills:
        raise TraceError("exe_time_detail has a skill without a name")
    executed = Executed(read.robot_type, read.trace_id, skills)
    skill_set = robots.skill_set(executed)
    tokens, measured = segment_tokens(skill_set, executed)
    notes.estimated += not measured
    notes.unknown |= (read.model_extra or {}).keys() - _IGNORED
    return Job(
        id=str(read.job_id),
        arrival_s=read.trigger_time,
        agent=f"{skill_set}_{read.agent_id}",
        task=str(read.trace_id),
        skill_set=skill_set,
        text=text,
        time_utility=TimeUtility.from_deadlines(*tuf),
        skill_times=tuple(
            SkillTime(name, seconds)
            for name, (_, seconds) in zip(
                robots.skills(skill_set, executed), read.exe_time_detail, strict=True
            )
        ),
        segment_tokens=tokens,
    )


def _tasks(path: Path, entries: Any) -> dict[int, _Task]:
    tasks: dict[int, _Task] = {}
    for number, entry in enumerate(_list(path, "tasks", entries), start=1):
        task = _entry(path, f"task number {number}", _Task, entry)
        if task.trace_id in tasks:
            raise TraceError(f"{path}: two tasks have the trace_id {task.trace_id}")
        tasks[task.trace_id] = task
    if not tasks:
        raise TraceError(f"{path}: tasks is empty: each kind of task needs an entry")
    return tasks


def _source(path: Path, published: Mapping[str, Any]) -> str:
    source = published.get("source", "")
    if not isinstance(source, str):
        raise TraceError(f"{path}: source must be a text, not {_short(source)}")
    return source


def _list(path: Path, name: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TraceError(f"{path}: {name} must be a list, not {_short(value)}")
    return value


def _entry(path: Path, label: str, kind: type[_Read], entry: Any) -> _Read:
    if not isinstance(entry, dict):
        raise TraceError(f"{path}: {label} must be an object, not {_short(entry)}")
    try:
        return kind.model_validate(entry)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])[:80]
        if first["type"] == "missing":
            raise TraceError(f"{path}: {label} lacks {place}") from error
        words = f"{place}: {first['msg'][:200]}, not {_short(first['input'])}"
        raise TraceError(f"{path}: {label}: {words}") from error


def _label(entry: Any, number: int) -> str:
    name = entry.get("job_id") if isinstance(entry, dict) else None
    known = type(name) is int and 0 <= name < 2**63
    return f"job {name}" if known else f"job number {number}"


def _short(value: Any) -> str:
    return printable(reprlib.repr(value))


def _parsed(path: Path) -> Any:
    """Return what is in a JSON file.

    Raises:
        TraceError: one sentence; it cannot be read, or is too long.
    """
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise TraceError(
                f"{path} has {path.stat().st_size} bytes: an LRTrace file has at most"
                f" {MAX_FILE_BYTES}"
            )
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        return json.loads(content[:MAX_FILE_BYTES], object_pairs_hook=_object)
    except OSError as error:
        raise TraceError(f"cannot read the trace {path}: {error.strerror}") from error
    except RecursionError as error:
        raise TraceError(f"{path} is no LRTrace: it is nested too deeply") from error
    except UnicodeDecodeError as error:
        raise TraceError(f"{path} is no LRTrace: it is no text in UTF-8") from error
    except ValueError as error:  # of JSON, or a number of too many digits
        raise TraceError(f"{path} is no LRTrace: {printable(str(error)[:200])}") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise ValueError(f"an object has the field {name[:40]!r} twice")
            seen.add(name)
    return made
