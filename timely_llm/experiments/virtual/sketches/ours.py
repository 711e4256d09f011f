"""Sketches as this package uses them: expanded as they come, by the way that is worth most."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from timely_llm.experiments.virtual.sketches.bench import Bench, ShownAnswer, SiteCall
from timely_llm.experiments.virtual.sketches.edges import ModelEdge
from timely_llm.experiments.virtual.sketches.methods import CloudOnly, edge_call, whole_answer
from timely_llm.experiments.virtual.sketches.quality import expected_quality
from timely_llm.experiments.virtual.sketches.questions import PROMPT_TOKENS, SENTENCE_TOKENS
from timely_llm.experiments.virtual.sketches.testbed import EDGE_ROWS, Devices
from timely_llm.experiments.virtual.sketches.wording import HARD
from timely_llm.progressive.choice import KindLengths, Way, best_way, expansion_s
from timely_llm.progressive.settings import HelpSettings

SHARES = (0.2, 0.4, 0.6)
"""Lengths of sketches, as shares of the answer."""

_LENGTHS = 16
"""Learned lengths over which a worth is averaged."""


@dataclass(frozen=True)
class OursRules:
    """What an answer is worth, and which rules are on.

    Attributes:
        horizon_s: seconds after which an answer is worth nothing; its worth falls evenly.
        token_price: worth that a token of the cloud costs, with nothing waiting.
        share: tokens of a sketch over those of the answer; 0: one of `SHARES`, by worth.
        pipelined: a part is expanded as soon as it is sketched; else after the whole sketch.
        alone: edges may answer without a sketch.
        rows: most rows of an edge's step.
        opening: an edge says the beginning at once, before the answer itself, as a live server
            always does; off: first words wait for the sketch, which no live server does.
        opening_tokens: most tokens of an opening, at least one; a live server's by default.
        reserved: rows of an edge's step that only openings get.
    """

    horizon_s: float = 180.0
    token_price: float = 0.0
    share: float = 0.0
    pipelined: bool = True
    alone: bool = False
    rows: int = EDGE_ROWS
    opening: bool = True
    opening_tokens: int = HelpSettings.opening_tokens
    reserved: int = 2


class Ours(CloudOnly):
    """Pipelined sketches, by worth.

    Args:
        bench: runs it.
        devices: the testbed.
        rules: what an answer is worth.
    """

    def __init__(self, bench: Bench, devices: Devices, rules: OursRules) -> None:
        super().__init__(bench, devices)
        self.rules = rules
        self.models = devices.far.small
        self.edges = [
            ModelEdge(
                f"edge{place}", bench, devices, rules.rows,
                reserved=rules.reserved if rules.opening else 0,
            )
            for place in range(devices.edges if self.models else 0)
        ]  # fmt: skip
        self.sites += [site for edge in self.edges for site in edge.sites]
        self.lengths = KindLengths()
        self.rng = np.random.default_rng(0)

    def begin(self, answer: ShownAnswer, now: float) -> None:
        """Let an edge say the opening, and the answer itself wait for a row of the cloud."""
        if self.edges and self.rules.opening:
            answer.opening = Opening(answer, self.edges, self.rules.opening_tokens, now)
        super().begin(answer, now)

    def turn(self, now: float) -> None:
        """Give parts to the free rows of edges, and questions to those of the cloud."""
        for edge in self.edges:
            edge.turn(now)
        super().turn(now)

    def dispatch(self, answer: ShownAnswer, now: float) -> None:
        """Begin a question by the way that is worth most."""
        ways, plans = self._ways(answer.question.category)
        lengths = self.lengths.known(answer.question.category)[-_LENGTHS:]
        step_s = self.cloud.step_s(self.cloud.max_rows)
        crowd = len(self.waiting) / self.cloud.max_rows
        price = self.rules.token_price + crowd * step_s / self.rules.horizon_s
        best = best_way(ways, lengths, self._left, price)
        if best.name not in plans:
            self.direct(answer, now)
            return
        edge, model, share = plans[best.name]
        edge.switch(model, now)
        answer.model = self.models[model]
        if share:
            self._sketch(answer, edge, share, now)
        else:
            self.lengths.learn(answer.question.category, answer.question.tokens)
            edge.call(whole_answer(answer), now)

    def direct(self, answer: ShownAnswer, now: float, before: int = 0) -> None:
        """Let the cloud write the answer, and learn its length."""
        self.lengths.learn(answer.question.category, answer.question.tokens)
        super().direct(answer, now, before)

    def _left(self, seconds: float) -> float:
        return max(1.0 - seconds / self.rules.horizon_s, 0.0)

    def _ways(self, category: str) -> tuple[list[Way], dict[str, tuple[ModelEdge, int, float]]]:
        """Return the ways to answer now, and edge, model and share of those with an edge."""
        hard = category in HARD
        ways = [Way("cloud", 1.0, self.cloud.cloud.answer_s, lambda tokens: tokens)]
        plans: dict[str, tuple[ModelEdge, int, float]] = {}
        chosen = (self.rules.share,) if self.rules.share else SHARES
        shares = (*chosen, *((0.0,) if self.rules.alone else ()))
        for model, name in enumerate(self.models):
            able = [edge for edge in self.edges if edge.idle or edge.model == model]
            if not able:
                continue
            edge = min(able, key=lambda one: (self._load(one), one.model != model))
            for share in shares:
                way = f"{edge.name}/{name}/{share:g}"
                plans[way] = (edge, model, share)
                quality = expected_quality(name, share, hard)
                ways.append(self._way(way, quality, edge, model, share))
        return ways, plans

    @staticmethod
    def _load(edge: ModelEdge) -> int:
        return edge.held * edge.rows + edge.requests

    def _way(self, name: str, quality: float, edge: ModelEdge, model: int, share: float) -> Way:
        """Return a way with an edge; the sketch and all expansions but the last ones overlap."""
        site = edge.sites[model]
        step_s = site.step_s(site.max_rows)
        others = edge.held + 1

        def seconds(tokens: float) -> float:
            if not share:
                return expansion_s(site, PROMPT_TOKENS, [tokens])
            sketch_s = self.cloud.cloud.answer_s(share * tokens)
            last = SENTENCE_TOKENS / share
            busy_s = others * tokens * step_s / edge.rows
            return max(sketch_s, busy_s) + expansion_s(site, PROMPT_TOKENS, [last])

        return Way(name, quality, seconds, lambda tokens: share * tokens)

    def _sketch(self, answer: ShownAnswer, edge: ModelEdge, share: float, now: float) -> None:
        """Ask for a sketch, and expand each part as soon as it is there."""
        question = answer.question
        wanted = share * self.lengths.mean(question.category)
        tokens = max(math.ceil(wanted) + int(self.rng.integers(-10, 11)), 1)
        answer.sketch_tokens = tokens
        parts = question.parts(tokens)
        ends = np.cumsum([short for short, _ in parts]).tolist()
        begun = 0
        edge.held += 1

        def word(number: int, at_s: float) -> None:
            answer.cloud_tokens += 1
            if self.rules.pipelined:
                expand(number, at_s)

        def expand(number: int, at_s: float) -> None:
            nonlocal begun
            while begun < len(parts) and number >= ends[begun]:
                prompt = edge.prompt_tokens(question.key, ends[begun])
                part = answer.first_part + begun
                edge.call(edge_call(answer, part, parts[begun][1], prompt), at_s)
                begun += 1

        def end(at_s: float) -> None:
            expand(tokens, at_s)
            answer.parts.expect(answer.first_part + len(parts))
            edge.held -= 1
            self.lengths.learn(question.category, question.tokens)

        self.cloud.call(SiteCall(tokens, PROMPT_TOKENS, word, end), now)


SAID_TOKENS = 20
"""Tokens of a sentence of an answer: 15 words."""


class Opening:
    """The opening of one answer, at the edge with the earliest first word.

    As in `timely_llm.progressive.answer` it ends with its sentence once words of the answer itself
    are there. It is shown beside the answer, which loses no token for it.

    Args:
        answer: it belongs to; the opening comes before its first part.
        edges: at least one.
        most_tokens: of the opening.
        now: seconds.

    Attributes:
        edge: that says it.
        model: of the edge.
    """

    def __init__(
        self, answer: ShownAnswer, edges: Sequence[ModelEdge], most_tokens: int, now: float
    ) -> None:
        self.edge = min(edges, key=lambda one: one.first_word_s(now))
        self.model = self.edge.models[self.edge.model]
        self._answer = answer
        self._followed = False
        tokens = min(most_tokens, answer.question.tokens)
        self._call = SiteCall(tokens, PROMPT_TOKENS, self._said, self._end)
        self.edge.begin(self._call, now)

    @property
    def tokens(self) -> int:
        """Tokens that it has so far."""
        return self._call.made

    def follow(self, now: float) -> None:
        """Record that words of the answer itself are there: it ends with its sentence."""
        if not self._followed:
            self._followed = True
            self._end_with_sentence(now)

    def _said(self, number: int, at_s: float) -> None:
        self._answer.edge_tokens += 1
        self._answer.show(0, at_s)
        self._end_with_sentence(at_s)

    def _end_with_sentence(self, now: float) -> None:
        whole = self.tokens and self.tokens % SAID_TOKENS == 0
        if self._followed and whole and not self._call.through:
            self.edge.site.give_up(self._call)
            self._end(now)

    def _end(self, now: float) -> None:
        self._answer.end(0, now)
