"""`timely-llm trace explain`: the decisions about requests, from an event log or a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from timely_llm.cli.options import EXISTING_FILE, OutputFile
from timely_llm.core.events.decisions import (
    DecisionsError,
    DecisionSpan,
    decisions_by_request,
    of_request,
    waits,
)
from timely_llm.core.events.reader import LogReader, last_life
from timely_llm.core.output_file import write_json
from timely_llm.core.text import quoted
from timely_llm.report.fitted_table import FittedTable

MOST_CAUSES = 2
"""Causes of each request in the table of all requests."""


@click.command()
@click.argument("file", type=EXISTING_FILE)
@click.argument("request", required=False)
@click.option(
    "--timeline", help="Name of a timeline, or its first letters, if FILE is a run with several."
)
@click.option("--json", "json_file", type=OutputFile(), help="Write the same as JSON to this file.")
def explain(file: Path, request: str | None, timeline: str | None, json_file: Path | None) -> None:
    """Show why the requests in FILE waited, or each decision about one REQUEST in order.

    FILE is one of two: the event log of a plan server with the parameters event_log and explain,
    such as `timely-llm demo --explain` writes, or the JSON file of `timely-llm experiment --explain
    --json`. In an event log of several lives of a server, the last one counts.
    """
    console = Console()
    spans = _read(file, timeline)
    if request is None:
        console.print(_all_requests(spans))
    else:
        spans = {request: list(of_request(spans, request))}
        console.print(_one_request(request, spans[request]))
    if json_file is not None:
        made = {key: [_as_json(span) for span in mine] for key, mine in spans.items()}
        write_json(json_file, made)
        console.print(Text(f"Wrote {json_file}"))


def _read(file: Path, timeline: str | None) -> dict[str, list[DecisionSpan]]:
    if file.suffix == ".json":
        return _of_timeline(file, timeline)
    if timeline is not None:
        raise click.UsageError(f"--timeline is for runs of experiments, and {file} is an event log")
    try:
        spans = decisions_by_request(last_life(LogReader(file).read()))
    except OSError as error:
        raise DecisionsError(f"cannot read {file}: {error.strerror}") from error
    except DecisionsError as error:
        raise DecisionsError(f"{file}: {error}") from error
    if not spans:
        raise DecisionsError(
            f"{file} has no reasons: write it with --explain, or with the plan server's parameters"
            " event_log and explain, and with a policy that gives reasons"
        )
    return spans


def _of_timeline(file: Path, name: str | None) -> dict[str, list[DecisionSpan]]:
    from timely_llm.experiments.results.document import read_run

    known = {one.name: one for one in read_run(file).timelines if one.decisions}
    if not known:
        raise DecisionsError(f"{file} has no reasons: run the experiment with --explain")
    begin = name or ""
    wanted = [one for key, one in known.items() if key.startswith(begin)]
    if begin not in known and len(wanted) != 1:
        names = " or ".join(map(quoted, known))
        raise click.BadParameter(
            f"give the name of one timeline, or its beginning: {names}",
            param_hint="--timeline",
        )
    return (known.get(begin) or wanted[0]).decisions_by_request


def _all_requests(spans: Mapping[str, Sequence[DecisionSpan]]) -> FittedTable:
    table = FittedTable(title="Why requests waited, seconds")
    table.add_column("request")
    for name in ("in steps", "waited", "deferred"):
        table.add_column(name, justify="right")
    table.add_column("mostly because")
    for key, mine in spans.items():
        found = waits(mine)
        why = "; ".join(f"{c.describe()} ({s:.3f})" for c, s in found.causes[:MOST_CAUSES] if s)
        seconds = (found.joined_s, found.waited_s, found.deferred_s)
        table.add_row(Text(quoted(key)[1:-1]), *(f"{s:.3f}" for s in seconds), why)
    return table


def _one_request(name: str, mine: Sequence[DecisionSpan]) -> FittedTable:
    table = FittedTable(title=Text(f"Decisions about {quoted(name)}"))
    for column in ("from s", "for s", "plans"):
        table.add_column(column, justify="right")
    table.add_column("decision")
    begin_s = mine[0].start_s
    for span in mine:
        start_s = span.start_s - begin_s
        table.add_row(f"{start_s:.3f}", f"{span.length_s:.3f}", str(span.plans), str(span))
    return table


def _as_json(span: DecisionSpan) -> dict[str, str | float | None]:
    return {
        "outcome": span.cause.outcome.value,
        "cause": span.cause.name.lower(),
        "start_s": span.start_s,
        "end_s": span.end_s,
        "plans": span.plans,
        "least": span.least,
        "most": span.most,
        "text": str(span),
    }
