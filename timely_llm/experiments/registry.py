"""Experiments by name."""

from __future__ import annotations

from importlib import import_module

from timely_llm.experiments.contract import Experiment, ExperimentError

EXPERIMENTS = {
    "timelyllm-drone": "drone",
    "timelyllm-trace": "two_tasks",
    "timelyllm-batch": "batch_sizes",
    "timelyllm-policies": "policies",
    "ablation": "ablation",
    "timelyllm-arm": "arm",
    "timelyllm-chatbot": "chatbot",
    "timelyllm-overhead": "overhead",
    "slice-static": "slice_static",
    "slice-dynamic": "slice_dynamic",
    "slice-ratio": "slice_ratio",
    "slice-rate": "slice_rate",
    "mixed": "mixed",
    "optimal": "optimal",
    "engine-overhead": "engine_overhead",
    "engine-resume": "engine_resume",
}
"""Each experiment and the module here that has it as `EXPERIMENT`."""


def experiment(name: str) -> Experiment:
    """Return an experiment.

    Raises:
        ExperimentError: there is none of that name.
    """
    if name not in EXPERIMENTS:
        allowed = ", ".join(EXPERIMENTS)
        raise ExperimentError(f"unknown experiment {name!r}: choose one of {allowed}")
    found: Experiment = import_module(f"timely_llm.experiments.{EXPERIMENTS[name]}").EXPERIMENT
    return found
