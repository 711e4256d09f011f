"""Import of LRTrace's published traces (paper 001 §6)."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from timely_llm.core.errors import RequestError
from timely_llm.core.time_utility import TimeUtility
from timely_llm.traces.model import Job, SkillTime, Trace, TraceError

MAX_FILE_BYTES = 16_777_216

SEGMENT_TOKENS: dict[int, tuple[int, ...]] = {
    0: (7, 4, 2),
    1: (6, 5, 7, 8, 4),
    2: (4, 8, 3, 4),
    3: (4, 8, 5, 4),
    4: (9, 6, 5),
    5: (4, 1),
    6: (4, 1),
    7: (8, 5, 5),
}
"""Tokens of the segments that Llama 3 8B generates for each task of the drone."""

_Tuf = tuple[float, float, float]


class _Task(BaseModel):
    trace_id: int
    task_input: str
    tuf: _Tuf


class _Job(BaseModel):
    job_id: int
    trigger_time: float
    agent_id: int
    trace_id: int
    exe_time_detail: list[tuple[str, float]]
    tuf: _Tuf | None = None


class _Published(BaseModel):
    model_config = ConfigDict(extra="ignore")

    source: str = ""
    tasks: list[_Task]
    jobs: list[_Job]


def read_lrtrace(path: Path, skill_set: str = "drone") -> Trace:
    """Return a published trace.

    Its `tuf` is (utility, deadline, zero time): the worth of a response until the deadline, and
    when it is worth nothing, in seconds. Names of skills such as "s(" lose their bracket. Kinds of
    tasks keep their numbers, which begin at 0; Table 2 of the paper numbers them in another order
    (0 to 4 are its traces 1 to 5; 5, 6 and 7 its traces 7, 8 and 6).

    Args:
        path: the JSON file.
        skill_set: name of the robots' skill set.

    Raises:
        TraceError: one sentence; it cannot be read or is no such trace.
    """
    published = _parsed(path)
    tasks = {task.trace_id: task for task in published.tasks}
    jobs = []
    for job in published.jobs:
        if job.trace_id not in tasks:
            raise TraceError(f"{path}: job {job.job_id} is of the task {job.trace_id}, which lacks")
        try:
            jobs.append(_job(job, tasks[job.trace_id], skill_set))
        except (TraceError, RequestError) as error:
            raise TraceError(f"{path}: job {job.job_id}: {error}") from error
    jobs.sort(key=lambda job: job.arrival_s)
    return Trace(path.stem, published.source or f"imported from {path.name}", tuple(jobs))


def _job(job: _Job, task: _Task, skill_set: str) -> Job:
    return Job(
        id=str(job.job_id),
        arrival_s=job.trigger_time,
        agent=f"{skill_set}_{job.agent_id}",
        task=str(job.trace_id),
        skill_set=skill_set,
        text=task.task_input,
        time_utility=TimeUtility.from_deadlines(*(job.tuf or task.tuf)),
        skill_times=tuple(SkillTime(name.split("(")[0], s) for name, s in job.exe_time_detail),
        segment_tokens=SEGMENT_TOKENS.get(job.trace_id, ()) if skill_set == "drone" else (),
    )


def _parsed(path: Path) -> _Published:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise TraceError(f"{path} is longer than {MAX_FILE_BYTES} bytes")
        return _Published.model_validate_json(path.read_bytes())
    except OSError as error:
        raise TraceError(f"cannot read the trace {path}: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])[:80] or "top level"
        raise TraceError(f"{path} is no LRTrace: at {place}: {first['msg'][:200]}") from error
