"""`timelyllm-batch`: fixed batch sizes against the adaptive bound (Ling et al. 2024, Figure 7)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from timely_llm.experiments.contract import Experiment, PaperOptions, ReportProgress
from timely_llm.experiments.parallel import run_all
from timely_llm.experiments.policy_spec import PAPER_BOUND, SERVED, PolicySpec, parse
from timely_llm.experiments.results.document import RunDocument
from timely_llm.experiments.results.metrics import UNBOUNDED
from timely_llm.experiments.results.reported import FIGURE_7
from timely_llm.experiments.sweep import MEASURES, cases, document, score
from timely_llm.policies.registry import options_of

SIZES = (1, 2, 4, 6, 8, 10, 12, 14, 16)
ADAPTIVE = "adaptive"
OWN = "its own"

_BATCH = (
    "the largest batch; adaptive: the bound of Ling et al. 2024, §4.4, 16 at most; its own: the"
    " policy's bound, or the number of rows that its name has"
)


@dataclass(frozen=True)
class BatchOptions(PaperOptions):
    """Options of `timelyllm-batch`."""

    policies: tuple[str, ...] = (
        *("fcfs", "timely", SERVED, UNBOUNDED),
        *(f"{PAPER_BOUND}:rows={SIZES[-1]}", "deadline"),
    )
    harness: bool = True
    explain: bool = field(default=False, init=False)


def run(options: BatchOptions, progress: ReportProgress) -> RunDocument:
    """Return the results of policies with batches of at most 1 to 16 requests."""
    sized = [
        replace(case, spec=spec, names={**case.names, "batch": batch}, timeline_s=0.0)
        for case in cases(options, ("wid2",))
        for batch, spec in _sizes(case.spec)
    ]
    return document(
        EXPERIMENT,
        options,
        run_all(score, sized, options.jobs, progress),
        keys=("workload", "load", "policy", "batch"),
        measures=("utility", "utility_unclamped", *MEASURES[1:5], "waiting_s"),
        definitions={"batch": _BATCH},
        papers=() if options.trace else (FIGURE_7,),
    )


def _sizes(spec: PolicySpec) -> Iterator[tuple[int | str, PolicySpec]]:
    """Yield each bound of the batch, and the policy with this bound."""
    known = options_of(spec.name)
    if "rows" not in known or ":rows=" in spec.text:
        yield OWN, spec
        return
    fixed = f"{spec.text}:adaptive=off" if "adaptive" in known else spec.text
    for size in SIZES:
        yield size, parse(f"{fixed}:rows={size}")
    if "adaptive" in known:
        yield ADAPTIVE, parse(f"{spec.text}:rows={SIZES[-1]}")


EXPERIMENT = Experiment(
    name="timelyllm-batch",
    question="How large should a batch be, and does the adaptive bound reach that size?"
    " (Ling et al. 2024, Figure 7)",
    run=run,
    defaults=BatchOptions(),
)
