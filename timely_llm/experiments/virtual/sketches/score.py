"""Runs of methods, and their rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from statistics import fmean
from typing import Any, NamedTuple

from timely_llm.cloud.simulated import CloudPath
from timely_llm.core.options import read_options
from timely_llm.core.text import quoted
from timely_llm.engines.simulated import PROFILES
from timely_llm.experiments.contract import ExperimentError, SeedOptions
from timely_llm.experiments.results.document import RowValue
from timely_llm.experiments.results.metrics import MeasuredRow, plain
from timely_llm.experiments.virtual.sketches.bench import Bench, Method, ShownAnswer
from timely_llm.experiments.virtual.sketches.methods import (
    CloudOnly,
    EdgeOnly,
    EdgeRules,
    Routing,
    RoutingRules,
    SkeletonOfThought,
    Speculative,
)
from timely_llm.experiments.virtual.sketches.ours import Ours, OursRules
from timely_llm.experiments.virtual.sketches.pice import Pice, PiceRules
from timely_llm.experiments.virtual.sketches.quality import SaidOpening, likeness
from timely_llm.experiments.virtual.sketches.questions import questions
from timely_llm.experiments.virtual.sketches.testbed import (
    DEFAULT_FAR_MODEL,
    FAR_MODELS,
    PATH,
    Devices,
)

MINUTES = 160 / 60
"""Minutes in which questions come: 80 at 30 a minute."""

WORDS_PER_TOKEN, LISTENER_WORDS_PER_S = 0.75, 3.0
LISTENER_S = WORDS_PER_TOKEN / LISTENER_WORDS_PER_S
"""Seconds in which a person takes a token that is spoken."""

DEFINITIONS: Mapping[str, str] = {
    "throughput": "questions a minute, from the first question to the end of the last answer",
    "steady_throughput": "questions a minute while the middle 80 % of the answers end",
    "latency_s": "from a question to its whole answer, seconds, mean",
    "latency_p95_s": "95 % of the answers are whole within this time, seconds",
    "first_words_s": "from a question to the first word that can be shown, seconds, mean",
    "stalled_s": "seconds of an answer in which a listener at 3 words a second waits for words",
    "cloud_tokens": "tokens of the cloud for each question, with sketches and predicted lengths",
    "edge_tokens": "tokens of edges for each question",
    "sketched": "share of the questions that were answered from a sketch",
    "rouge_1": "Rouge-1 F1 of the answer and the cloud's own, of words in place of a model's",
    "count": "questions of the run",
}

MEASURES = ("throughput", "latency_s", "first_words_s", "rouge_1", "cloud_tokens", "sketched")


@dataclass(frozen=True)
class SketchOptions(SeedOptions):
    """Options of experiments with a cloud and edges.

    Attributes:
        policies: methods, such as `pice:batch=4:merge=off`.
        minutes: in which questions come.
        jobs: processes that run at once.
    """

    policies: tuple[str, ...] = ()
    minutes: float = MINUTES
    seeds: int = 3
    jobs: int = 2


@dataclass(frozen=True)
class SketchCase:
    """One run.

    Attributes:
        method: how questions are answered.
        seed: of the questions.
        names: columns of its row that name it.
        far: the cloud's model.
        rpm: questions a minute; 0: 1.5 times the rows of the cloud's batch.
        minutes: in which questions come.
        path: between edges and cloud.
    """

    method: str
    seed: int
    names: Mapping[str, RowValue] = field(default_factory=dict)
    far: str = DEFAULT_FAR_MODEL
    rpm: float = 0.0
    minutes: float = MINUTES
    path: CloudPath = PATH

    def answers(self) -> list[ShownAnswer]:
        """Run it and return what people got."""
        far = FAR_MODELS[self.far]
        rpm = self.rpm or far.rpm
        asked = questions(rpm, self.seed, max(round(rpm * self.minutes), 2), far.bias)
        bench = Bench(asked)
        return bench.run(method(self.method)(bench, Devices(far, self.path)))


def score(case: SketchCase) -> MeasuredRow:
    """Run a case and return its row."""
    return plain({**case.names, "seed": case.seed, **measures(case.answers())})


def measures(answers: Sequence[ShownAnswer]) -> MeasuredRow:
    """Return the columns of `DEFINITIONS` for the answers of a run."""
    ends = sorted(one.end_s for one in answers)
    first_s = min(one.question.at_s for one in answers)
    count = len(answers)
    low, high = count // 10, (9 * count) // 10
    middle_s = ends[high] - ends[low] if high > low else math.nan
    latencies = sorted(one.end_s - one.question.at_s for one in answers)
    return {
        "throughput": 60.0 * count / (ends[-1] - first_s),
        "steady_throughput": 60.0 * (high - low) / middle_s if middle_s else math.nan,
        "latency_s": fmean(latencies),
        "latency_p95_s": latencies[math.ceil(0.95 * count) - 1],
        "first_words_s": fmean(one.shown_s[0] - one.question.at_s for one in answers),
        "stalled_s": fmean(map(stalled_s, answers)),
        "cloud_tokens": fmean(one.cloud_tokens for one in answers),
        "edge_tokens": fmean(one.edge_tokens for one in answers),
        "sketched": fmean(one.sketch_tokens > 0 for one in answers),
        "rouge_1": fmean(map(rouge_of, answers)),
        "count": count,
    }


def rouge_of(answer: ShownAnswer) -> float:
    """Return the likeness of an answer and the cloud's own."""
    asked, said = answer.question, answer.opening
    opening = SaidOpening(said.model, said.tokens) if said else None
    return likeness(
        asked.seed, asked.tokens, answer.sketch_tokens, asked.category, answer.model, opening
    )


