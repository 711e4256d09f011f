"""The terminal while a demo runs: what each robot does, what each person hears, what is due."""

from __future__ import annotations

import math
from dataclasses import replace

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from timely_llm.core.events.history import History
from timely_llm.core.events.request_history import DeliveredSegment, PlanHistory, StreamHistory
from timely_llm.demo.cloud import DemoHistory
from timely_llm.demo.help_rows import ALONE, OPENING, help_line, source_of
from timely_llm.demo.progress import step_rate
from timely_llm.demo.server_rows import named, recent_use, server_table, stage_table
from timely_llm.demo.settings import DemoSettings
from timely_llm.demo.timeline import request_bars, request_end, tone_of
from timely_llm.report.terminal import meter, strip, style

BAR = 12
WIDE = 110
"""Terminals of fewer columns are shown less."""
WIDEST, STRIP, STRIP_S = 140, 20, 10.0
"""Terminals of at least `WIDEST` columns show a strip of `STRIP` columns with the last seconds."""
TICKER = 5
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


class LiveView:
    """A table with a row for each robot, drawn anew several times a second."""

    def __init__(self, settings: DemoSettings, policy: str, console: Console) -> None:
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

    def update(self, history: DemoHistory, now_s: float) -> None:
        """Show what is known at `now_s`."""
        self._live.update(self.render(history, now_s), refresh=True)

    def render(self, history: DemoHistory, now_s: float) -> RenderableType:
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
        if self._settings.cloud:
            header.add_row(help_line(self._settings.cloud_name, history, now_s), "")
        servers = self._settings.paces if self._settings.server_names else {}
        stages = recent_use(history, now_s) if not servers else []
        free = self._console.height - sum(len(rows) + 1 for rows in (servers, stages) if rows)
        free -= bool(self._settings.cloud)
        robots, people = _heights(history, free)
        return Group(
            Panel(header, border_style="dim"),
            *([server_table(history, servers, now_s, wide)] if servers else []),
            *([stage_table(stages)] if stages else []),
            _robots(history, now_s, robots, self._console.width, bool(servers)),
            *(
                [
                    people_table(
                        history, now_s, people, wide, bool(servers), bool(self._settings.cloud)
                    )
                ]
                if history.people
                else []
            ),
            _ticker(history),
            # The cursor rests here: a ^C that the terminal echoes must not wrap into a new line.
            Text(""),
        )


