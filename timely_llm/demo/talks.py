"""One answer to one person: the tokens as they came, and what was buffered of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from timely_llm.core.slo import Slo
from timely_llm.core.stream import mean_gap_s
from timely_llm.demo.steps import Work
from timely_llm.processes.log_reader import Event

Span = tuple[float, float]
"""Start and end, seconds."""
_ROUNDING_S = 1e-5


@dataclass(frozen=True)
class Chunk:
    """A token as the server published it; `credit_s`: so long its listener had words then."""

    at_s: float
    text: str
    credit_s: float


@dataclass(frozen=True)
class Answered:
    """How an answer ended for its person; times in seconds, negative if no token came."""

    at_s: float
    kind: str
    error_code: int
    error_msg: str
    ttft_s: float
    tpot_s: float
    largest_gap_s: float
    slo_met: bool
    stalls: int
    stalled_s: float
    tokens: int
    recomputed_tokens: int

    @property
    def is_error(self) -> bool:
        """Whether it went wrong."""
        return self.kind == "error"


@dataclass
class Talk(Work):
    """One question of one person, and its answer.

    Attributes:
        slo: when its tokens are due.
        arrived_s: when the server took it.
        heard: when there were words to take in.
        stalled: when there were none between two words.
    """

    question: str = ""
    slo_class: str = ""
    slo: Slo = field(default_factory=Slo)
    arrived_s: float = math.nan
    chunks: list[Chunk] = field(default_factory=list)
    heard: list[Span] = field(default_factory=list)
    stalled: list[Span] = field(default_factory=list)
    outcome: Answered | None = None

    @property
    def answered(self) -> bool:
        """Whether its person got all of it."""
        return self.outcome is not None and self.outcome.kind == "answered"

    @property
    def ttft_s(self) -> float:
        """Seconds from its arrival to the first token; not a number before that."""
        return self.chunks[0].at_s - self.arrived_s if self.chunks else math.nan

    @property
    def tokens_per_s(self) -> float:
        """How fast its tokens came; not a number with fewer than two."""
        gap_s = self._tpot_s
        return 1.0 / gap_s if gap_s else math.nan

    @property
    def _tpot_s(self) -> float:
        if not self.chunks:
            return 0.0
        return mean_gap_s(self.chunks[0].at_s, self.chunks[-1].at_s, len(self.chunks))

    def last_words(self, characters: int) -> str:
        """Return the end of what came, at most so many characters."""
        text, pieces = "", reversed(self.chunks)
        while len(text) < characters and (piece := next(pieces, None)):
            text = piece.text + text
        return " ".join(text.split())[-characters:]

    def credit_s(self, now_s: float) -> float:
        """Return how long there are words to take in; below 0: for so long there were none."""
        if not self.chunks:
            return 0.0
        return self.chunks[-1].credit_s - (now_s - self.chunks[-1].at_s)

    def keeps_slo(self, now_s: float) -> bool:
        """Whether its service level is kept; as far as can be said while it goes on."""
        if self.outcome is not None:
            return self.outcome.slo_met
        begin_s = self.asked_s if math.isnan(self.arrived_s) else self.arrived_s
        if not self.chunks:
            return self.slo.met(now_s - begin_s, 0.0, now_s - begin_s)
        if self.generated:
            return self.slo.met(self.ttft_s, self._tpot_s, self.chunks[-1].at_s - begin_s)
        # The next token comes now at the earliest.
        tpot_s = (now_s - self.chunks[0].at_s) / len(self.chunks)
        return self.slo.met(self.ttft_s, tpot_s, now_s - begin_s)

    def add(self, event: Event) -> None:
        """Take an event about it; those that say nothing here are ignored."""
        at_s: float = event["t"]
        match event["event"]:
            case "question":
                self.agent, self.question = event["agent"], event["text"]
                self.asked_s, self.slo_class = at_s, event["slo_class"]
            case "stream":
                deadline_s = event["deadline_s"]
                self.slo = Slo(
                    event["ttft_s"], event["tpot_s"], math.inf if deadline_s is None else deadline_s
                )
                self.arrived_s, self.due_s = at_s, at_s + event["ttft_s"]
            case "chunk":
                self._chunk(Chunk(at_s, event["text"], event["credit_s"]))
                self.due_s = event["due_s"]
                self.generated = self.generated or event["final"]
            case "end":
                self.generated = True
            case "answered":
                self.outcome = Answered(
                    at_s, event["outcome"], event["error_code"], event["error_msg"],
                    event["ttft_s"], event["tpot_s"], event["largest_gap_s"], event["slo_met"],
                    event["stalls"], event["stalled_s"], event["tokens"],
                    event["recomputed_tokens"],
                )  # fmt: skip

    def _chunk(self, chunk: Chunk) -> None:
        self.chunks.append(chunk)
        if chunk.credit_s <= 0.0:
            return  # no word has begun, or none since the last one was taken in
        dry_s = chunk.at_s + chunk.credit_s
        if self.heard and chunk.at_s <= self.heard[-1][1] + _ROUNDING_S:
            self.heard[-1] = self.heard[-1][0], dry_s
        else:
            self.stalled += [(span[1], chunk.at_s) for span in self.heard[-1:]]
            self.heard.append((chunk.at_s, dry_s))
