"""The requests of a trace, ready for a running server.

Each replay has its own ids: a prefix that no other replay has, a slash, and the id of the job or
the conversation.
"""

from __future__ import annotations

import contextlib
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from timely_llm.core.errors import RequestError
from timely_llm.core.request import (
    MAX_ID_CHARACTERS,
    MAX_MESSAGE_CHARACTERS,
    MAX_TASK_CHARACTERS,
    MAX_TOKENS,
    PlanRequest,
)
from timely_llm.experiments.virtual.workload import REPLICA_GAP_S
from timely_llm.skills.skill_set import SkillSet
from timely_llm.traces.lines import MAX_REQUESTS, in_order
from timely_llm.traces.model import Conversation, Job, Trace, TraceError
from timely_llm.traces.streams import request_of as talk_request_of

ODD = (
    f"jobs that no server admits: an id or a name of more than {MAX_ID_CHARACTERS} characters, or"
    f" a text of none or more than {MAX_TASK_CHARACTERS}"
)
ODD_TALKS = (
    f"conversations that no server admits: an id or a name of more than {MAX_ID_CHARACTERS}"
    f" characters, a prompt of more than {MAX_MESSAGE_CHARACTERS}, an answer of more than"
    f" {MAX_TOKENS} tokens, or a time of 0 s for it"
)


@dataclass(frozen=True)
class ReplayScript:
    """The requests of a replay.

    Attributes:
        trace: the requests, with ids of the replay and arrivals after its start.
        skill_sets: the robots' skill sets, by name.
        left_out: numbers of requests that are left out, by reason.
    """

    trace: Trace
    skill_sets: Mapping[str, SkillSet]
    left_out: Counter[str]


def script(
    trace: Trace, skill_sets: Mapping[str, SkillSet], load: int, speed: float, limit: int
) -> ReplayScript:
    """Return the requests of a replay.

    Args:
        trace: the workload.
        skill_sets: skill sets by name; jobs for others are left out.
        load: requests for each job, each by another agent; conversations have one.
        speed: speed of the replay; 1 is that of the trace.
        limit: most requests of the trace, from the first on.

    Raises:
        TraceError: no request is left, or there are too many.
    """
    prefix = f"replay-{uuid.uuid4().hex[:8]}"
    left_out: Counter[str] = Counter()
    asked = in_order(trace)[:limit]
    first_s = asked[0].arrival_s if asked else 0.0
    count = sum(load if isinstance(one, Job) else 1 for one in asked)
    if count > MAX_REQUESTS:
        raise TraceError(f"a load of {load} makes {count} requests: at most {MAX_REQUESTS}")
    jobs: list[Job] = []
    talks: list[Conversation] = []
    for one in asked:
        arrival_s, name = (one.arrival_s - first_s) / speed, f"{prefix}/{one.id}"
        if isinstance(one, Conversation):
            try:
                talk = replace(one, id=name, arrival_s=arrival_s)
                talk_request_of(talk)
            except (RequestError, TraceError):
                left_out[ODD_TALKS] += 1
            else:
                talks.append(talk)
        elif one.skill_set not in skill_sets:
            left_out[f"jobs for the skill set {one.skill_set!r}, which is not known here"] += load
        else:
            made = list(_copies(replace(one, arrival_s=arrival_s), name, load))
            left_out[ODD] += load - len(made)
            jobs += made
    if not jobs and not talks:
        why = "; ".join(f"{count} {reason}" for reason, count in (+left_out).items())
        raise TraceError(
            f"the trace {trace.name!r} has no request to replay: {why or 'it is empty'}"
        )
    jobs.sort(key=lambda job: job.arrival_s)
    return ReplayScript(
        Trace(trace.name, trace.source, tuple(jobs), tuple(talks)), skill_sets, +left_out
    )


def _copies(job: Job, name: str, load: int) -> Iterator[Job]:
    """Yield the requests for a job that a server admits."""
    for copy in range(load):
        suffix = f"+{copy}" if copy else ""
        arrival_s = job.arrival_s + copy * REPLICA_GAP_S
        with contextlib.suppress(RequestError, TraceError):
            asked = replace(job, id=name + suffix, agent=job.agent + suffix, arrival_s=arrival_s)
            request_of(asked)
            yield asked


def request_of(job: Job) -> PlanRequest:
    """Return the request of a job, with its plan if that was written by hand.

    Raises:
        RequestError: no server admits it.
    """
    return PlanRequest(
        job.id, job.agent, job.skill_set, job.text, job.time_utility, closed_loop=True,
        given_plan=job.plan if job.given else "",
    )  # fmt: skip