def _heights(history: History, height: int) -> tuple[int, int]:
    """Return how many robots and how many people a terminal of `height` lines shows."""
    free = height - TICKER - 9
    if not history.people:
        return max(free, 4), 0
    free -= 2  # the second table's head, and its line that says how many more there are
    people = min(len(history.people), max(free // 3, free - len(history.robots), 2))
    return max(free - people, 3), people


def _facts(settings: DemoSettings, policy: str) -> Text:
    return Text.assemble(
        (policy, "bold cyan"),
        f"  {settings.model_name}",
        (_pace(settings), "dim"),
        (f"  ROS_DOMAIN_ID={settings.domain}", "dim"),
    )


def _pace(settings: DemoSettings) -> str:
    if settings.server_names:
        return f", {settings.servers} servers behind a dispatcher"
    return f", paced as {settings.pace}" if settings.pace else ""


def _counts(settings: DemoSettings, history: History, now_s: float) -> Text:
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


def _robots(
    history: History, now_s: float, height: int, width: int, several: bool = False
) -> RenderableType:
    """Return a table with a row for each robot; with several servers, the one that has its plan."""
    wide, widest = width >= WIDE, width >= WIDEST
    table = Table(expand=True, box=None, padding=(0, 1), header_style="dim")
    table.add_column("robot", no_wrap=True)
    table.add_column("class", no_wrap=True, width=6)
    table.add_column("does", no_wrap=True, overflow="ellipsis", ratio=1)
    table.add_column("", no_wrap=True, width=BAR)
    if widest:
        table.add_column(f"last {STRIP_S:g} s", no_wrap=True, width=STRIP)
    table.add_column("generation", no_wrap=True, width=10)
    if several:
        table.add_column("server", no_wrap=True, width=6)
    if wide:
        table.add_column("steps", justify="right", no_wrap=True, width=5)
        table.add_column("segments", justify="right", no_wrap=True, width=8)
    table.add_column("next due", justify="right", no_wrap=True, width=8)
    rows = [(agent, history.current(agent)) for agent in history.robots]
    if len(rows) > height:
        rows.sort(key=lambda row: row[1] is None)
    for agent, request in rows[:height]:
        recent = [_strip(history, agent, now_s)] if widest else []
        table.add_row(agent, *_robot_row(request, now_s, wide, recent, several))
    if len(rows) > height:
        table.add_row("…", "", Text(f"and {len(rows) - height} more", "dim"))
    return table


def _strip(history: History, agent: str, now_s: float) -> Text:
    """Return what a robot did in the last seconds."""
    since_s = now_s - STRIP_S
    mine = [request for request in history.asked if request.agent == agent]
    recent = [request for request in mine if request.outcome is None or request.outcome.t > since_s]
    newer_s = [request.asked_s for request in recent]
    bars = (
        replace(bar, end_s=min(bar.end_s, now_s))
        for request in recent
        for bar in request_bars(request, now_s, request_end(request, newer_s))
    )
    return strip(list(bars), since_s, now_s, STRIP)


def _robot_row(
    request: PlanHistory | None, now_s: float, wide: bool, recent: list[Text], several: bool
) -> list[Text]:
    if request is None:
        return [Text(""), Text("idle", "dim"), Text(""), *recent]
    tone = tone_of(request)
    kind = Text(tone, style(tone, bold=request.urgent))
    generation = request.generation(now_s)
    call = request.call_at(now_s)
    if call is not None:
        does = Text.assemble("executes ", (call.text, "bold"))
        bar = meter((now_s - call.start_s) / call.duration_s, style(tone), BAR)
    else:
        does = Text.assemble(("waits", "yellow"), (f": {' '.join(request.task.split())}", "dim"))
        since_s = max([request.asked_s, *(c.end_s for c in request.calls[-1:])])
        bar = meter((now_s - since_s) / (request.ert_s or 1.0), "yellow", BAR)
    counts = [Text(str(request.steps)), Text(str(len(request.delivered)))] if wide else []
    state = Text(generation, GENERATION_STYLE[generation])
    server = [named(request.server)] if several else []
    return [kind, does, bar, *recent, state, *server, *counts, _due(request, now_s)]


def _due(request: PlanHistory, now_s: float) -> Text:
    left_s = request.due_s - now_s
    if request.generated or math.isnan(left_s):
        return Text("")
    color = "bold red" if left_s < 0 else "yellow" if left_s < 0.5 else "green"
    return Text(f"{left_s:+.1f} s", color)


def _ticker(history: History) -> RenderableType:
    table = Table.grid(padding=(0, 1), expand=True)
    table.add_column(justify="right", no_wrap=True, width=8)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    table.add_column(justify="right", no_wrap=True, width=13)
    last = history.published[-TICKER:]
    for request, delivered in last:
        table.add_row(
            Text(f"{delivered.at_s - history.origin_s:.1f} s", "dim"),
            Text(request.agent, style(tone_of(request))), Text(delivered.text.strip()),
            _margin(delivered),
        )  # fmt: skip
    for _ in range(TICKER - len(last)):
        table.add_row("")
    return Panel(table, title="segments published", title_align="left", border_style="dim")


def _margin(delivered: DeliveredSegment) -> Text:
    early_s = delivered.due_s - delivered.at_s
    if math.isnan(early_s):
        return Text("")
    if early_s < 0:
        return Text(f"{-early_s:.2f} s late", "red")
    return Text(f"{early_s:.2f} s early", "green")


def people_table(
    history: History, now_s: float, height: int, wide: bool, several: bool = False,
    cloud: bool = False,
) -> RenderableType:  # fmt: skip
    """Return a table with a row for each person, `height` at most; those with an answer first.

    With several servers, each row has the one that makes the answer. With a cloud, it has the
    source of the newest words.
    """
    table = Table(expand=True, box=None, padding=(0, wide, 0, 1), header_style="dim")
    table.add_column("person", no_wrap=True)
    table.add_column("class", no_wrap=True, width=5)
    table.add_column("hears or reads", no_wrap=True, ratio=1)
    if cloud:
        table.add_column("words of", no_wrap=True, width=len(ALONE))
    table.add_column("credit", no_wrap=True, width=CREDIT_BARS[wide] + 8)
    if wide or not cloud:  # a narrow terminal has room for one of both
        table.add_column("generation", no_wrap=True, width=10)
    if several:
        table.add_column("server", no_wrap=True, width=6)
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
        table.add_row(agent, kind, *_person_row(talks, now_s, wide, several, cloud))
    if len(rows) > height:
        table.add_row("…", "", Text(f"and {len(rows) - height} more", "dim"))
    return table


def _person_row(
    talks: list[StreamHistory], now_s: float, wide: bool, several: bool, cloud: bool
) -> list[RenderableType]:
    if not talks:
        return [Text("has not asked yet", "dim")]
    talk = talks[-1]
    generation = talk.generation(now_s)
    counts = [Text(str(len(talk.chunks))), _number(talk.ttft_s, ".2f", " s")] if wide else []
    return [
        _hears(talk, now_s),
        *([_source(talk)] if cloud else []),
        _credit(talk, now_s, CREDIT_BARS[wide]),
        *([Text(generation, GENERATION_STYLE[generation])] if wide or not cloud else []),
        *([named(talk.server)] if several else []),
        *counts,
        _number(talk.tokens_per_s, ".1f"),
        _kept(talks, now_s),
        _stalls(talks),
    ]


def _source(talk: StreamHistory) -> Text:
    words = source_of(talk, talk.part) if talk.chunks else ""
    return Text(words, {OPENING: "dim", ALONE: "yellow"}.get(words, "cyan"))


def _takes_in(talk: StreamHistory, now_s: float) -> bool:
    """Whether the person waits for the answer, or has words left to hear or read."""
    return not talk.generated or talk.credit_s(now_s) > 0.0


def _hears(talk: StreamHistory, now_s: float) -> RenderableType:
    if not talk.chunks:
        return Text.assemble(("asks: ", "yellow"), (talk.question, "dim"), overflow="ellipsis")
    if not _takes_in(talk, now_s):
        return Text("pauses", "dim")
    return _AnswerTail(talk)


class _AnswerTail:
    """The last words of an answer, as many as fit."""

    def __init__(self, talk: StreamHistory) -> None:
        self._talk = talk

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        words = self._talk.last_words(options.max_width + 1)
        fits = len(words) <= options.max_width
        yield Text(words if fits else "…" + words[2:], no_wrap=True, overflow="crop")


def _credit(talk: StreamHistory, now_s: float, bar: int) -> Text:
    credit_s = talk.credit_s(now_s)
    if not talk.chunks or not _takes_in(talk, now_s):
        return Text("")
    style = "red" if credit_s < 0 else "yellow" if credit_s < 0.5 else "green"
    return meter(credit_s / CREDIT_S, style, bar) + Text(f"{credit_s:+6.1f} s", style)


def _kept(talks: list[StreamHistory], now_s: float) -> Text:
    kept = sum(talk.keeps_slo(now_s) for talk in talks)
    return Text(f"{kept}/{len(talks)}", "green" if talks[-1].keeps_slo(now_s) else "bold red")


def _stalls(talks: list[StreamHistory]) -> Text:
    stalls = sum(len(talk.stalled) for talk in talks)
    return Text(str(stalls), "bold red" if stalls else "dim")


def _number(value: float, form: str, unit: str = "") -> Text:
    return Text("" if math.isnan(value) else f"{value:{form}}{unit}")
