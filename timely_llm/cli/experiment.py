"""`timely-llm experiment`: the tables and figures of papers, run again in virtual time."""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from timely_llm.cli.options import FILE, check_output
from timely_llm.core.output_file import HTML
from timely_llm.engines.registry import ENGINES
from timely_llm.experiments.document import write_run
from timely_llm.experiments.registry import EXPERIMENTS
from timely_llm.experiments.registry import experiment as find

MOST_LOAD, MOST_RATE, MOST_REQUESTS = 100, 1000, 1024


def _words(context: click.Context, option: click.Parameter, value: str | None) -> Any:
    """Return the words between commas."""
    return value and tuple(word.strip() for word in value.split(",") if word.strip())


def _counts(most: int, like: str) -> Callable[..., Any]:
    """Return what reads whole numbers from 1 on between commas, none of them twice."""

    def read(context: click.Context, option: click.Parameter, value: str | None) -> Any:
        words = [word.strip() for word in value.split(",")] if value is not None else []
        if not all(w.isascii() and w.isdecimal() and 1 <= int(w[:9]) <= most for w in words):
            raise click.BadParameter(f"{value!r} is not like {like}: whole numbers of 1 to {most}")
        return tuple(dict.fromkeys(map(int, words))) or None

    return read


def _numbers(low: float, high: float, like: str) -> Callable[..., Any]:
    """Return what reads the numbers of a range between commas, none of them twice."""

    def read(context: click.Context, option: click.Parameter, value: str | None) -> Any:
        try:
            numbers = [float(word) for word in value.split(",")] if value is not None else []
        except ValueError:
            numbers = [math.nan]
        if not all(low <= number <= high for number in numbers):
            raise click.BadParameter(f"{value!r} is not like {like}: {low:g} to {high:g}")
        return tuple(dict.fromkeys(numbers)) or None

    return read


def _given(context: click.Context, option: click.Parameter, value: tuple[str, ...]) -> Any:
    """Return what was given, None if nothing was."""
    return value or None


def _number(context: click.Context, option: click.Parameter, value: float | None) -> Any:
    """Return a number that is one: ranges let NaN through."""
    if value is not None and math.isnan(value):
        raise click.BadParameter("nan is not a number")
    return value


def _listed(context: click.Context, option: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        for name in EXPERIMENTS:
            click.echo(f"{name}: {find(name).question}")
        context.exit()


@click.command(epilog=f"Names: {', '.join(EXPERIMENTS)}.")
@click.argument("name", type=click.Choice(list(EXPERIMENTS)), metavar="NAME")
@click.option("--list", is_flag=True, is_eager=True, expose_value=False, callback=_listed,
              help="Say what experiments there are and what they ask.")  # fmt: skip
@click.option("--policies", metavar="A,B", callback=_words,
              help="Such as fcfs,timely:drops,deadline:batch=off.")  # fmt: skip
@click.option("--load", "loads", metavar="1,2,4", callback=_counts(MOST_LOAD, "1,2,4"),
              help="How often every job is asked.")  # fmt: skip
@click.option("--seeds", type=click.IntRange(1, 1000), help="How many, from 0 on.")
@click.option("--trace", type=click.Path(exists=True, path_type=Path),
              help="Jobs of your own; seeds are then of predictions and noise alone.")  # fmt: skip
@click.option("--profile", help="Name of the step times.")
@click.option("--harness", is_flag=True, default=None,
              help="Also baselines as in the paper's code: 1 admission, 8 rows.")  # fmt: skip
@click.option("--uncached", is_flag=True, default=None,
              help="Also every policy with nothing of the prompts computed before.")  # fmt: skip
@click.option("--error", type=click.FloatRange(0, 3), callback=_number,
              help="Sigma of predicted over true execution times, log-normal.")  # fmt: skip
@click.option("--noise", type=click.FloatRange(0, 3), callback=_number,
              help="Sigma of true execution times over the trace's, log-normal.")  # fmt: skip
@click.option("--network", "network_s", type=click.FloatRange(0, 60), callback=_number,
              help="Seconds of a message, each way.")  # fmt: skip
@click.option("--engine", type=click.Choice(ENGINES),
              help="A real one serves in real time, for a shorter while.")  # fmt: skip
@click.option("--seconds", type=click.FloatRange(5, 86_400), callback=_number,
              help="With a real engine: seconds of each workload.")  # fmt: skip
@click.option("--rates", metavar="0.5,1,2", callback=_numbers(0, MOST_RATE, "0.5,1,2"),
              help="Conversations a second.")  # fmt: skip
@click.option("--ratios", metavar="0.1,0.7", callback=_numbers(0, 1, "0.1,0.7"),
              help="Shares of real-time tasks among them.")  # fmt: skip
@click.option("--lengths", metavar="8-25:40-160,...", callback=_words,
              help="Tokens of their answers: of real-time tasks, of others.")  # fmt: skip
@click.option("--bounds", metavar="1,4", callback=_numbers(1, 100, "1,4"),
              help="Declared most tokens over those of the longest answer.")  # fmt: skip
@click.option("--charged", is_flag=True, default=None,
              help="Prompts of conversations take time, other than in paper 000.")  # fmt: skip
@click.option("--model", help="With a real engine: folder or hub id; else the embedded model.")
@click.option("--engine-arg", "engine_args", multiple=True, metavar="NAME=VALUE", callback=_given,
              help="An option of vLLM's own.")  # fmt: skip
@click.option("--scripted", is_flag=True, default=None,
              help="With a real engine: the words of the workload, not its model's.")  # fmt: skip
@click.option("--own-pace", is_flag=True, default=None,
              help="With a real engine: its own step times, not the profile's.")  # fmt: skip
@click.option("--requests", metavar="1,8,64", callback=_counts(MOST_REQUESTS, "1,8,64"),
              help="How many are served at a time.")  # fmt: skip
@click.option("--tokens", type=click.IntRange(2, 4096), help="Of each answer.")
@click.option("--repeats", type=click.IntRange(1, 1000), help="How often each is measured.")
@click.option("--jobs", type=click.IntRange(1, 256), help="Processes that work at once.")
@click.option("--json", "json_file", type=FILE, help="Write the run to this file.")
@click.option("--html", "html_file", type=FILE, help="Write a report to this file.")
def experiment(name: str, json_file: Path | None, html_file: Path | None, **options: Any) -> None:
    """Run the experiment NAME and print its tables beside the paper's.

    A policy may carry words and options of its own: timely:drops, fcfs:harness, timely:rows=6,
    deadline:defer=off. Every option that is not given has the experiment's own default.
    """
    check_output(json_file, "--json")
    check_output(html_file, "--html", HTML)
    chosen = find(name)
    wanted = chosen.options(**{key: value for key, value in options.items() if value is not None})
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    errors = Console(stderr=True)
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task(name, total=None)
        run = chosen.run(wanted, lambda done, total: bar.update(task, completed=done, total=total))
    run = run.model_copy(update={"command": shlex.join(["timely-llm", *sys.argv[1:]])})
    from timely_llm.experiments.tables import console, show

    page = console()
    show(run, page)
    if json_file is not None:
        write_run(run, json_file)
        page.print(Text(f"Wrote {json_file}"))
    if html_file is not None:
        from timely_llm.report.page import write_page

        write_page([run], html_file)
        page.print(Text(f"Wrote {html_file}"))
