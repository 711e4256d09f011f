"""`pice-ensemble`: which of several expansions is shown (Zhan et al. 2025, Figures 8 and 9)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

import numpy as np

from timely_llm.core.options import read_options
from timely_llm.core.text import quoted
from timely_llm.experiments.contract import Experiment, ExperimentError, ReportProgress
from timely_llm.experiments.parallel import run_all
from timely_llm.experiments.results.document import RunDocument
from timely_llm.experiments.results.metrics import MeasuredRow, plain
from timely_llm.experiments.results.reported_sketches import ZHAN_FIGURES_8_9
from timely_llm.experiments.virtual.sketches.questions import BenchQuestion, questions
from timely_llm.experiments.virtual.sketches.score import DEFINITIONS, SketchOptions
from timely_llm.experiments.virtual.sketches.setup import NOTES
from timely_llm.experiments.virtual.sketches.wording import SPEAKERS, spoken, wording
from timely_llm.progressive.ensemble.confidence import (
    Candidate,
    Weights,
    confidence,
    most_confident,
)
from timely_llm.progressive.ensemble.rouge import rouge_1

KEYS = ("category", "policy")
ALL, CONFIDENCE, ORACLE = "all", "confidence", "oracle"
SKETCH_SHARE, RPM = 0.2, 30.0
_DRAW = 7919
LENGTH_SPREAD = 0.2
"""Standard deviation of the logarithm of an expansion's length over the cloud's own answer."""


@dataclass(frozen=True)
class EnsembleOptions(SketchOptions):
    """Options of `pice-ensemble`."""

    policies: tuple[str, ...] = (
        *SPEAKERS,
        CONFIDENCE,
        f"{CONFIDENCE}:probability=1:length=0",
        f"{CONFIDENCE}:probability=0:length=1",
        f"{CONFIDENCE}:probability=0:length=0",
        f"{CONFIDENCE}:probability=0.3:length=0.2",
        f"{CONFIDENCE}:norm=near",
        f"{CONFIDENCE}:norm=open",
        f"{CONFIDENCE}:norm=logarithmic",
        f"{CONFIDENCE}:probability=0:length=1:norm=near",
        ORACLE,
    )


@dataclass(frozen=True)
class EnsembleCase:
    """Questions of a seed, and the rules that choose among their expansions."""

    policies: tuple[str, ...]
    minutes: float
    seed: int


Pick = Callable[[BenchQuestion, Sequence[Candidate], str, str], Candidate]
"""Question, expansions, sketch, answer of the cloud -> the expansion that is shown."""


def pick(policy: str) -> Pick:
    """Return a rule: one model alone, a confidence with weights, or the best expansion of all.

    Raises:
        ExperimentError: there is no such rule.
        ConfigurationError: its weights are not possible.
    """
    if policy in SPEAKERS:
        return lambda asked, made, sketch, whole: next(c for c in made if c.model == policy)
    if policy == ORACLE:
        return lambda asked, made, sketch, whole: max(made, key=lambda c: rouge_1(c.text, whole).f1)
    name, *options = policy.split(":")
    if name != CONFIDENCE:
        allowed = ", ".join((*SPEAKERS, CONFIDENCE, ORACLE))
        raise ExperimentError(f"unknown rule {quoted(name)}: choose one of {allowed}")
    known: dict[str, Any] = asdict(Weights())
    weights = Weights(**{**known, **read_options(name, known, options)})
    return lambda asked, made, sketch, whole: most_confident(made, sketch, asked.tokens, weights)


def run(options: EnsembleOptions, progress: ReportProgress) -> RunDocument:
    """Return what each rule picks, over all questions and by category.

    Raises:
        TimelyError: a rule is unknown.
    """
    for policy in options.policies:
        pick(policy)
    cases = [EnsembleCase(options.policies, options.minutes, seed) for seed in options.each_seed]
    rows = [row for made in run_all(score, cases, options.jobs, progress) for row in made]
    return EXPERIMENT.document(
        "none",
        {
            "words": "in place of models' own: no model ran",
            "sketches": f"{100 * SKETCH_SHARE:g} % of the answer's tokens",
            "seeds": options.named_seeds,
        },
        keys=KEYS,
        measures=("rouge_1", "confidence"),
        definitions={
            "category": "of the questions, or `all`",
            "policy": "one small model alone; the expansion with the largest `confidence` (Eq. 3),"
            " with other weights too; or the best one, by an `oracle`",
            "rouge_1": DEFINITIONS["rouge_1"],
            "confidence": "of the shown expansion (Eq. 3), with the default weights, mean",
            "count": "questions",
        },
        rows=tuple(rows),
        papers=(ZHAN_FIGURES_8_9,),
        notes=(
            *NOTES[:1],
            "A model's ability is its MMLU of Table I, and 0.1 more in the categories in which it"
            " is taken to be best: these are this package's, since Figure 8 has no numbers."
            " Llama's probabilities are lower throughout, as §IV-C says, by 0.35 in the logarithm.",
            f"Lengths of expansions differ from the cloud's own answer by {100 * LENGTH_SPREAD:g} %"
            " (standard deviation): one that is too long repeats words of its own.",
        ),
    )


def score(case: EnsembleCase) -> list[MeasuredRow]:
    """Let each rule pick; return rows by category and rule."""
    found: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    rules = {policy: pick(policy) for policy in case.policies}
    for asked in questions(RPM, case.seed, max(round(RPM * case.minutes), 2)):
        sketched = round(SKETCH_SHARE * asked.tokens)
        whole = wording(asked.seed, asked.tokens, sketched, asked.category)
        made = [
            _as_long(spoken(whole, speaker, asked.category, seed), seed)
            for seed, speaker in (
                (asked.seed + _DRAW * place, one) for place, one in enumerate(SPEAKERS.values())
            )
        ]
        for policy, rule in rules.items():
            shown = rule(asked, made, whole.sketch, whole.text)
            likeness = rouge_1(shown.text, whole.text).f1
            trust = confidence(shown, whole.sketch, asked.tokens)
            for category in (asked.category, ALL):
                found[category, policy].append((likeness, trust))
    rows: list[MeasuredRow] = []
    for (category, policy), values in sorted(found.items()):
        likeness, trust = map(fmean, zip(*values, strict=True))
        rows.append(
            plain(
                {
                    "category": category, "policy": policy, "seed": case.seed,
                    "rouge_1": likeness, "confidence": trust, "count": len(values),
                }
            )
        )  # fmt: skip
    return rows


def _as_long(one: Candidate, seed: int) -> Candidate:
    """Return an expansion of another length: cut, or with words of its own repeated at its end."""
    words, rng = one.text.split(), np.random.default_rng((seed, 4))
    tokens = max(round(len(words) * rng.lognormal(0.0, LENGTH_SPREAD)), 1)
    places = [*range(len(words)), *rng.integers(0, len(words), max(tokens - len(words), 0))]
    kept = places[:tokens]
    text = " ".join(words[place] for place in kept)
    return Candidate(one.model, text, [one.logprobs[place] for place in kept])


EXPERIMENT = Experiment(
    name="pice-ensemble",
    question="Does a confidence pick the best of several expansions?"
    " (Zhan et al. 2025, Figures 8 and 9)",
    run=run,
    defaults=EnsembleOptions(),
)
