"""Small workloads with outcomes that can be worked out by hand."""

from timely_llm.core.time_utility import NORMAL, TimeUtility
from timely_llm.traces.model import Job, SkillTime, Trace


def job(
    job_id: str,
    arrival_s: float = 0.0,
    *,
    utility: TimeUtility = NORMAL,
    tokens: tuple[int, ...] = (4, 3, 1),
    seconds: tuple[float, ...] = (2.0, 1.0),
    task: str = "0",
    plan: str = "",
    text: str = "fly",
) -> Job:
    times = tuple(SkillTime("mf", s) for s in seconds)
    return Job(
        job_id, arrival_s, f"agent-{job_id}", task, "drone", text, utility, times, plan, tokens
    )


def trace(*jobs: Job) -> Trace:
    return Trace("small", "", jobs)
