"""PICE: the cloud sketches, and an idle edge expands a batch of sketches (Zhan et al. 2025)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from timely_llm.core.errors import ConfigurationError
from timely_llm.experiments.virtual.sketches.bench import Bench, ShownAnswer, SiteCall
from timely_llm.experiments.virtual.sketches.edges import ModelEdge
from timely_llm.experiments.virtual.sketches.methods import CloudOnly, group_call
from timely_llm.experiments.virtual.sketches.questions import PROMPT_TOKENS
from timely_llm.experiments.virtual.sketches.testbed import EDGE_ROWS, Devices
from timely_llm.progressive.choice import (
    MOST_QUEUED,
    JobLists,
    SmallModel,
    choose_model,
    ratio_lists,
)
from timely_llm.progressive.lengths import SketchLevels, SketchTimes
from timely_llm.progressive.merging import PartGroup, merged, merged_in_time
from timely_llm.progressive.sketch import Part


@dataclass(frozen=True)
class PiceRules:
    """What the paper leaves open, and its static scheduler.

    Attributes:
        levels: levels of sketch length above 0.
        least_share, capable_share: shares of an answer's tokens that its sketch needs for the least
            and the most capable small model.
        margin_tokens: tokens by which a sketch may be too long.
        most_queued: most sketches that wait for an edge; with more the cloud answers itself.
        batch: most sketches of a batch.
        list_ratio: longest over shortest length of a list of Algorithm 1, above 1; inf: one list.
        length_tokens: tokens with which the cloud's model says how long its answer will be.
        loaded: f is that of the current load; else that of an idle cloud, as the paper measures it.
        merge: sentences are merged while Eq. 2 holds; else each has a row.
        short_tokens: expected tokens below which an answer is concise: the cloud writes it.
        static: each longer answer is sketched, whatever the load, and each edge keeps one model.
        rows: most rows of an edge's step.
        larger: an edge may take a larger model; else all run the smallest one.
    """

    levels: int = 5
    least_share: float = 0.4
    capable_share: float = 0.2
    margin_tokens: float = 10.0
    most_queued: int = MOST_QUEUED
    batch: int = 2
    list_ratio: float = 2.0
    length_tokens: int = 10
    loaded: bool = True
    merge: bool = True
    short_tokens: int = 300
    static: bool = False
    rows: int = EDGE_ROWS
    larger: bool = True

    def __post_init__(self) -> None:
        if not self.list_ratio > 1.0:
            raise ConfigurationError(f"list_ratio must be above 1, not {self.list_ratio:g}")


class SketchJob(NamedTuple):
    """A sketch that waits for an edge.

    Attributes:
        answer: it belongs to.
        sketch_tokens: of the sketch.
        expected: l: expected tokens of the answer.
        budget_s: f(l) - f(|r|) when it was sketched, seconds.
    """

    answer: ShownAnswer
    sketch_tokens: int
    expected: float
    budget_s: float


class Pice(CloudOnly):
    """The paper's system.

    Args:
        bench: runs it.
        devices: the testbed; at least one small model.
        rules: what the paper leaves open.
    """

    def __init__(self, bench: Bench, devices: Devices, rules: PiceRules) -> None:
        super().__init__(bench, devices)
        self.rules = rules
        self.levels = SketchLevels(
            rules.levels, rules.least_share, rules.capable_share, int(rules.margin_tokens)
        )
        self.models = devices.far.small if rules.larger else devices.far.small[:1]
        self.edges = [
            ModelEdge(
                f"edge{place}",
                bench,
                devices,
                rules.rows,
                place % len(self.models) if rules.static else 0,
            )
            for place in range(devices.edges if self.models else 0)
        ]
        self.sites += [site for edge in self.edges for site in edge.sites]
        self.jobs: JobLists[SketchJob] = JobLists(ratio_lists(rules.list_ratio))
        self.queued: list[SketchJob] = []
        self.sketching = 0
        self.rng = np.random.default_rng(0)

    def dispatch(self, answer: ShownAnswer, now: float) -> None:
        """Ask for a sketch, or for the answer itself."""
        expected = answer.question.tokens * answer.question.error
        level = self._level(expected) if self.edges else 0
        if level:
            self._sketch(answer, level, expected, now)
        else:
            self.direct(answer, now, self.rules.length_tokens)

    def turn(self, now: float) -> None:
        """Give sketches to idle edges, and questions to the cloud."""
        for edge in self.edges:
            if edge.idle and self.queued:
                self._expand(edge, now)
        super().turn(now)

    def cloud_s(self, tokens: float) -> float:
        """Return f: the seconds of an answer of some tokens."""
        if self.rules.loaded:
            return self.cloud.cloud.answer_s(tokens)
        return self.cloud.row_s(tokens)

    def _level(self, expected: float) -> int:
        rules = self.rules
        if expected < rules.short_tokens:
            return 0
        if rules.static:
            return math.ceil(rules.least_share * expected)
        if len(self.queued) + self.sketching >= rules.most_queued + len(self.edges):
            return 0
        model = self.edges[0].model
        able = model / max(len(self.models) - 1, 1)
        return self.levels.choose(expected, self._times(1), able)

    def _times(self, parallel: int) -> SketchTimes:
        edge_s = self.edges[0].seconds_of(self.edges[0].model)
        path = self.devices.path
        return SketchTimes(
            self.cloud_s,
            lambda tokens: path.rtt_s + path.sent_s("word ") * tokens,
            edge_s,
            sum(edge_s(job.expected) for job in self.queued),
            len(self.edges),
            parallel,
        )

    def _sketch(self, answer: ShownAnswer, level: int, expected: float, now: float) -> None:
        """Ask for a sketch of some tokens; it may differ by up to 10."""
        tokens = max(level + int(self.rng.integers(-10, 11)), 1)
        answer.sketch_tokens = tokens
        budget_s = self.cloud_s(expected) - self.cloud_s(tokens)
        self.sketching += 1

        def word(number: int, at_s: float) -> None:
            answer.cloud_tokens += 1

        def end(at_s: float) -> None:
            self.sketching -= 1
            job = SketchJob(answer, tokens, expected, budget_s)
            self.jobs.put(job, expected)
            self.queued.append(job)

        whole = self.rules.length_tokens + tokens
        self.cloud.call(SiteCall(whole, PROMPT_TOKENS, word, end), now)

    def _expand(self, edge: ModelEdge, now: float) -> None:
        """Let an idle edge take a batch from the longest list, with the model of Algorithm 2."""
        rows = self.rules.rows
        batch = self.jobs.take(min(self.rules.batch, rows))
        if not self.rules.static:
            models = [SmallModel(m, edge.seconds_of(n)) for n, m in enumerate(self.models)]
            most = max(batch, key=lambda job: job.expected)
            queued = len(self.queued) - len(batch)
            chosen = choose_model(
                models, edge.model, most.expected, most.budget_s, queued, self.rules.most_queued
            )
            edge.switch(chosen, now)
        for job in batch:
            self.queued.remove(job)
            self._expand_one(edge, job, rows // len(batch), now)

    def _expand_one(self, edge: ModelEdge, job: SketchJob, rows: int, now: float) -> None:
        """Expand the groups of a sketch, a row each."""
        answer = job.answer
        answer.model = self.models[edge.model]
        parts = answer.question.parts(job.sketch_tokens)
        groups = self._groups(edge, job, [short for short, _ in parts])
        while len(groups) > rows:
            groups = merged(groups)
        answer.parts.expect(len(parts))
        for group in groups:
            numbers = [part.index for part in group]
            tokens = [parts[number][1] for number in numbers]
            prompt = edge.prompt_tokens(answer.question.key, job.sketch_tokens)
            edge.call(group_call(answer, numbers, tokens, prompt), now)

    def _groups(self, edge: ModelEdge, job: SketchJob, short: list[int]) -> list[PartGroup]:
        made = [Part(place, "w " * words) for place, words in enumerate(short)]
        alone: list[PartGroup] = [(part,) for part in made]
        if not self.rules.merge:
            return alone
        edge_s = edge.seconds_of(edge.model)(job.expected)
        waiting_s = sum(edge_s for _ in self.queued) / len(self.edges)

        def in_time(groups: object) -> bool:
            assert isinstance(groups, list)
            return (edge_s + waiting_s) / len(groups) <= job.budget_s

        return merged_in_time(made, in_time)
