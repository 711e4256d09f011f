"""`pice-parallel`: how many rows expand a sketch (Zhan et al. 2025, Figure 7)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from statistics import fmean

from timely_llm.experiments.contract import Experiment, ExperimentError, ReportProgress
from timely_llm.experiments.parallel import run_all
from timely_llm.experiments.results.document import RunDocument
from timely_llm.experiments.results.metrics import MeasuredRow, plain
from timely_llm.experiments.results.reported_sketches import ZHAN_FIGURE_7
from timely_llm.experiments.virtual.sketches.bench import Bench, DecodingSite, ShownAnswer
from timely_llm.experiments.virtual.sketches.edges import TEMPLATE_TOKENS
from timely_llm.experiments.virtual.sketches.methods import group_call
from timely_llm.experiments.virtual.sketches.questions import PROMPT_TOKENS, BenchQuestion
from timely_llm.experiments.virtual.sketches.score import (
    DEFINITIONS,
    LISTENER_S,
    SketchOptions,
    measures,
)
from timely_llm.experiments.virtual.sketches.testbed import (
    DEFAULT_FAR_MODEL,
    FAR_MODELS,
    NETWORK_TO_EDGE,
    edge_profile,
)
from timely_llm.progressive.merging import PartGroup, just_in_time, merged_in_time
from timely_llm.progressive.sketch import Part

SHARE = 0.4
MOST_ROWS = 256
SKETCHES = (60, 120, 240, 480, 960)
MODELS = ("qwen2.5-1.5b", "qwen2.5-7b")
KEYS = ("model", "people", "sketch_tokens", "policy")
_OF_RUN = ("latency_s", "first_words_s", "stalled_s")


@dataclass(frozen=True)
class ParallelOptions(SketchOptions):
    """Options of `pice-parallel`.

    Attributes:
        sizes: people at one edge, with sketches that are there at once; each is a run.
    """

    policies: tuple[str, ...] = ("one", "all", "pairs", "just-in-time", "in-10-s")
    sizes: tuple[int, ...] = (1, 8)
    minutes: float = field(default=0.0, init=False)


@dataclass(frozen=True)
class ParallelCase:
    """Some people's sketches at one edge."""

    model: str
    people: int
    sketch_tokens: int
    rule: str
    seed: int


def _alone(parts: Sequence[Part]) -> list[PartGroup]:
    return [(part,) for part in parts]


class Expansion:
    """Sketches that are at one edge, in groups by a rule.

    Args:
        case: the rule and its setting.
    """

    def __init__(self, case: ParallelCase) -> None:
        self.site = DecodingSite("edge", edge_profile(case.model), MOST_ROWS, NETWORK_TO_EDGE)
        self.sites = [self.site]
        self.case = case
        self.rows: list[int] = []
        self.prompts = 0

    def begin(self, answer: ShownAnswer, now: float) -> None:
        """Give the groups of a sketch to the edge, a row each."""
        sketch = self.case.sketch_tokens
        parts = answer.question.parts(sketch)
        made = [Part(place, "w " * short) for place, (short, _) in enumerate(parts)]
        tokens = [whole for _, whole in parts]
        groups = RULES[self.case.rule](self, made, tokens)
        self.rows.append(len(groups))
        answer.parts.expect(len(parts))
        for place, group in enumerate(groups):
            numbers = [part.index for part in group]
            prompt = TEMPLATE_TOKENS + (0 if place else PROMPT_TOKENS + sketch)
            self.prompts += TEMPLATE_TOKENS + PROMPT_TOKENS + sketch
            self.site.call(group_call(answer, numbers, [tokens[n] for n in numbers], prompt), now)

    def turn(self, now: float) -> None:
        """Do nothing: the edge has a row for each group."""

    def pairs(self, parts: Sequence[Part], tokens: Sequence[float]) -> list[PartGroup]:
        """Return groups by pairs while Eq. 2 holds, with the cloud's time of a full batch."""
        far = FAR_MODELS[DEFAULT_FAR_MODEL]
        token_s = far.profile.step_s(far.rows)
        budget_s = token_s * (sum(tokens) - self.case.sketch_tokens)
        edge_s = self.site.row_s(sum(tokens))
        return merged_in_time(parts, lambda groups: edge_s / len(groups) <= budget_s)

    def in_time(self, parts: Sequence[Part], tokens: Sequence[float]) -> list[PartGroup]:
        """Return the fewest groups with which a listener is never kept waiting."""
        due_s = [LISTENER_S * before for before in accumulate((0.0, *tokens[:-1]))]
        return just_in_time(parts, tokens, due_s, self._token_s, LISTENER_S)

    def in_10_s(self, parts: Sequence[Part], tokens: Sequence[float]) -> list[PartGroup]:
        """Return the fewest groups with which the whole answer takes no more than 10 s."""
        return just_in_time(parts, tokens, [10.0] * len(parts), self._token_s)

    def _token_s(self, rows: int) -> float:
        """Return the seconds of a token where each person has some rows."""
        return self.site.step_s(self.case.people * rows)


