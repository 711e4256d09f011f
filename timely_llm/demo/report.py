"""The results of a demo: a table, JSON, and pictures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from timely_llm.core.events.history import History
from timely_llm.core.time_utility import NORMAL, URGENT
from timely_llm.demo.cloud import DemoHistory
from timely_llm.demo.help_rows import DEFINITIONS as HELP_DEFINITIONS
from timely_llm.demo.help_rows import (
    HelpSummary,
    cut_sentence,
    help_json,
    help_table,
    works_of,
)
from timely_llm.demo.server_rows import named
from timely_llm.demo.settings import DemoSettings
from timely_llm.demo.summary import ClassSummary, Summary, TalkSummary, outages
from timely_llm.report.fitted_table import FittedTable
from timely_llm.report.terminal import style

Runs = Mapping[str, DemoHistory]
"""Histories by policy, in the order in which they were run."""

DEFINITIONS = (
    ("served", "requests with an executed first segment"),
    ("first", "share of these requests"),
    ("finished", "share of the requests with a plan that was executed to its end"),
    ("response", "from asking to the execution of the first segment, over served requests"),
    ("waiting", "mean time in which a robot with a task had nothing to execute, over served ones"),
    (
        "utility",
        "mean worth of the responses, never below 0, 0 if never answered; "
        f"at most {URGENT.beta:g} (urgent), {NORMAL.beta:g} (normal)",
    ),
    ("recomputed", "tokens with a KV that was computed a second time"),
)
SERVER_DEFINITIONS = (
    ("taken", "requests that a server began with; one that went on elsewhere counts at both"),
    ("rows", "mean number of requests in a step"),
    ("busy", "share of the run in which the server's engine made a step"),
)
TALK_DEFINITIONS = (
    (
        "SLO met",
        "share of questions with a complete answer that kept its service level: the first token "
        "in time, and the others in the mean; questions that the end of the run cut off are left "
        "out",
    ),
    ("TTFT", "from asking to the first token, over answers"),
    ("gap", "the longest time between two tokens of an answer"),
    ("stalls", "times in which a person had no further word to hear or read"),
)


def as_json(settings: DemoSettings, runs: Runs) -> dict[str, Any]:
    """Return one object for one policy, and an object of objects by policy for several."""
    objects: dict[str, dict[str, Any]] = {
        policy: {"policy": policy, **settings.as_json(), **Summary.of(history).as_json()}
        for policy, history in runs.items()
    }
    for policy, history in runs.items():
        if settings.server_names:
            objects[policy]["outages"] = [outage.as_json() for outage in outages(history)]
        if settings.cloud:
            objects[policy]["help"] = help_json(history)
    return objects if len(objects) > 1 else next(iter(objects.values()))


def save_pictures(settings: DemoSettings, runs: Runs) -> list[Path]:
    """Write two timelines for each policy and return their paths.

    One shows the whole run, the other the busiest seconds of the first run, the same in all runs.
    """
    # matplotlib takes a second to import.
    from timely_llm.demo.timeline import busiest, timeline
    from timely_llm.report.png import write_timeline

    window = busiest(next(iter(runs.values())))
    paths = []
    for policy, history in runs.items():
        paced = f" at the pace of {settings.pace}" if settings.pace else ""
        if settings.server_names:
            paced = f", {settings.servers} servers"
        if history.cloud_cut_s is not None:
            paced += f", the cloud cut off at {history.cloud_cut_s - history.origin_s:.0f} s"
        title = f"{policy}: {settings.model_name}{paced}, {_agents(settings)}, seed {settings.seed}"
        paths += [settings.output / f"timeline-{policy}{part}.png" for part in ("", "-burst")]
        whole = timeline(history, title)
        write_timeline(whole, paths[-2])
        write_timeline(whole.shown(*window), paths[-1])
    return paths


def print_report(console: Console, settings: DemoSettings, runs: Runs, files: list[Path]) -> None:
    """Print the table, the errors, what the words mean and where the files are."""
    summaries = {policy: Summary.of(history) for policy, history in runs.items()}
    console.print(Text(f"\n{_facts(settings)}", "dim"))
    console.print(_table(summaries))
    if settings.conversations:
        console.print(_talk_table(summaries))
    if settings.server_names:
        console.print(_server_table(settings, runs))
    if settings.cloud:
        console.print(help_table(runs))
    for policy, summary in summaries.items():
        console.print(_totals(policy, summary), soft_wrap=True)
        for outage in outages(runs[policy]):
            console.print(Text.assemble("  ", (str(outage), "bold")), soft_wrap=True)
        if settings.cloud:
            _print_help(console, runs[policy])
        for message in summary.error_messages:
            console.print(Text.assemble("  ", (message, "red")), soft_wrap=True)
    console.print()
    console.print(_definitions(settings))
    for path in files:
        console.print(Text(str(path)), soft_wrap=True)


def _print_help(console: Console, history: DemoHistory) -> None:
    """Print when the cloud was cut off, and why it did not help, or not to the end."""
    if sentence := cut_sentence(history):
        console.print(Text.assemble("  ", (sentence, "bold")), soft_wrap=True)
    for name, works in works_of(history).items():
        for why, count in HelpSummary.of(works).reasons.items():
            console.print(Text(f"  {count} of the {name}: {why}"), soft_wrap=True)


def print_clients(console: Console, name: str, history: History) -> None:
    """Print the table of a client, from the events that it has seen itself.

    Args:
        console: the output.
        name: of the node.
        history: its requests and their ends.
    """
    summaries = {name: Summary.of(history)}
    summary = summaries[name]
    words = f"{_shares(summary)}, " if summary.requests else ""
    recomputed = f"{summary.recomputed_tokens} tokens recomputed"
    if summary.requests:
        console.print(_table(summaries, "node"))
    if summary.conversations:
        console.print(_talk_table(summaries, "node"))
    total = f": {words}{recomputed}, {len(summary.error_messages)} errors"
    console.print(Text.assemble((name, "bold cyan"), total))
    for message in summary.error_messages:
        console.print(Text.assemble("  ", (message, "red")), soft_wrap=True)


def _facts(settings: DemoSettings) -> str:
    paced = f"every step paced as {settings.pace}" if settings.pace else "no pace"
    if settings.server_names:
        paced = f"{settings.servers} servers behind a dispatcher"
    if settings.cloud:
        paced += f"; the cloud is {settings.cloud_name}"
    return (
        f"{_agents(settings)} asked for {settings.duration_s:g} s in "
        f"{settings.bursts_per_s:g} bursts of tasks a second, seed {settings.seed}; "
        f"{settings.engine} engine, {settings.model_name}, {paced}"
    )


def _table(summaries: Mapping[str, Summary], first: str = "policy") -> RenderableType:
    """Return two rows for each policy, so that any number of them fits a narrow terminal."""
    table = FittedTable(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), header_style="dim", carries=True)
    table.add_column(first, min_width=max(map(len, summaries)), no_wrap=True)
    table.add_column("class", no_wrap=True)
    for name in ("asked", "served", "response\np50 (s)", "\np95 (s)", "waiting\n(s)", "utility"):
        table.add_column(name, justify="right", no_wrap=True)
        if name.startswith("\n"):
            table.name_column("response p95 (s)")
    for policy, summary in summaries.items():
        table.add_row(
            Text(policy, "bold cyan"), Text("urgent", style("urgent")), *_cells(summary.urgent)
        )
        table.add_row(
            "", Text("normal", style("normal")), *_cells(summary.normal), end_section=True
        )
    return table


def _cells(summary: ClassSummary) -> list[str]:
    times = (summary.p50_s, summary.p95_s, summary.waiting_s, summary.utility)
    return [str(summary.requests), str(summary.served), *(_number(value) for value in times)]


def _talk_table(summaries: Mapping[str, Summary], first: str = "policy") -> RenderableType:
    """Return a row for each policy and service level."""
    table = FittedTable(box=box.SIMPLE_HEAD, padding=0, header_style="dim", carries=True)
    table.add_column(first, min_width=max(map(len, summaries)), no_wrap=True)
    table.add_column("level", no_wrap=True)
    names = ("asked", "answered", "SLO\nmet", "TTFT\np50 (s)", "\np95 (s)", "tokens\n/s",
             "largest\ngap (s)", "stalls")  # fmt: skip
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
        if name.startswith("\n"):
            table.name_column("TTFT p95 (s)")
    for policy, summary in summaries.items():
        levels = summary.conversations
        for level, talks in levels.items():
            begins, last = level == next(iter(levels)), level == next(reversed(levels))
            shown = Text(policy if begins else "", "bold cyan")
            table.add_row(shown, level, *_talk_cells(talks), end_section=last)
    return table


def _talk_cells(talks: TalkSummary) -> list[str]:
    numbers = (
        talks.slo_attainment, talks.ttft_p50_s, talks.ttft_p95_s, talks.tokens_per_s,
        talks.largest_gap_s,
    )  # fmt: skip
    return [str(talks.asked), str(talks.answered), *map(_number, numbers), str(talks.stalls)]


def _server_table(settings: DemoSettings, runs: Runs) -> RenderableType:
    """Return a row for each policy and server."""
    table = FittedTable(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), header_style="dim", carries=True)
    table.add_column("policy", min_width=max(map(len, runs)), no_wrap=True)
    for name in ("server", "pace"):
        table.add_column(name, no_wrap=True)
    for name in ("taken", "steps", "rows", "busy"):
        table.add_column(name, justify="right", no_wrap=True)
    for policy, history in runs.items():
        works = [*history.asked, *history.questions]
        for place, (name, pace) in enumerate(settings.paces.items()):
            steps = history.servers[name].steps
            taken = sum(name in {server for _, server in work.taken} for work in works)
            rows = sum(step.sequences for step in steps) / max(len(steps), 1)
            busy = sum(step.duration_s for step in steps) / (history.end_s - history.origin_s)
            shown = Text("" if place else policy, "bold cyan")
            numbers = str(taken), str(len(steps)), f"{rows:.1f}", f"{busy:.2f}"
            last = place == settings.servers - 1
            table.add_row(shown, named(name), pace or "none", *numbers, end_section=last)
    return table


def _totals(policy: str, summary: Summary) -> Text:
    return Text.assemble(
        (policy, "bold cyan"),
        f": {_shares(summary)}, {summary.segments} segments, "
        f"{summary.recomputed_tokens} recomputed, {len(summary.error_messages)} errors",
    )


def _shares(summary: Summary) -> str:
    first, finished = map(_number, (summary.share_first, summary.share_finished))
    return f"first {first}, finished {finished}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _agents(settings: DemoSettings) -> str:
    people = f" and {settings.conversations} people" if settings.conversations else ""
    return f"{settings.robots} robots{people}"


def _definitions(settings: DemoSettings) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    words = (
        *DEFINITIONS, *TALK_DEFINITIONS * bool(settings.conversations),
        *SERVER_DEFINITIONS * bool(settings.server_names), *HELP_DEFINITIONS * bool(settings.cloud),
    )  # fmt: skip
    for word, meaning in words:
        grid.add_row(Text(word, "bold dim"), Text(meaning, "dim"))
    return Group(grid, Text(""))
