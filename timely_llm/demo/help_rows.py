"""The help of a cloud in a demo: counts, the source of an answer's words, and a table."""

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
from timely_llm.core.events.request_history import PlanHistory, StreamHistory
from timely_llm.core.events.schema import AnsweredEvent, DoneEvent
from timely_llm.core.text import count_of
from timely_llm.demo.cloud import DemoHistory
from timely_llm.report.fitted_table import FittedTable

ALONE, OPENING = "edge alone", "opening"
DEFINITIONS = (
    ("helped", "answers with parts of the cloud's sketch, and plans with its steps"),
    ("broken off", "those of them that lost the cloud, or a part, on the way"),
    ("alone", "answers and plans of the edge alone; the lines above say why"),
    ("cloud", "tokens and seconds of the cloud, for all questions"),
    (
        "first",
        "median time from asking to the first token of an answer, or to the first execution of"
        " a plan, with and without help",
    ),
)


@dataclass(frozen=True)
class HelpSummary:
    """What a cloud did for people or robots; seconds, None where there is nothing to measure.

    Attributes:
        helped: answers with parts of its sketch, or plans with its steps.
        broken_off: those of them with a fallback.
        alone: answers or plans without.
        reasons: number of them by the sentence of their fallback, the most frequent first.
        helped_first_s, alone_first_s: median time to the first token or execution.
    """

    helped: int
    broken_off: int
    alone: int
    reasons: Mapping[str, int]
    cloud_tokens: int
    cloud_s: float
    helped_first_s: float | None
    alone_first_s: float | None

    @classmethod
    def of(cls, works: Sequence[PlanHistory | StreamHistory]) -> HelpSummary:
        """Return the summary of plans or answers."""
        ended = [work.outcome for work in works if work.asks_help and work.outcome]
        complete = [one for one in ended if one.outcome in ("answered", "finished")]
        helped = [one for one in complete if one.helped]
        alone = [one for one in complete if not one.helped]
        reasons = Counter(one.fallback for one in complete if one.fallback)
        return cls(
            helped=len(helped),
            broken_off=sum(bool(one.fallback) for one in helped),
            alone=len(alone),
            reasons=dict(reasons.most_common()),
            cloud_tokens=sum(one.cloud_tokens for one in ended),
            cloud_s=round(sum(one.cloud_s for one in ended), 3),
            helped_first_s=_median([_first_s(one) for one in helped]),
            alone_first_s=_median([_first_s(one) for one in alone]),
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
            "first_p50_s": {"helped": self.helped_first_s, "alone": self.alone_first_s},
        }


def works_of(history: History) -> dict[str, Sequence[PlanHistory | StreamHistory]]:
    """Return the answers and plans of a run, by what they are called."""
    return {"answers": history.questions, "plans": history.asked}


def help_json(history: DemoHistory) -> dict[str, Any]:
    """Return what `--json` writes of a cloud's help."""
    cut_s = history.cloud_cut_s
    return {
        "cut_s": None if cut_s is None else round(cut_s - history.origin_s, 3),
        **{name: HelpSummary.of(works).as_json() for name, works in works_of(history).items()},
    }


def _first_s(outcome: DoneEvent | AnsweredEvent) -> float:
    return outcome.response_s if isinstance(outcome, DoneEvent) else outcome.ttft_s


def _median(values: Sequence[float]) -> float | None:
    return round(float(np.median(values)), 4) if values else None


def source_of(talk: StreamHistory, part: int) -> str:
    """Return where words of an answer come from: the edge's opening, a part, or the edge alone."""
    if part:
        return f"part {part}"
    return ALONE if talk.outcome is not None and not talk.outcome.helped else OPENING


def help_line(cloud: str, history: DemoHistory, now_s: float) -> Text:
    """Return what the cloud has done so far; the first word is its state."""
    cut_s = history.cloud_cut_s
    so_far = HelpSummary.of([*history.questions, *history.asked])
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
    talks = [one for one in history.questions if one.asks_help and one.asked_s > cut_s]
    plans = [one for one in history.asked if one.asks_help and one.asked_s > cut_s]
    answered = sum(talk.answered for talk in talks)
    begun = sum(plan.outcome is not None and plan.outcome.served for plan in plans)
    outcomes = [*[talk.outcome for talk in talks], *[plan.outcome for plan in plans]]
    failed = sum(outcome is None or outcome.is_error for outcome in outcomes)
    return (
        f"The cloud was cut off at {cut_s - history.origin_s:.1f} s. After it, the edge answered"
        f" {answered} of {count_of(len(talks), 'question')}, and robots began {begun} of"
        f" {count_of(len(plans), 'plan')}; {failed} ended with an error or not at all."
    )


def help_table(runs: Mapping[str, History]) -> RenderableType:
    """Return the rows of each policy: answers and plans."""
    table = FittedTable(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), header_style="dim", carries=True)
    table.add_column("policy", min_width=max(map(len, runs)), no_wrap=True)
    table.add_column("", no_wrap=True)
    for name in ("helped", "broken\noff", "alone", "cloud\ntokens", "cloud\n(s)",
                 "first (s)\nhelped", "first (s)\nalone"):  # fmt: skip
        table.add_column(name, justify="right", no_wrap=True)
    for policy, history in runs.items():
        label = Text(policy, "bold cyan")
        for name, works in works_of(history).items():
            if not works:
                continue
            one = HelpSummary.of(works)
            times = (one.helped_first_s, one.alone_first_s)
            table.add_row(
                label, name, str(one.helped), str(one.broken_off), str(one.alone),
                str(one.cloud_tokens), f"{one.cloud_s:.1f}",
                *("-" if s is None else f"{s:.2f}" for s in times),
            )  # fmt: skip
            label = Text("")
    return table
