"""The workloads of experiments: a preset composed for each seed, a trace, or a recorded bag."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from timely_llm.core.documents.read import load_document
from timely_llm.engines.simulated import ScriptTokenizer
from timely_llm.experiments.contract import ExperimentError
from timely_llm.experiments.recorded.messages import RecordedMessages
from timely_llm.experiments.recorded.requests import RecordedExecution, RecordedPlan, read_requests
from timely_llm.experiments.virtual.simulation import SimulationSettings
from timely_llm.resources import resource
from timely_llm.skills.skill_set import SkillSet, load_skill_set
from timely_llm.traces.compose import compose
from timely_llm.traces.files import read_trace
from timely_llm.traces.model import Job, SkillTime, Trace, TraceError
from timely_llm.traces.recipes import Recipe, presets
from timely_llm.traces.recordings.bags import bag_messages
from timely_llm.traces.tasks import TraceTasks

log = logging.getLogger(__name__)


def recorded_trace(path: Path) -> Trace:
    """Return the requests of a recorded bag, with the plans that were made and executed.

    A request with several epochs has the plan of its last epoch. A conversation has the computed
    tokens of its prompt and the tokens of its answer. Requests without a segment or token are left
    out, since their model output is not known.

    Args:
        path: a bag's folder, or one of its .mcap files.

    Raises:
        TraceError: the bag cannot be read, or none of its requests was answered.
    """
    messages = RecordedMessages(bag_messages(path, log.warning), path)
    requests = read_requests(messages)
    jobs = tuple(_jobs(requests.plans))
    talks = tuple(plan.conversation for plan in requests.conversations if plan.tokens)
    if not jobs and not talks:
        raise TraceError(
            f"{path} has no model output to replay: it needs requests and their segments, as"
            " `timely-llm trace record` records them"
        )
    unanswered = len(requests.plans) + len(requests.conversations) - len(jobs) - len(talks)
    if unanswered:
        log.warning("%s: %d requests without an answer are left out", path, unanswered)
    return Trace(path.stem, f"answers recorded in {path.stem}", jobs, talks)


def _jobs(requests: tuple[RecordedPlan, ...]) -> Iterator[Job]:
    encode = ScriptTokenizer().encode
    for plan in requests:
        epoch = max((segment.epoch for segment in plan.delivered), default=0)
        texts = {s.index: s.text for s in reversed(plan.delivered) if s.epoch == epoch and s.text}
        if not texts:
            continue
        spells = {spell.place[1]: spell for spell in plan.spells if spell.place[0] == epoch}
        yield replace(
            plan.job,
            plan="".join(texts[index] for index in sorted(texts)),
            segment_tokens=tuple(len(encode(texts[index])) for index in sorted(texts)),
            skill_times=tuple(
                SkillTime("segment", _seconds(spells.get(index))) for index in sorted(texts)
            ),
        )


def _seconds(spell: RecordedExecution | None) -> float:
    """Return the execution time of a segment, seconds; 0 if it was not executed to a known end."""
    if spell is None or spell.end_ns is None:
        return 0.0
    return max(spell.end_ns - spell.start_ns, 0) / 1e9


SKIP = SimulationSettings().skip


@lru_cache(maxsize=64)
def composed(preset: str, seed: int, minutes: float | None = None) -> Trace:
    """Return the workload of a preset, composed with a seed.

    Args:
        preset: its name, such as "wid1" (Ling et al. 2024, Table 3).
        seed: seed of arrivals, tasks and sampled times.
        minutes: length of the workload; None: as the preset says.

    Raises:
        ExperimentError: no preset has the name, or the workload has too few jobs in these minutes.
    """
    known = presets()
    if preset not in known:
        raise ExperimentError(f"unknown preset {preset!r}: choose one of {', '.join(known)}")
    recipe = recipe_of(known[preset], seed, minutes)
    source = f"preset {preset}, seed {seed}"
    made = compose(recipe, shipped_tasks(), shipped_skill_sets(), None, preset, source)
    if minutes is not None and len(made.jobs) <= SKIP:
        raise ExperimentError(
            f"{minutes:g} minutes of {preset} have {len(made.jobs)} jobs, and the first {SKIP} do"
            " not count: ask for more minutes"
        )
    return made


def recipe_of(preset: Recipe, seed: int, minutes: float | None) -> Recipe:
    """Return the recipe of a preset with a seed, and with another length unless it is None."""
    changed: dict[str, float] = {} if minutes is None else {"duration_s": 60.0 * minutes}
    return preset.model_copy(update={"seed": seed, **changed})


@lru_cache(maxsize=1)
def shipped_tasks() -> TraceTasks:
    """Return the kinds of tasks that come with the package."""
    file = resource("config/traces/lrtrace_tasks.yaml")
    return load_document(file, TraceTasks, "task set", TraceError)


@lru_cache(maxsize=1)
def shipped_skill_sets() -> dict[str, SkillSet]:
    """Return the skill sets that come with the package, by name."""
    files = sorted(resource("config/skill_sets").glob("*.yaml"))
    return {made.name: made for made in map(load_skill_set, files)}


def given(path: Path) -> Trace:
    """Return a user's trace. A recording gives its requests, and their recorded answers.

    Raises:
        TraceError: the trace cannot be read.
        ExperimentError: the trace is empty or has too few jobs.
    """
    return _given(path, path.stat().st_mtime_ns if path.exists() else 0)


def robots(trace: Trace) -> str:
    """Return the robots of a trace by skill set, for people: "42 drone"."""
    counts = Counter(kind for kind, _ in {(job.skill_set, job.agent) for job in trace.jobs})
    return ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())) or "none"


@lru_cache(maxsize=1)
def _given(path: Path, changed_ns: int) -> Trace:
    trace = read_trace(path)
    if path.suffix != ".jsonl" and not any(j.plan or j.segment_tokens for j in trace.jobs):
        trace = recorded_trace(path) if trace.jobs else trace
    if not trace.jobs and not trace.conversations:
        raise ExperimentError(f"{path} is empty: an experiment needs requests")
    if 0 < len(trace.jobs) <= SKIP:
        raise ExperimentError(
            f"{path} has {len(trace.jobs)} jobs, and the first {SKIP} do not count:"
            " an experiment needs more"
        )
    return trace
