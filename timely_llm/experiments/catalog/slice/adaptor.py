"""`slice-adaptor`: the utility adaptor and the preemption controller of SLICE, on and off.

Zhou et al. 2025 (§IV-E, Fig. 5) names two examples of an adaptor and evaluates none: a utility that
falls with generated tokens, and a utility that rises for a task that is selected, by which the
preemption controller protects it. The paper gives no factor: those here are this package's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from timely_llm.experiments.contract import Experiment, ReportProgress
from timely_llm.experiments.results.document import RunDocument
from timely_llm.experiments.virtual.slice_sweep import (
    KEY_DEFINITIONS,
    TaskOptions,
    document,
    sweep,
)

SETTINGS: Mapping[str, str] = {
    "slice": "without an adaptor, as the paper's experiments",
    "slice:half_life_tokens=32": "a task is worth half after 32 tokens: short tasks go first",
    "slice:keep=2": "a selected task counts twice: other conversations do not preempt it",
    "slice:keep=1000": "a selected task counts a thousand times: nothing preempts it",
    "slice:half_life_tokens=32:keep=2": "both",
}
"""Policies, and what each of them says."""

KEYS = (*(key for key in KEY_DEFINITIONS if key != "rate"), "policy", "rate")


@dataclass(frozen=True)
class AdaptorOptions(TaskOptions):
    """Options of `slice-adaptor`."""

    policies: tuple[str, ...] = tuple(SETTINGS)
    rates: tuple[float, ...] = (1.0, 2.0, 3.0)


def run(options: AdaptorOptions, progress: ReportProgress) -> RunDocument:
    """Return what SLICE reaches with and without its adaptors, by rate."""
    made = document(EXPERIMENT, options, sweep(options, progress), keys=KEYS)
    used = [name for name in SETTINGS if name in options.policies]
    notes = [f"`{name}`: {SETTINGS[name]}." for name in used]
    return made.model_copy(update={"notes": (*made.notes, *notes)})


EXPERIMENT = Experiment(
    name="slice-adaptor",
    question="What do SLICE's utility adaptor and preemption controller change?"
    " (Zhou et al. 2025, §IV-E and Figure 5)",
    run=run,
    defaults=AdaptorOptions(),
)
