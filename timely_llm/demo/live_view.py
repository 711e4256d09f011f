"""The terminal while a demo runs: who runs, who is suspended, what is due."""

from __future__ import annotations

import math

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from timely_llm.demo.history import History
from timely_llm.demo.people_view import GENERATION_STYLE, people_table
from timely_llm.demo.progress import step_rate
from timely_llm.demo.requests import Delivered, Request
from timely_llm.demo.settings import Settings

BAR = 12
WIDE = 110
"""Terminals of fewer columns are shown less."""
TICKER = 5


class LiveView:
    """A table with a row for each robot, drawn anew several times a second."""

    def __init__(self, settings: Settings, policy: str, console: Console) -> None:
        self._settings = settings
        self._policy = policy
        self._console = console
        self._live = Live(
            console=console, auto_refresh=False, transient=True, vertical_overflow="crop"
        )

    def __enter__(self) -> LiveView:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def starting(self, elapsed_s: float) -> None:
        """Show that the server is not ready yet."""
        text = Text.assemble(
            ("timely-llm demo ", "bold"),
            f"loading {self._settings.model_name} … {elapsed_s:.0f} s",
        )
        self._live.update(Panel(text, border_style="dim"), refresh=True)

    def update(self, history: History, now_s: float) -> None:
        """Show what is known at `now_s`."""
        self._live.update(self.render(history, now_s), refresh=True)

    def render(self, history: History, now_s: float) -> RenderableType:
        """Return the whole view."""
        wide = self._console.width >= WIDE
        header = Table.grid(expand=True, padding=(0, 1))
        header.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
        header.add_column(justify="right", no_wrap=True)
        facts, counts = (
            _facts(self._settings, self._policy),
            _counts(self._settings, history, now_s),
        )
        for row in [(facts, counts)] if wide else [(facts, ""), (counts, "")]:
            header.add_row(*row)
        robots, people = _heights(history, self._console.height)
        return Group(
            Panel(header, border_style="dim"),
            _robots(history, now_s, robots, wide),
            *([people_table(history, now_s, people, wide)] if history.people else []),
            _ticker(history),
            # The cursor rests here: a ^C that the terminal echoes must not wrap into a new line.
            Text(""),
        )


def _heights(history: History, height: int) -> tuple[int, int]:
    """Return how many robots and how many people a terminal of so many lines shows."""
    free = height - TICKER - 9
    if not history.people:
        return max(free, 4), 0
    free -= 2  # the second table's head, and its line that says how many more there are
    people = min(len(history.people), max(free // 3, free - len(history.robots), 2))
    return max(free - people, 3), people


def _facts(settings: Settings, policy: str) -> Text:
    return Text.assemble(
        (policy, "bold cyan"),
        f"  {settings.model_name}",
        (f", paced as {settings.pace}" if settings.pace else "", "dim"),
        (f"  ROS_DOMAIN_ID={settings.domain}", "dim"),
    )


def _counts(settings: Settings, history: History, now_s: float) -> Text:
    elapsed_s = now_s - (history.began_s or now_s)
    asking = elapsed_s < settings.duration_s
    return Text.assemble(
        (f"{elapsed_s:.0f}", "bold"),
        f" of {settings.duration_s:g} s   " if asking else " s, finishing plans   ",
        step_rate(history, now_s), "   ",
        (f"{history.served}/{len(history.asked)}", "bold"), " served",
        *_answered(history),
    )  # fmt: skip


def _answered(history: History) -> list[Text | tuple[str, str] | str]:
    if not history.people:
        return []
    questions = history.questions
    answered = sum(talk.answered for talk in questions)
    return ["   ", (f"{answered}/{len(questions)}", "bold"), " answered"]


def _robots(history: History, now_s: float, height: int, wide: bool) -> RenderableType:
    table = Table(expand=True, box=None, padding=(0, 1), header_style="dim")
    table.add_column("robot", no_wrap=True)
    table.add_column("class", no_wrap=True, width=6)
    table.add_column("does", no_wrap=True, overflow="ellipsis", ratio=1)
    table.add_column("", no_wrap=True, width=BAR)
    table.add_column("generation", no_wrap=True, width=10)
    if wide:
        table.add_column("steps", justify="right", no_wrap=True, width=5)
        table.add_column("segments", justify="right", no_wrap=True, width=8)
    table.add_column("next due", justify="right", no_wrap=True, width=8)
    rows = [(agent, history.current(agent)) for agent in history.robots]
    if len(rows) > height:
        rows.sort(key=lambda row: row[1] is None)
    for agent, request in rows[:height]:
        table.add_row(agent, *_row(request, now_s, wide))
    if len(rows) > height:
        table.add_row("…", "", Text(f"and {len(rows) - height} more", "dim"))
    return table


def _row(request: Request | None, now_s: float, wide: bool) -> list[Text]:
    if request is None:
        return [Text(""), Text("idle", "dim")]
    kind = Text("urgent", "bold red") if request.urgent else Text("normal", "blue")
    generation = request.generation(now_s)
    call = request.call_at(now_s)
    if call is not None:
        does = Text.assemble("executes ", (call.text, "bold"))
        bar = _bar((now_s - call.start_s) / call.duration_s, "red" if request.urgent else "blue")
    else:
        does = Text.assemble(("waits", "yellow"), (f": {' '.join(request.task.split())}", "dim"))
        since_s = max([request.asked_s, *(c.end_s for c in request.calls[-1:])])
        bar = _bar((now_s - since_s) / (request.ert_s or 1.0), "yellow")
    counts = [Text(str(request.steps)), Text(str(len(request.delivered)))] if wide else []
    state = Text(generation, GENERATION_STYLE[generation])
    return [kind, does, bar, state, *counts, _due(request, now_s)]


def _due(request: Request, now_s: float) -> Text:
    left_s = request.due_s - now_s
    if request.generated or math.isnan(left_s):
        return Text("")
    style = "bold red" if left_s < 0 else "yellow" if left_s < 0.5 else "green"
    return Text(f"{left_s:+.1f} s", style)


def _bar(share: float, style: str) -> Text:
    full = round(BAR * min(max(share, 0.0), 1.0))
    return Text.assemble(("━" * full, style), ("━" * (BAR - full), "grey23"))


def _ticker(history: History) -> RenderableType:
    table = Table.grid(padding=(0, 1), expand=True)
    table.add_column(justify="right", no_wrap=True, width=8)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    table.add_column(justify="right", no_wrap=True, width=13)
    last = history.published[-TICKER:]
    for request, delivered in last:
        style = "red" if request.urgent else "blue"
        table.add_row(
            Text(f"{delivered.at_s - history.origin_s:.1f} s", "dim"),
            Text(request.agent, style), Text(delivered.text.strip()), _margin(delivered),
        )  # fmt: skip
    for _ in range(TICKER - len(last)):
        table.add_row("")
    return Panel(table, title="segments published", title_align="left", border_style="dim")


def _margin(delivered: Delivered) -> Text:
    early_s = delivered.due_s - delivered.at_s
    if math.isnan(early_s):
        return Text("")
    if early_s < 0:
        return Text(f"{-early_s:.2f} s late", "red")
    return Text(f"{early_s:.2f} s early", "green")
