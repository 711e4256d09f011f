"""The help of a cloud in a demo: counts, the source of each answer, and a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich import box
from rich.console import RenderableType
from rich.text import Text

from timely_llm.core.events.history import History
from timely_llm.core.events.request_history import StreamHistory
from timely_llm.demo.cloud import DemoHistory
from timely_llm.report.fitted_table import FittedTable

ALONE, OPENING = "edge alone", "opening"
DEFINITIONS = (
    ("helped", "answers with parts of the cloud's sketch, which the edge expanded"),
    ("broken off", "those of them that lost the cloud, or a part, on the way"),
    ("alone", "answers of the edge alone; the lines below say why"),
    ("cloud", "tokens and seconds of the cloud, for all questions"),
    ("first words", "median time from asking to the first token, of answers with and without help"),
)


@dataclass(frozen=True)
class HelpSummary:
    """What a cloud did for people; times in seconds, None where there is nothing to measure.

    Attributes:
        helped: answers with parts of its sketch.
        broken_off: those of them with a fallback.
        alone: answers without.
        reasons: number of answers by the sentence of their fallback, the most frequent first.
        helped_ttft_s, alone_ttft_s: median time to the first token.
    """

    helped: int
    broken_off: int
    alone: int
    reasons: Mapping[str, int]
    cloud_tokens: int
    cloud_s: float
    helped_ttft_s: float | None
    alone_ttft_s: float | None

    @classmethod
    def of(cls, history: History) -> HelpSummary:
        """Return the summary of a run."""
        asked = [talk for talk in history.questions if talk.asks_help]
        ended = [talk.outcome for talk in asked if talk.outcome]
        answers = [one for one in ended if one.outcome == "answered"]
        helped = [one for one in answers if one.helped]
        alone = [one for one in answers if not one.helped]
        reasons = Counter(one.fallback for one in answers if one.fallback)
        return cls(
            helped=len(helped),
            broken_off=sum(bool(one.fallback) for one in helped),
            alone=len(alone),
            reasons=dict(reasons.most_common()),
            cloud_tokens=sum(one.cloud_tokens for one in ended),
            cloud_s=round(sum(one.cloud_s for one in ended), 3),
            helped_ttft_s=_median([one.ttft_s for one in helped]),
            alone_ttft_s=_median([one.ttft_s for one in alone]),
        )

    def as_json(self) -> dict[str, Any]:
        """Return what `--json` writes."""
        return {
            "helped": self.helped,
            "broken_off": self.broken_off,
            "alone": self.alone,
            "reasons": dict(self.reasons),
            "tokens": self.cloud_tokens,
            "time_s": self.cloud_s,
            "ttft_p50_s": {"helped": self.helped_ttft_s, "alone": self.alone_ttft_s},
        }


def _median(values: Sequence[float]) -> float | None:
    return round(float(np.median(values)), 4) if values else None


def source_of(talk: StreamHistory, part: int) -> str:
    """Return where words of an answer come from: the edge's opening, a part, or the edge alone."""
    if part:
        return f"part {part}"
    return ALONE if talk.outcome is not None and not talk.outcome.helped else OPENING


def help_line(cloud: str, history: DemoHistory, now_s: float) -> Text:
    """Return what the cloud has done so far; the first word is its state."""
    cut_s, so_far = history.cloud_cut_s, HelpSummary.of(history)
    state = Text("cloud ", "bold green")
    if cut_s is not None:
        state = Text(f"cloud cut off {now_s - cut_s:.0f} s ago ", "bold red")
    counts = f"{so_far.helped} helped, {so_far.alone} alone, {so_far.cloud_tokens} tokens"
    return Text.assemble(state, counts, (f"  {cloud}", "dim"))


def cut_sentence(history: DemoHistory) -> str:
    """Return when the cloud was cut off, and what came of it; empty: it was not."""
    if history.cloud_cut_s is None:
        return ""
    cut_s = history.cloud_cut_s
    after = [talk for talk in history.questions if talk.asks_help and talk.asked_s > cut_s]
    answered = sum(talk.answered for talk in after)
    failed = sum(talk.outcome is None or talk.outcome.is_error for talk in after)
    return (
        f"The cloud was cut off at {cut_s - history.origin_s:.1f} s. Of the {len(after)} questions"
        f" after it, the edge answered {answered}; {failed} ended with an error or not at all."
    )


def help_table(runs: Mapping[str, History]) -> RenderableType:
    """Return a row for each policy."""
    table = FittedTable(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), header_style="dim", carries=True)
    table.add_column("policy", min_width=max(map(len, runs)), no_wrap=True)
    for name in ("helped", "broken\noff", "alone", "cloud\ntokens", "cloud\n(s)",
                 "first words\nhelped (s)", "first words\nalone (s)"):  # fmt: skip
        table.add_column(name, justify="right", no_wrap=True)
    for policy, history in runs.items():
        one = HelpSummary.of(history)
        times = ("-" if s is None else f"{s:.2f}" for s in (one.helped_ttft_s, one.alone_ttft_s))
        table.add_row(
            Text(policy, "bold cyan"), str(one.helped), str(one.broken_off), str(one.alone),
            str(one.cloud_tokens), f"{one.cloud_s:.1f}", *times,
        )  # fmt: skip
    return table
