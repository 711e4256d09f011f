"""One run of a policy on a workload in virtual time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from timely_llm.core.journal import Journal
from timely_llm.experiments.contract import ExperimentError
from timely_llm.experiments.document import Value
from timely_llm.experiments.outcome import Run
from timely_llm.experiments.policy_spec import PolicySpec
from timely_llm.experiments.simulation import Settings, simulate
from timely_llm.experiments.sources import shipped_skill_sets
from timely_llm.traces.model import Trace


@dataclass(frozen=True)
class Case:
    """One run.

    Attributes:
        trace: its workload.
        spec: its policy, and what that changes in the settings.
        settings: what else it is like.
        names: columns of its row: policy, load, seed and more.
        drawn_s: seconds of its busiest window to draw a timeline of; 0: none.
    """

    trace: Trace
    spec: PolicySpec
    settings: Settings
    names: Mapping[str, Value]
    drawn_s: float = 0.0


def run_case(case: Case, journal: Journal | None = None) -> Run:
    """Return what robots got.

    Raises:
        TimelyError: it cannot be run.
    """
    settings, policy = case.spec.settings(case.settings), case.spec.make()
    try:
        return simulate(
            case.trace, policy, settings, skill_sets=shipped_skill_sets(), journal=journal
        )
    except ArithmeticError as error:
        text = case.spec.text
        raise ExperimentError(f"{text}: a value of its options is not possible: {error}") from error


def title(names: Mapping[str, Value]) -> str:
    """Return what a run is called, by the columns of its row."""
    return ", ".join(
        [str(names["policy"]), *(f"{k} {v}" for k, v in names.items() if k != "policy")]
    )
