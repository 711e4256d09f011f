"""What an edge says at once, before the sketch of an answer is expanded."""

from __future__ import annotations

from collections.abc import Sequence

from timely_llm.experiments.virtual.sketches.bench import ShownAnswer, SiteCall
from timely_llm.experiments.virtual.sketches.edges import ModelEdge
from timely_llm.experiments.virtual.sketches.questions import PROMPT_TOKENS
from timely_llm.progressive.settings import HelpSettings

OPENING_TOKENS = HelpSettings.opening_tokens
"""Most tokens of an opening."""

SAID_TOKENS = 20
"""Tokens of a sentence of an answer: 15 words."""


class Opening:
    """The opening of one answer, at the edge with the earliest first word.

    As in `timely_llm.progressive.answer` it ends with its sentence once words of the answer itself
    are there. It is said beside the answer, which loses no token for it.

    Args:
        answer: it belongs to; the opening comes before its first part.
        edges: at least one.
        now: seconds.

    Attributes:
        edge: that says it.
        model: of the edge.
    """

    def __init__(self, answer: ShownAnswer, edges: Sequence[ModelEdge], now: float) -> None:
        self.edge = min(edges, key=lambda one: one.first_word_s(now))
        self.model = self.edge.models[self.edge.model]
        self._answer = answer
        self._followed = False
        tokens = min(OPENING_TOKENS, answer.question.tokens)
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
