"""`timelyllm-memory`: little KV memory, with and without swap (Ling et al. 2024, §4.1)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from timely_llm.engines.paces import step_time_profile
from timely_llm.engines.swapping import check_swaps
from timely_llm.experiments.contract import Experiment, PaperOptions, ReportProgress
from timely_llm.experiments.parallel import run_all
from timely_llm.experiments.policy_spec import PAPER_BOUND, SERVED
from timely_llm.experiments.results.document import Row, RunDocument
from timely_llm.experiments.results.metrics import UNBOUNDED, plain
from timely_llm.experiments.results.metrics import row as plan_row
from timely_llm.experiments.sweep import RunSpec, Scored, cases, document, simulate_run
from timely_llm.experiments.virtual.workload import OWN_TOKENS, SHARED_TOKENS

CONTEXT_TOKENS = 1300
"""Tokens with KV of one request: 170.35 MB of Llama 3 8B (Ling et al. 2024, §4.1)."""

SHARED = SHARED_TOKENS + OWN_TOKENS - CONTEXT_TOKENS
"""What is left of the prompt of Table 1, pinned for all requests."""

BUDGETS = (42_000, 10_400, 5_200)
"""KV tokens beside the pinned prompt: what an RTX 4090 has left beside 16 GB of weights and 2.5 GB
of activations, 8 contexts, and 4."""

PRESETS = ("wid1", "wid3")
"""Short plans of drones, and long plans of arms, of which many are suspended at once."""

SWAP = {False: "off", True: "on"}
KEYS = ("workload", "load", "policy", "kv_tokens", "swap")
MEASURES = (
    "utility",
    "urgent_utility",
    "normal_utility",
    "share_first",
    "share_finished",
    "waiting_s",
    "evictions",
    "recomputed_tokens",
    "loaded_tokens",
)
DEFINITIONS = {
    "kv_tokens": "tokens of KV that the requests have together, beside the pinned prompt",
    "swap": "on: evicted KV goes to host memory and is loaded again; off: it is computed again",
    "evictions": "how often the KV of a sequence was evicted",
    "recomputed_tokens": "tokens with KV that was computed a second time",
    "loaded_tokens": "tokens with KV that was loaded from host memory",
}


@dataclass(frozen=True)
class MemoryOptions(PaperOptions):
    """Options of `timelyllm-memory`."""

    policies: tuple[str, ...] = ("stream", "timely", SERVED, UNBOUNDED, PAPER_BOUND, "deadline")
    seeds: int = 2
    uncached: bool = field(default=False, init=False)
    explain: bool = field(default=False, init=False)


def run(options: MemoryOptions, progress: ReportProgress) -> RunDocument:
    """Return the results of each policy with each budget, with and without swap."""
    specs = [
        _with_memory(case, kv_tokens, swap)
        for case in cases(options, PRESETS)
        for kv_tokens in BUDGETS
        for swap in SWAP
    ]
    profile = step_time_profile(options.profile)
    check_swaps(profile)
    rows = run_all(score, specs, options.jobs, progress)
    made = document(
        EXPERIMENT,
        options,
        [Scored(row, ()) for row in rows],
        keys=KEYS,
        measures=MEASURES,
        definitions=DEFINITIONS,
    )
    setup = {
        "prompt tokens, shared and computed once": SHARED,
        "prompt tokens computed for each request": CONTEXT_TOKENS,
        "host memory": f"{1e6 * profile.swap_token_s:.1f} us for the KV of a token, each way;"
        " transfers and forward passes do not overlap",
    }
    return made.model_copy(update={"setup": {**made.setup, **setup}})


def score(case: RunSpec) -> Row:
    """Run a case and return its row."""
    run = simulate_run(case)
    memory = {name: getattr(run, name) for name in MEASURES[-3:]}
    return plain({**plan_row(run, **case.names), **memory})


def _with_memory(case: RunSpec, kv_tokens: int, swap: bool) -> RunSpec:
    """Return a case with a KV budget and without a timeline."""
    limits = replace(case.settings.limits, kv_tokens=SHARED + kv_tokens)
    settings = replace(
        case.settings, shared_tokens=SHARED, own_tokens=CONTEXT_TOKENS, limits=limits, swap=swap
    )
    names = {**case.names, "kv_tokens": kv_tokens, "swap": SWAP[swap]}
    return replace(case, settings=settings, names=names, timeline_s=0.0)


EXPERIMENT = Experiment(
    name="timelyllm-memory",
    question="What does little KV memory cost, and how much of it does swap to the host save?"
    " (Ling et al. 2024, §4.1)",
    run=run,
    defaults=MemoryOptions(),
)