def stalled_s(answer: ShownAnswer) -> float:
    """Return the seconds in which a listener waits between the first word and the last."""
    if not answer.shown_s:
        return math.nan
    free_s, stalled = answer.shown_s[0], 0.0
    for _, shown_s in pairwise(answer.shown_s):
        free_s += LISTENER_S
        stalled += max(shown_s - free_s, 0.0)
        free_s = max(free_s, shown_s)
    return stalled


def versus(rows: Sequence[MeasuredRow], keys: Sequence[str], over: str) -> list[MeasuredRow]:
    """Return rows with throughput and latency over those of a method in the same setting.

    Args:
        rows: of several methods.
        keys: columns beside `policy` and `seed` that name a setting.
        over: the method; without a row of it the columns are unknown.
    """
    names = [key for key in (*keys, "seed") if key != "policy"]
    base = {tuple(row[n] for n in names): row for row in rows if row["policy"] == over}
    made = []
    for row in rows:
        theirs = base.get(tuple(row[n] for n in names))
        made.append(
            plain(
                {
                    **row,
                    "throughput_vs_cloud": row["throughput"] / theirs["throughput"]
                    if theirs
                    else math.nan,
                    "latency_vs_cloud": row["latency_s"] / theirs["latency_s"] - 1.0
                    if theirs
                    else math.nan,
                }
            )
        )
    return made


VERSUS: Mapping[str, str] = {
    "throughput_vs_cloud": "throughput over that of `cloud-only` in the same setting, with the same"
    " seed",
    "latency_vs_cloud": "latency over that of `cloud-only`, less 1",
}


DRAFT = "qwen2.5-1.5b"


@dataclass(frozen=True)
class NoRules:
    """A method without options."""


class MethodKind(NamedTuple):
    """A kind of method.

    Attributes:
        rules: its options with their defaults.
        make: bench, devices, rules -> a new method.
    """

    rules: Any
    make: Callable[[Bench, Devices, Any], Method]


def _speculative(bench: Bench, devices: Devices, rules: NoRules) -> Method:
    """Return a cloud with a draft model, if there is a smaller one."""
    far = devices.far
    if not far.small:
        return CloudOnly(bench, devices)
    return CloudOnly(bench, devices, Speculative(far.profile, PROFILES[f"a100x4-{DRAFT}"]))


METHODS: Mapping[str, MethodKind] = {
    "cloud-only": MethodKind(NoRules(), lambda bench, devices, rules: CloudOnly(bench, devices)),
    "edge-only": MethodKind(EdgeRules(), EdgeOnly),
    "routing": MethodKind(RoutingRules(), Routing),
    "skeleton": MethodKind(
        NoRules(), lambda bench, devices, rules: SkeletonOfThought(bench, devices)
    ),
    "speculative": MethodKind(NoRules(), _speculative),
    "pice-static": MethodKind(PiceRules(static=True), Pice),
    "pice": MethodKind(PiceRules(), Pice),
    "sketches": MethodKind(OursRules(), Ours),
}


def method(text: str) -> Callable[[Bench, Devices], Method]:
    """Return what makes a method.

    Raises:
        ExperimentError: there is no method of that name.
        ConfigurationError: an option is not possible.
    """
    name, *options = text.split(":")
    if name not in METHODS:
        allowed = ", ".join(METHODS)
        raise ExperimentError(f"unknown method {quoted(name)}: choose one of {allowed}")
    kind = METHODS[name]
    known = asdict(kind.rules)
    rules = type(kind.rules)(**{**known, **read_options(name, known, options)})
    return lambda bench, devices: kind.make(bench, devices, rules)
