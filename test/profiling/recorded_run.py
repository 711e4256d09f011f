"""A run in virtual time with the step times of a profile, as a plan server's event log has it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from timely_llm.core.events.log import FileEventLog
from timely_llm.engines.simulated import Profile
from timely_llm.experiments.virtual.simulation import SimulationSettings, simulate
from timely_llm.policies.registry import make_policy
from timely_llm.resources import resource
from timely_llm.traces.files import read_trace


def record(path: Path, profile: Profile, policy: str = "timely") -> None:
    """Append the events of a run to an event log."""
    trace = read_trace(resource("config/traces/floors.jsonl"))
    some = replace(trace, jobs=trace.jobs[:40], conversations=trace.conversations[:20])
    log = FileEventLog(path)
    simulate(some, make_policy(policy), SimulationSettings(profile=profile), event_log=log)
    log.close()
