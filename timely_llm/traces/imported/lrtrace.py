"""Import of LRTrace's traces (Ling et al. 2024, §6): as published, and in a compact form."""

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

from timely_llm.core.documents.problems import field_problem
from timely_llm.core.errors import RequestError
from timely_llm.core.text import listed, quoted
from timely_llm.core.time_utility import TimeUtility
from timely_llm.resources import resource
from timely_llm.skills.skill_set import SkillSet, load_skill_set
from timely_llm.traces.lines import MAX_REQUESTS
from timely_llm.traces.model import (
    LONGEST_SPAN_S,
    Job,
    SkillTime,
    Trace,
    TraceError,
    printable,
)

TYPES = {"drone": "drone", "robotarm": "arm"}
"""LRTrace's `robot_type` -> the name of the package's skill set."""

OTHER_NAMES = {"take": "pick", "drop": "place"}
"""Names of skills of LRTrace's arms (FLTRNN) -> their names in the skill set `arm`."""

MEASURED: Mapping[int, tuple[tuple[str, ...], tuple[int, ...]]] = {
    0: (("s", "g"), (7, 4, 2)),
    1: (("iv", "iv", "l", "l"), (6, 5, 7, 8, 4)),
    2: (("mu", "iv", "tp"), (4, 8, 3, 4)),
    3: (("md", "iv", "g"), (4, 8, 5, 4)),
    4: (("s", "g"), (9, 6, 5)),
    5: (("mr", "mf"), (4, 1)),
    6: (("mu", "ml"), (4, 1)),
    7: (("d", "mf"), (8, 5, 5)),
}
"""Published tasks of drones -> executed skills, and tokens of each segment of Llama 3 8B."""

CALL_TOKENS = {"move_to": 14}
"""Estimated tokens of a call of LRTrace's arms: `move_to(object_x('cup'), object_y('cup'));`."""

OTHER_CALL_TOKENS, END_TOKENS = 5, 2
"""Estimated tokens of any other call, and of the end of a plan."""


@dataclass(frozen=True)
class JobExecution:
    """The execution of a job by a robot.

    Attributes:
        robot_type: LRTrace's type of the robot; empty if unknown.
        task: LRTrace's number of the task.
        skills: names of the executed skills without brackets, in order.
    """

    robot_type: str
    task: int
    skills: tuple[str, ...]


class Robots:
    """The skill sets that a trace's robots may have.

    Args:
        given: the user's skill sets; if empty, those of the package.
    """

    def __init__(self, given: Sequence[SkillSet] = ()) -> None:
        files = () if given else sorted(resource("config/skill_sets").glob("*.yaml"))
        self._chosen = bool(given)
        self._sets = {made.name: made for made in given or map(load_skill_set, files)}

    def skill_set(self, executed: JobExecution) -> str:
        """Return the name of a job's skill set.

        Raises:
            TraceError: no skill set has all of the job's skills, or several have.
        """
        named = TYPES.get(executed.robot_type, executed.robot_type)
        if named in self._sets:
            self._check(named, executed)
            return named
        sets = ", ".join(self._sets)
        if named and not self._chosen:
            raise TraceError(
                f"its robot_type is {quoted(named, 40)}, and the skill sets here are {sets}:"
                " choose one with --skill-set"
            )
        if len(self._sets) == 1:
            self._check(sets, executed)
        fitting = [name for name in self._sets if not self._lacking(name, executed)]
        if len(fitting) == 1:
            return fitting[0]
        skills = listed(list(dict.fromkeys(executed.skills)), 20)
        if fitting:
            raise TraceError(
                f"the skill sets {', '.join(fitting)} all have its skills {skills}: choose one with"
                " --skill-set"
            )
        raise TraceError(
            f"it executes {skills}, and none of the skill sets {sets} has all of them: choose"
            " another with --skill-set"
        )

    def skills(self, name: str, executed: JobExecution) -> tuple[str, ...]:
        """Return the skill set's names of the skills of a job."""
        return tuple(self._own_name(name, skill) for skill in executed.skills)

    def _check(self, name: str, executed: JobExecution) -> None:
        lacking = list(self._lacking(name, executed))
        if lacking:
            raise TraceError(
                f"it executes {listed(lacking, 20)}, and the skill set {name!r} has only"
                f" {listed(list(self._sets[name].skills), 20)}"
            )

    def _lacking(self, name: str, executed: JobExecution) -> list[str]:
        known = self._sets[name].skills
        skills = dict.fromkeys(executed.skills)
        return [skill for skill in skills if self._own_name(name, skill) not in known]

    def _own_name(self, name: str, skill: str) -> str:
        known = self._sets[name].skills
        other = OTHER_NAMES.get(skill, skill)
        return other if skill not in known and other in known else skill


