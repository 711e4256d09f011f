"""`timelyllm-batch`: fixed batch sizes against the adaptive bound (paper 001, Figure 7)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from timely_llm.experiments.contract import Experiment, Options
from timely_llm.experiments.document import RunDocument
from timely_llm.experiments.papers import FIGURE_7
from timely_llm.experiments.parallel import run_all
from timely_llm.experiments.policy_spec import PolicySpec, options_of, parse
from timely_llm.experiments.stage import Progress
from timely_llm.experiments.sweep import cases, document, score

SIZES = (1, 2, 4, 6, 8, 10, 12, 14, 16)
ADAPTIVE = "adaptive"
OWN = "its own"

_BATCH = (
    "the largest batch; adaptive: as paper 001 §4.4 bounds it, 16 at most; its own: as the policy"
    " bounds it"
)


def run(options: Options, progress: Progress) -> RunDocument:
    """Return what policies earn with batches of at most 1 to 16.

    Raises:
        TimelyError: something of the options is not possible.
    """
    sized = [
        replace(case, spec=spec, names={**case.names, "batch": batch}, drawn_s=0.0)
        for case in cases(options, ("wid2",))
        for batch, spec in _sizes(case.spec)
    ]
    return document(
        EXPERIMENT,
        options,
        run_all(score, sized, options.jobs, progress),
        keys=("workload", "load", "policy", "batch"),
        measures=("utility", "urgent_utility", "normal_utility", "share_served", "waiting_s"),
        definitions={"batch": _BATCH},
        papers=() if options.trace else (FIGURE_7,),
    )


def _sizes(spec: PolicySpec) -> Iterator[tuple[int | str, PolicySpec]]:
    """Yield each size of the batch and the policy that keeps to it."""
    known = options_of(spec.name)
    if "rows" not in known:
        yield OWN, spec
        return
    fixed = f"{spec.text}:adaptive=off" if "adaptive" in known else spec.text
    for size in SIZES:
        yield size, parse(f"{fixed}:rows={size}")
    if "adaptive" in known:
        yield ADAPTIVE, parse(f"{spec.text}:rows={SIZES[-1]}")


EXPERIMENT = Experiment(
    name="timelyllm-batch",
    question="How large should a batch be, and does the adaptive bound find out?"
    " (paper 001, Figure 7)",
    run=run,
    defaults=Options(policies=("fcfs", "timely", "deadline"), loads=(1,), harness=True),
)
