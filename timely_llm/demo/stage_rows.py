"""The stages of a pipeline in the live view: how much of the last seconds each one computed."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from timely_llm.core.events.history import History
from timely_llm.core.step import StageUse, stage_uses
from timely_llm.report.terminal import meter

WINDOW_S = 2.0
"""The steps of the last seconds that are shown."""
BAR = 20


def recent_use(history: History, now_s: float) -> list[StageUse]:
    """Return what the stages did in the last seconds; empty: one stage, or no step."""
    steps = history.recent_steps(now_s - WINDOW_S)
    return stage_uses([step.stages for step in steps if step.stages is not None])


def stage_table(uses: Sequence[StageUse]) -> RenderableType:
    """Return a table with a row for each stage: its computing, its waiting, and the link after."""
    table = Table(expand=True, box=None, padding=(0, 1), header_style="dim")
    table.add_column("stage", no_wrap=True, width=6)
    table.add_column("computes", no_wrap=True, width=BAR + 5)
    table.add_column("idle", justify="right", no_wrap=True, width=5)
    table.add_column("link to the next", no_wrap=True, ratio=1)
    for place, use in enumerate(uses, 1):
        computes = meter(use.compute, "green", BAR) + Text(f"{use.compute:5.0%}")
        link = f"{use.link:.0%} in use" if place < len(uses) else ""
        table.add_row(str(place), computes, f"{use.idle:.0%}", link)
    return table
