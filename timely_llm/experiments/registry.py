"""Experiments by name."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from timely_llm.core.errors import ConfigurationError
from timely_llm.core.object_reference import is_reference, load, unknown
from timely_llm.core.text import quoted
from timely_llm.experiments.contract import Experiment, ExperimentError

EXPERIMENTS = (
    "timelyllm-drone",
    "timelyllm-trace",
    "timelyllm-batch",
    "timelyllm-policies",
    "ablation",
    "row-cost",
    "timelyllm-arm",
    "timelyllm-chatbot",
    "timelyllm-memory",
    "timelyllm-phases",
    "timelyllm-overhead",
    "slice-static",
    "slice-dynamic",
    "slice-ratio",
    "slice-rate",
    "slice-lengths",
    "slice-adaptor",
    "slice-weight",
    "slice-overload",
    "slice-restarts",
    "mixed",
    "fleet",
    "bursts",
    "urgent",
    "optimal",
    "annealing-order",
    "annealing-search",
    "annealing-lengths",
    "annealing-fit",
    "annealing-servers",
    "servers-scale",
    "servers-mixed",
    "pipeline-offline",
    "pipeline-online",
    "pipeline-timeline",
    "pipeline-plans",
    "pice-throughput",
    "pice-schedule",
    "pice-parallel",
    "pice-ensemble",
    "pice-load",
    "pice-queue",
    "pice-bandwidth",
    "pice-options",
    "pice-plans",
    "engine-overhead",
    "engine-resume",
)
"""Each has a module of its name in the catalog, such as `timelyllm/drone.py`, that defines
`EXPERIMENT`."""


def experiment(name: str) -> Experiment[Any]:
    """Return an experiment of the catalog, or a user's own, such as `my_module:EXPERIMENT`.

    Raises:
        ExperimentError: no experiment has the name.
    """
    if is_reference(name):
        return _own(name)
    if name not in EXPERIMENTS:
        raise ExperimentError(unknown("experiment", name, EXPERIMENTS, "my_module:EXPERIMENT"))
    module = name.replace("-", ".", 1)
    found: Experiment[Any] = import_module(f"timely_llm.experiments.catalog.{module}").EXPERIMENT
    return found


def _own(reference: str) -> Experiment[Any]:
    try:
        found = load(reference)
    except ConfigurationError as error:
        raise ExperimentError(str(error)) from error
    if not isinstance(found, Experiment):
        raise ExperimentError(f"{reference} is not an Experiment: it is {quoted(found)}")
    return found
