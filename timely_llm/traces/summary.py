"""The contents of a trace, in numbers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from statistics import fmean, median
from typing import Any

from timely_llm.traces.model import Conversation, Job, Trace

BURST_GAP_S = 0.01
"""Largest gap between two jobs of a burst, seconds."""


def bursts(jobs: Sequence[Job]) -> list[list[Job]]:
    """Return the jobs of each burst."""
    found: list[list[Job]] = []
    for job in jobs:
        if found and job.arrival_s - found[-1][-1].arrival_s < BURST_GAP_S:
            found[-1].append(job)
        else:
            found.append([job])
    return found


def summary(trace: Trace) -> dict[str, Any]:
    """Return the contents of a trace as values of JSON.

    Returns:
        `tasks`: for each kind of task its number of jobs and of urgent ones, the mean seconds of
        its execution (None if unknown), and its segments and their tokens (0 if unknown).
        `time_utilities`: each function and its number of jobs; `zero_s` is None if the utility
        never falls. `talks`: the lengths and service levels of conversations; None without any.
    """
    events = bursts(trace.jobs)
    arrivals = [job.arrival_s for job in trace.jobs]
    arrivals += [talk.arrival_s for talk in trace.conversations]
    return {
        "name": trace.name,
        "source": trace.source,
        "jobs": len(trace.jobs),
        "conversations": len(trace.conversations),
        "agents": len(trace.agents),
        "robots": dict(Counter(kind for kind, _ in {(j.skill_set, j.agent) for j in trace.jobs})),
        "people": len({talk.agent for talk in trace.conversations}),
        "bursts": len(events),
        "largest_burst": max(map(len, events), default=0),
        "first_s": min(arrivals, default=0.0),
        "last_s": max(arrivals, default=0.0),
        "span_s": trace.span_s,
        "tasks": _tasks(trace.jobs),
        "time_utilities": _time_utilities(trace.jobs),
        "talks": _talks(trace.conversations),
    }


def _tasks(jobs: Sequence[Job]) -> list[dict[str, Any]]:
    kinds: dict[tuple[str, str], list[Job]] = {}
    for job in jobs:
        kinds.setdefault((job.skill_set, job.task), []).append(job)
    rows = []
    for (skill_set, task), members in sorted(kinds.items(), key=lambda item: _order(item[0])):
        known = [math.fsum(t.seconds for t in j.skill_times) for j in members if j.skill_times]
        rows.append(
            {
                "task": task,
                "skill_set": skill_set,
                "jobs": len(members),
                "urgent": sum(job.urgent for job in members),
                "execution_s": fmean(known) if known else None,
                "segments": max(len(job.segment_tokens) for job in members),
                "tokens": max(sum(job.segment_tokens) for job in members),
                "text": members[0].text,
            }
        )
    return rows


def _order(kind: tuple[str, str]) -> tuple[int, str, str]:
    """Return a sort key: numbers by size, then names."""
    skill_set, task = kind
    return (int(task) if task.isdecimal() and len(task) < 10 else 10**9, task, skill_set)


def _time_utilities(jobs: Sequence[Job]) -> list[dict[str, Any]]:
    found = Counter(job.time_utility for job in jobs)
    return [
        {
            "beta": utility.beta,
            "alpha": utility.alpha,
            "ert_s": utility.ert_s,
            "zero_s": utility.zero_s if math.isfinite(utility.zero_s) else None,
            "jobs": count,
        }
        for utility, count in found.most_common()
    ]


def _talks(talks: Sequence[Conversation]) -> dict[str, Any] | None:
    if not talks:
        return None
    return {
        "prompt_tokens": _spread([talk.prompt_tokens for talk in talks]),
        "output_tokens": _spread([talk.output_tokens for talk in talks]),
        "ttft_s": _spread([talk.ttft_s for talk in talks]),
        "tpot_s": _spread([talk.tpot_s for talk in talks]),
        "with_deadline": sum(math.isfinite(talk.deadline_s) for talk in talks),
    }


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {"least": min(values), "median": median(values), "most": max(values)}
