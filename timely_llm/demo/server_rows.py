"""Servers, and stages of a pipeline, in the live view: what each does, and for which agents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from timely_llm.core.events.history import History
from timely_llm.core.events.server_history import ServerHistory
from timely_llm.core.step import StageUse, stage_uses
from timely_llm.report.palette import server_color
from timely_llm.report.terminal import meter

WINDOW_S = 2.0
"""The steps of the last seconds that are shown."""
MOST_ROWS, BAR = 16, 8
"""Rows of a full bar, and its characters."""

STAGE_BAR = 20


def server_table(
    history: History, paces: Mapping[str, str], now_s: float, wide: bool
) -> RenderableType:
    """Return a table with a row for each server: its state, its work, and those that it serves."""
    table = Table(expand=True, box=None, padding=(0, 1), header_style="dim")
    table.add_column("server", no_wrap=True, width=6)
    if wide:
        table.add_column("pace", no_wrap=True)
    table.add_column("state", no_wrap=True, width=11)
    table.add_column("requests", justify="right", no_wrap=True, width=8)
    table.add_column("rows", no_wrap=True, width=BAR + 3)
    table.add_column("step", justify="right", no_wrap=True, width=6)
    table.add_column("works for", no_wrap=True, overflow="ellipsis", ratio=1)
    for name, pace in paces.items():
        works = history.made_by(name)
        agents = " ".join(dict.fromkeys(work.agent for work in works))
        steps = history.recent_steps(now_s - WINDOW_S, name)
        rows = steps[0].sequences if steps else 0
        mean_ms = 1000 * sum(step.duration_s for step in steps) / max(len(steps), 1)
        busy = meter(rows / MOST_ROWS, server_color(name), BAR) + Text(f" {rows:2}")
        table.add_row(
            named(name), *([Text(pace, "dim")] if wide else []),
            _state(history.servers[name], now_s), str(len(works)), busy,
            f"{mean_ms:.0f} ms" if steps else "", agents,
        )  # fmt: skip
    return table


def named(server: str) -> Text:
    """Return the name of a server in its colour; nothing if there is only one."""
    return Text(server, server_color(server)) if server else Text("")


def _state(server: ServerHistory, now_s: float) -> Text:
    if server.starts:
        return Text("starts", "yellow")
    if server.is_gone:
        return Text(f"lost {now_s - server.outages[-1][0]:.1f} s", "bold red")
    return Text("alive", "green")


def recent_use(history: History, now_s: float) -> list[StageUse]:
    """Return what the stages did in the last seconds; empty: one stage, or no step."""
    steps = history.recent_steps(now_s - WINDOW_S)
    return stage_uses([step.stages for step in steps if step.stages is not None])


def stage_table(uses: Sequence[StageUse]) -> RenderableType:
    """Return a table with a row for each stage: its computing, its waiting, and the link after."""
    table = Table(expand=True, box=None, padding=(0, 1), header_style="dim")
    table.add_column("stage", no_wrap=True, width=6)
    table.add_column("computes", no_wrap=True, width=STAGE_BAR + 5)
    table.add_column("idle", justify="right", no_wrap=True, width=5)
    table.add_column("link to the next", no_wrap=True, ratio=1)
    for place, use in enumerate(uses, 1):
        computes = meter(use.compute, "green", STAGE_BAR) + Text(f"{use.compute:5.0%}")
        link = f"{use.link:.0%} in use" if place < len(uses) else ""
        table.add_row(str(place), computes, f"{use.idle:.0%}", link)
    return table
