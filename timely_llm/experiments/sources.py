"""Where an experiment's requests come from: a preset composed anew for each seed, or a file."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from pathlib import Path

from timely_llm.core.documents import load_document
from timely_llm.experiments.contract import ExperimentError
from timely_llm.experiments.recorded_trace import recorded_trace
from timely_llm.experiments.simulation import Settings
from timely_llm.resources import resource
from timely_llm.skills.skill_set import SkillSet, load_skill_set
from timely_llm.traces.compose import compose
from timely_llm.traces.files import read_trace
from timely_llm.traces.model import Trace, TraceError
from timely_llm.traces.recipes import presets
from timely_llm.traces.tasks import TraceTasks

SKIP = Settings().skip


@lru_cache(maxsize=64)
def composed(preset: str, seed: int) -> Trace:
    """Return the workload of a preset's recipe, with another seed.

    Args:
        preset: its name, such as "wid1" (paper 001, Table 3).
        seed: of the arrivals, the choice of tasks, and the sampled times.

    Raises:
        ExperimentError: there is no such preset.
    """
    known = presets()
    if preset not in known:
        raise ExperimentError(f"unknown preset {preset!r}: choose one of {', '.join(known)}")
    recipe = known[preset].model_copy(update={"seed": seed})
    file = resource("config/traces/lrtrace_tasks.yaml")
    tasks = load_document(file, TraceTasks, "task set", TraceError)
    source = f"preset {preset}, seed {seed}"
    return compose(recipe, tasks, shipped_skill_sets(), None, preset, source)


@lru_cache(maxsize=1)
def shipped_skill_sets() -> dict[str, SkillSet]:
    """Return the skill sets that come with the package, by name."""
    files = sorted(resource("config/skill_sets").glob("*.yaml"))
    return {made.name: made for made in map(load_skill_set, files)}


def given(path: Path) -> Trace:
    """Return a user's trace, if there is something to measure in it.

    Of a recording, requests are asked again, and what was recorded are their answers.

    Raises:
        TraceError: it cannot be read.
        ExperimentError: there is nothing in it, or it has too few jobs.
    """
    return _given(path, path.stat().st_mtime_ns if path.exists() else 0)


def robots(trace: Trace) -> str:
    """Return of which skill sets a trace's robots are, such as "42 drone", for people."""
    counts = Counter(kind for kind, _ in {(job.skill_set, job.agent) for job in trace.jobs})
    return ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())) or "none"


@lru_cache(maxsize=1)
def _given(path: Path, changed_ns: int) -> Trace:
    trace = read_trace(path)
    if path.suffix != ".jsonl" and not any(j.plan or j.segment_tokens for j in trace.jobs):
        trace = recorded_trace(path) if trace.jobs else trace
    if not trace.jobs and not trace.conversations:
        raise ExperimentError(f"{path} has nothing in it: an experiment needs requests")
    if 0 < len(trace.jobs) <= SKIP:
        raise ExperimentError(
            f"{path} has {len(trace.jobs)} jobs, and the first {SKIP} do not count:"
            " an experiment needs more"
        )
    return trace
