"""What a trace asks of a running server, ready to be asked.

Requests get ids of their own, so that a trace can be replayed again and again: a prefix that no
other replay has, a slash, and the id of the job.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from timely_llm.core.errors import RequestError
from timely_llm.core.request import MAX_ID_CHARACTERS, MAX_TASK_CHARACTERS, PlanRequest
from timely_llm.experiments.workload import REPLICA_GAP_S
from timely_llm.skills.skill_set import SkillSet
from timely_llm.traces.lines import MAX_REQUESTS
from timely_llm.traces.model import Job, Trace, TraceError

TALKS = "conversations, which ask for no plan"
ODD = (
    f"jobs that no server takes: an id or a name of more than {MAX_ID_CHARACTERS} characters, or a"
    f" text of none or more than {MAX_TASK_CHARACTERS}"
)


@dataclass(frozen=True)
class Script:
    """What is going to be asked.

    Attributes:
        trace: its jobs, with the ids of requests and the seconds after the replay's start.
        skill_sets: what the robots can do, by name.
        left_out: how many jobs are not asked, by reason.
    """

    trace: Trace
    skill_sets: Mapping[str, SkillSet]
    left_out: Counter[str]


def script(
    trace: Trace, skill_sets: Mapping[str, SkillSet], load: int, speed: float, limit: int
) -> Script:
    """Return what a trace asks.

    Args:
        trace: the workload; its conversations are left out.
        skill_sets: by name; jobs of others are left out.
        load: how often every job is asked, by another agent each time.
        speed: how much faster than in the trace.
        limit: how many jobs of the trace, from the first.

    Raises:
        TraceError: nothing is left to be asked, or too much.
    """
    prefix = f"replay-{uuid.uuid4().hex[:8]}"
    left_out = Counter({TALKS: len(trace.conversations)})
    jobs = trace.jobs[:limit]
    first_s = jobs[0].arrival_s if jobs else 0.0
    if len(jobs) * load > MAX_REQUESTS:
        raise TraceError(f"{load} times {len(jobs)} jobs are more than {MAX_REQUESTS} requests")
    made = []
    for job in jobs:
        if job.skill_set not in skill_sets:
            left_out[f"jobs of the skill set {job.skill_set!r}, which is not known here"] += load
            continue
        for copy in range(load):
            suffix = f"+{copy}" if copy else ""
            arrival_s = (job.arrival_s - first_s) / speed + copy * REPLICA_GAP_S
            name, agent = f"{prefix}/{job.id}{suffix}", job.agent + suffix
            try:
                asked = replace(job, id=name, agent=agent, arrival_s=arrival_s)
                request_of(asked)
            except (RequestError, TraceError):
                left_out[ODD] += 1
            else:
                made.append(asked)
    if not made:
        why = "; ".join(f"{count} {reason}" for reason, count in (+left_out).items())
        raise TraceError(f"the trace {trace.name!r} has no job that can be asked: {why or 'none'}")
    made.sort(key=lambda job: job.arrival_s)
    return Script(Trace(trace.name, trace.source, tuple(made)), skill_sets, +left_out)


def request_of(job: Job) -> PlanRequest:
    """Return what is asked for a job.

    Raises:
        RequestError: no server takes it.
    """
    return PlanRequest(
        job.id, job.agent, job.skill_set, job.text, job.time_utility, closed_loop=True
    )
