"""What a demo leaves: a table, JSON, and pictures."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from timely_llm.core.time_utility import NORMAL, URGENT
from timely_llm.demo.history import History
from timely_llm.demo.settings import Settings
from timely_llm.demo.summary import ClassSummary, Summary

Runs = Mapping[str, History]
"""Histories by policy, in the order in which they were run."""

DEFINITIONS = (
    ("served", "requests whose first segment was executed"),
    ("response", "from asking to the execution of the first segment, over served requests"),
    ("waiting", "mean time in which a robot with a task had nothing to execute, over served ones"),
    (
        "utility",
        "mean worth of the responses, 0 if never answered; "
        f"at most {URGENT.beta:g} (urgent), {NORMAL.beta:g} (normal)",
    ),
    ("recomputed", "tokens whose KV had to be computed a second time"),
)


def as_json(settings: Settings, runs: Runs) -> str:
    """Return one object for one policy, and an object of objects by policy for several."""
    objects: dict[str, dict[str, Any]] = {
        policy: {"policy": policy, **settings.as_json(), **Summary.of(history).as_json()}
        for policy, history in runs.items()
    }
    document = objects if len(objects) > 1 else next(iter(objects.values()))
    return json.dumps(document, indent=2) + "\n"


def save_pictures(settings: Settings, runs: Runs) -> list[Path]:
    """Write two timelines for each policy and return their paths.

    One shows the whole run, the other the busiest seconds of the first run, the same in all runs.
    """
    # matplotlib takes a second to import: not before somebody needs it.
    from timely_llm.demo.timeline import busiest, draw

    window = busiest(next(iter(runs.values())))
    paths = []
    for policy, history in runs.items():
        paced = f" at the pace of {settings.pace}" if settings.pace else ""
        title = f"{policy}: {settings.model_name}{paced}, {settings.robots} robots, " + (
            f"seed {settings.seed}"
        )
        paths += [settings.output / f"timeline-{policy}{part}.png" for part in ("", "-burst")]
        draw(history, title, paths[-2])
        draw(history, title, paths[-1], window)
    return paths


def print_report(console: Console, settings: Settings, runs: Runs, files: list[Path]) -> None:
    """Print the table, the errors, what the words mean and where the files are."""
    summaries = {policy: Summary.of(history) for policy, history in runs.items()}
    console.print(Text(f"\n{_facts(settings)}", "dim"))
    console.print(_table(summaries))
    for policy, summary in summaries.items():
        for message in summary.error_messages:
            console.print(Text.assemble((f"{policy}: ", "red"), message), soft_wrap=True)
    console.print(_definitions())
    for path in files:
        console.print(Text(str(path)), soft_wrap=True)


def _facts(settings: Settings) -> str:
    paced = f"every step paced as {settings.pace}" if settings.pace else "no pace"
    return (
        f"{settings.robots} robots asked for {settings.duration_s:g} s, seed {settings.seed}; "
        f"{settings.engine} engine, {settings.model_name}, {paced}"
    )


def _table(summaries: Mapping[str, Summary]) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), header_style="")
    table.add_column("", no_wrap=True)
    for policy in summaries:
        for name, kind, style in (
            (policy, "urgent", "red"),
            ("", "normal", "blue"),
            ("", "all", ""),
        ):
            header = Text.assemble((name, "bold cyan"), "\n", (kind, style))
            table.add_column(header, justify="right", no_wrap=True)
    for rows in zip(*(_rows(summary) for summary in summaries.values()), strict=True):
        table.add_row(rows[0][0], *(cell for row in rows for cell in row[1:]))
    return table


def _rows(summary: Summary) -> list[tuple[str, str, str, str]]:
    """Return the rows of one policy: name, urgent, normal, all."""
    urgent, normal = summary.urgent, summary.normal
    return [
        ("requests", str(urgent.requests), str(normal.requests), str(summary.requests)),
        ("served", str(urgent.served), str(normal.served), str(summary.served)),
        ("share served", _share(urgent), _share(normal), _number(summary.share_served)),
        ("response p50 (s)", _number(urgent.p50_s), _number(normal.p50_s), ""),
        ("response p95 (s)", _number(urgent.p95_s), _number(normal.p95_s), ""),
        ("waiting (s)", _number(urgent.waiting_s), _number(normal.waiting_s), ""),
        ("utility", _number(urgent.utility), _number(normal.utility), ""),
        ("segments", "", "", str(summary.segments)),
        ("recomputed tokens", "", "", str(summary.recomputed_tokens)),
        ("errors", "", "", str(len(summary.error_messages))),
    ]


def _share(summary: ClassSummary) -> str:
    return _number(summary.served / summary.requests if summary.requests else None)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _definitions() -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    for word, meaning in DEFINITIONS:
        grid.add_row(Text(word, "bold dim"), Text(meaning, "dim"))
    return Group(grid, Text(""))