def segment_tokens(skill_set: str, executed: JobExecution) -> tuple[tuple[int, ...], bool]:
    """Return the tokens of each segment of the job's plan, and whether they were measured.

    Without a measurement, each call is a segment, and one more segment ends the plan.
    """
    skills, measured = MEASURED.get(executed.task, ((), ()))
    if skill_set == "drone" and skills == executed.skills:
        return measured, True
    calls = (CALL_TOKENS.get(skill, OTHER_CALL_TOKENS) for skill in executed.skills)
    return (*calls, END_TOKENS), False


MAX_FILE_BYTES = 16_777_216
"""Largest file. Published files have 0.2 to 0.9 MB."""

MAX_SKILLS = 1000
"""Most executed skills of one job."""

FORMS = "a list of jobs as LRTrace publishes it, or an object with `tasks` and `jobs`"

_Id = Annotated[StrictInt, Field(ge=0, le=2**63 - 1)]
_Tuf = tuple[StrictFloat, StrictFloat, StrictFloat]
_Read = TypeVar("_Read", bound=BaseModel)


class _SourceTask(BaseModel):
    """A kind of task, in the compact form."""

    trace_id: _Id
    task_input: StrictStr
    tuf: _Tuf


class _SourceJob(BaseModel):
    """A job in either form. The fields of `_IGNORED` are allowed and not read."""

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
"""Ignored fields of published jobs: a sum, a language, the length of words without a skill."""


@dataclass
class _ImportNotes:
    """Notes on the import, for the source of the trace."""

    estimated: int = 0
    moved: int = 0
    unknown: set[str] = field(default_factory=set)

    def sentences(self) -> Iterator[str]:
        if self.moved:
            yield f"{self.moved} jobs were not in order of arrival"
        if self.estimated:
            yield f"the segments' tokens of {self.estimated} jobs are estimates"
        if self.unknown:
            names = ", ".join(sorted(printable(name[:40]) for name in self.unknown)[:10])
            yield f"unknown fields were left out: {names}"


def read_lrtrace(path: Path, skill_sets: Sequence[SkillSet] = ()) -> Trace:
    """Return a trace of LRTrace, its jobs in order of arrival.

    The file has a list of jobs, as published, or an object with `tasks` (texts and utilities of
    kinds of tasks) and `jobs`. A job's `robot_type` or executed skills determine its robot. The
    source of the trace lists estimates and ignored fields.

    `tuf` is (utility, deadline, zero time): the utility of a response until the deadline, and the
    time at which it reaches 0, in seconds. Names of skills such as "s(" lose their bracket. The
    arms' `take` and `drop` are the skills `pick` and `place` of the skill set `arm`. Kinds of tasks
    keep their numbers, which begin at 0. Table 2 of the paper has another order: the drones' tasks
    0 to 4 are its traces 1 to 5, and 5, 6 and 7 are its traces 7, 8 and 6.

    Args:
        path: the JSON file.
        skill_sets: the skill sets that its robots may have; if empty, those of the package.

    Raises:
        TraceError: the file cannot be read, is not such a trace, or no skill set fits.
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
    robots, notes = Robots(skill_sets), _ImportNotes()
    places: dict[int, int] = {}
    jobs: list[Job] = []
    for number, entry in enumerate(entries, start=1):
        read = _entry(path, _label(entry, number), _SourceJob, entry)
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


def _job(
    read: _SourceJob, tasks: Mapping[int, _SourceTask] | None, robots: Robots, notes: _ImportNotes
) -> Job:
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
    executed = JobExecution(read.robot_type, read.trace_id, skills)
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


def _tasks(path: Path, entries: Any) -> dict[int, _SourceTask]:
    tasks: dict[int, _SourceTask] = {}
    for number, entry in enumerate(_list(path, "tasks", entries), start=1):
        task = _entry(path, f"task number {number}", _SourceTask, entry)
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
        words = f"{place}: {field_problem(first)[:200]}"
        raise TraceError(f"{path}: {label}: {words}") from error


def _label(entry: Any, number: int) -> str:
    name = entry.get("job_id") if isinstance(entry, dict) else None
    known = type(name) is int and 0 <= name < 2**63
    return f"job {name}" if known else f"job number {number}"


def _short(value: Any) -> str:
    return printable(reprlib.repr(value))


def _parsed(path: Path) -> Any:
    """Return the value of a JSON file.

    Raises:
        TraceError: the file cannot be read, is too long, or is not JSON.
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
    except ValueError as error:  # invalid JSON, or a number with too many digits
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
