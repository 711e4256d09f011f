"""The part of the live view that shows people: what they hear, and how long it lasts."""

from __future__ import annotations

import math

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from timely_llm.demo.history import History
from timely_llm.demo.talks import Talk

CREDIT_BARS, CREDIT_S = {False: 4, True: 8}, 8.0
"""Characters of a full bar in narrow and wide terminals, and the seconds of words that fill it."""
GENERATION_STYLE = {
    "queued": "yellow",
    "running": "bold green",
    "suspended": "magenta",
    "blocked": "red",
    "done": "dim",
}
CLASS_STYLE = {"voice": "cyan", "text": "green"}


def people_table(history: History, now_s: float, height: int, wide: bool) -> RenderableType:
    """Return a table with a row for each person, `height` at most; those with an answer first."""
    table = Table(expand=True, box=None, padding=(0, wide, 0, 1), header_style="dim")
    table.add_column("person", no_wrap=True)
    table.add_column("class", no_wrap=True, width=5)
    table.add_column("hears or reads", no_wrap=True, ratio=1)
    table.add_column("credit", no_wrap=True, width=CREDIT_BARS[wide] + 8)
    table.add_column("generation", no_wrap=True, width=10)
    if wide:
        table.add_column("tokens", justify="right", no_wrap=True, width=6)
        table.add_column("TTFT", justify="right", no_wrap=True, width=6)
    table.add_column("tok/s", justify="right", no_wrap=True, width=5)
    table.add_column("SLO", justify="right", no_wrap=True, width=5)
    table.add_column("stalls", justify="right", no_wrap=True, width=6)
    rows = [(agent, history.talks_of(agent)) for agent in history.people]
    if len(rows) > height:
        rows.sort(key=lambda row: not row[1] or not _takes_in(row[1][-1], now_s))
    for agent, talks in rows[:height]:
        name = history.people[agent]
        kind = Text(name, CLASS_STYLE.get(name, "blue"))
        table.add_row(agent, kind, *_row(talks, now_s, wide))
    if len(rows) > height:
        table.add_row("…", "", Text(f"and {len(rows) - height} more", "dim"))
    return table


def _row(talks: list[Talk], now_s: float, wide: bool) -> list[RenderableType]:
    if not talks:
        return [Text("has not asked yet", "dim")]
    talk = talks[-1]
    generation = talk.generation(now_s)
    counts = [Text(str(len(talk.chunks))), _number(talk.ttft_s, ".2f", " s")] if wide else []
    return [
        _hears(talk, now_s),
        _credit(talk, now_s, CREDIT_BARS[wide]),
        Text(generation, GENERATION_STYLE[generation]),
        *counts,
        _number(talk.tokens_per_s, ".1f"),
        _kept(talks, now_s),
        _stalls(talks),
    ]


def _takes_in(talk: Talk, now_s: float) -> bool:
    """Whether its person waits for the answer, or has not taken all of it in."""
    return not talk.generated or talk.credit_s(now_s) > 0.0


def _hears(talk: Talk, now_s: float) -> RenderableType:
    if not talk.chunks:
        return Text.assemble(("asks: ", "yellow"), (talk.question, "dim"), overflow="ellipsis")
    if not _takes_in(talk, now_s):
        return Text("pauses", "dim")
    return _Ending(talk)


class _Ending:
    """What came last of an answer, as much as there is room for."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        words = self._talk.last_words(options.max_width + 1)
        fits = len(words) <= options.max_width
        yield Text(words if fits else "…" + words[2:], no_wrap=True, overflow="crop")


def _credit(talk: Talk, now_s: float, bar: int) -> Text:
    credit_s = talk.credit_s(now_s)
    if not talk.chunks or not _takes_in(talk, now_s):
        return Text("")
    style = "red" if credit_s < 0 else "yellow" if credit_s < 0.5 else "green"
    full = round(bar * min(max(credit_s / CREDIT_S, 0.0), 1.0))
    return Text.assemble(
        ("━" * full, style), ("━" * (bar - full), "grey23"), (f"{credit_s:+6.1f} s", style)
    )


def _kept(talks: list[Talk], now_s: float) -> Text:
    kept = sum(talk.keeps_slo(now_s) for talk in talks)
    return Text(f"{kept}/{len(talks)}", "green" if talks[-1].keeps_slo(now_s) else "bold red")


def _stalls(talks: list[Talk]) -> Text:
    stalls = sum(len(talk.stalled) for talk in talks)
    return Text(str(stalls), "bold red" if stalls else "dim")


def _number(value: float, form: str, unit: str = "") -> Text:
    return Text("" if math.isnan(value) else f"{value:{form}}{unit}")