RULES: Mapping[str, Callable[[Expansion, Sequence[Part], Sequence[float]], list[PartGroup]]] = {
    "one": lambda edge, parts, tokens: [tuple(parts)],
    "all": lambda edge, parts, tokens: _alone(parts),
    "pairs": Expansion.pairs,
    "just-in-time": Expansion.in_time,
    "in-10-s": Expansion.in_10_s,
}


def run(options: ParallelOptions, progress: ReportProgress) -> RunDocument:
    """Return what each rule of groups costs and gains.

    Raises:
        ExperimentError: a rule is unknown.
    """
    for rule in options.policies:
        if rule not in RULES:
            raise ExperimentError(f"unknown rule {rule!r}: choose one of {', '.join(RULES)}")
    cases = [
        ParallelCase(model, people, sketch, rule, seed)
        for model in MODELS
        for people in options.sizes
        for sketch in SKETCHES
        for rule in options.policies
        for seed in options.each_seed
    ]
    return EXPERIMENT.document(
        f"orin-{MODELS[-1]}",
        {
            "engine": "simulated, in virtual time, continuous batches",
            "devices": "one Jetson AGX Orin; whole sketches are there at once",
            "answers": f"{1 / SHARE:g} tokens for each of the sketch",
            "seeds": options.named_seeds,
        },
        keys=KEYS,
        measures=(*_OF_RUN, "rows", "kv_tokens"),
        definitions={
            "model": "of the edge",
            "people": "people with sketches that are expanded at once",
            "sketch_tokens": "of each sketch",
            "policy": "`one` row for a sketch, `all` sentences a row each, `pairs` merged while Eq."
            " 2 holds, `just-in-time`: the fewest rows that keep a listener from waiting, or"
            " `in-10-s`: the fewest with which the answer is expected to be whole in 10 s",
            **{name: DEFINITIONS[name] for name in _OF_RUN},
            "rows": "rows of a sketch",
            "kv_tokens": "tokens of KV of all rows at their ends, if each has question and sketch"
            " for itself",
        },
        rows=tuple(run_all(score, cases, options.jobs, progress)),
        papers=(ZHAN_FIGURE_7,),
        notes=(
            "An Orin has 64 GB. Beside the 15 GB of Qwen2.5 7B they hold the KV of about 850,000"
            " tokens at 57 kB a token, so its memory limits none of these runs; the paper's decline"
            " beyond 500 tokens does not follow from its Table II.",
        ),
    )


def score(case: ParallelCase) -> MeasuredRow:
    """Run a case and return its row."""
    tokens = round(case.sketch_tokens / SHARE)
    asked = [
        BenchQuestion(f"q{place}", "generic", 0.0, tokens, 1.0, 1000 * case.seed + place)
        for place in range(case.people)
    ]
    expansion = Expansion(case)
    found = measures(Bench(asked).run(expansion))
    return plain(
        {
            "model": case.model, "people": case.people, "sketch_tokens": case.sketch_tokens,
            "policy": case.rule, "seed": case.seed,
            **{name: found[name] for name in _OF_RUN},
            "rows": fmean(expansion.rows),
            "kv_tokens": expansion.prompts + case.people * tokens,
        }
    )  # fmt: skip


EXPERIMENT = Experiment(
    name="pice-parallel",
    question="How many rows should expand a sketch? (Zhan et al. 2025, Figure 7)",
    run=run,
    defaults=ParallelOptions(),
)
