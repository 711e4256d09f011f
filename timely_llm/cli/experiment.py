"""`timely-llm experiment`: the tables and figures of papers, run again in virtual time."""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.progress import BarColumn, MofNCompleteColumn, TimeRemainingColumn
from rich.text import Text

from timely_llm.cli import progress
from timely_llm.cli.options import Option, OutputFile, OwnOr
from timely_llm.core.output_file import HTML
from timely_llm.core.requirements import need
from timely_llm.engines.registry import ENGINES
from timely_llm.experiments.registry import EXPERIMENTS
from timely_llm.experiments.registry import experiment as find
from timely_llm.experiments.results.document import write_run
from timely_llm.experiments.virtual.durations import DURATIONS

MOST_LOAD, MOST_RATE, MOST_REQUESTS, MOST_ROBOTS, MOST_SERVERS = 100, 1000, 1024, 1000, 64
MOST_MINUTES, MOST_FIGURE, MOST_BUDGET = 1440, 99, 1 << 20


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


@click.command(epilog=f"Names: {', '.join(EXPERIMENTS)}, or your own as my_module:EXPERIMENT.")
@click.argument("name", type=OwnOr(list(EXPERIMENTS)), metavar="NAME")
@click.option("--list", is_flag=True, is_eager=True, expose_value=False, callback=_listed,
              help="List the experiments with their questions.")  # fmt: skip
@click.option("--policies", metavar="A,B", callback=_words,
              help="Policies to compare, such as fcfs,timely:drops,deadline:kappa=0, or"
              " my_module:MyPolicy of your own; for pice-* ways to answer, such as"
              " cloud-only,pice:merge=off."
              )  # fmt: skip
@click.option("--dispatchers", metavar="A,B", callback=_words,
              help="For servers-* and annealing-servers: rules that assign requests, such as"
              " most-worth,two-choices:seed=3, or my_module:MyRule of your own.")  # fmt: skip
@click.option("--servers", metavar="1,4", callback=_counts(MOST_SERVERS, "1,4"),
              help="For servers-scale and annealing-servers: numbers of servers; each is a"
              " run.")  # fmt: skip
@click.option("--load", "loads", metavar="1,2,4", callback=_counts(MOST_LOAD, "1,2,4"),
              help="Copies of each job, for servers-mixed without a trace groups of robots; each"
              " number is a run.")  # fmt: skip
@click.option("--robots", metavar="10,100", callback=_counts(MOST_ROBOTS, "10,100"),
              help="For fleet: sizes of the fleet; each number is a run.")  # fmt: skip
@click.option("--seeds", type=click.IntRange(1, 1000), help="Number of seeds.")
@click.option("--first-seed", type=click.IntRange(0, 2**31 - 1001),
              help="First seed; the others follow it. Where nothing is random there is"
              " none.")  # fmt: skip
@click.option("--minutes", type=click.FloatRange(0.1, MOST_MINUTES), callback=_number,
              help="Minutes in which requests of a composed workload arrive.")  # fmt: skip
@click.option("--trace", type=click.Path(exists=True, path_type=Path),
              help="Trace with requests of your own; seeds then change predictions and noise"
              " only, the texts of timelyllm-chatbot, and what robots of fleet draw. Experiments"
              " that compose their own requests have none: annealing-*, engine-*, optimal, pice-*,"
              " pipeline-offline, -online and -timeline, slice-lengths and -static,"
              " timelyllm-overhead and -phases.")  # fmt: skip
@click.option("--profile", help="Name of a step-time profile.")
@click.option("--figures", metavar="13,17", callback=_counts(MOST_FIGURE, "13,17"),
              help="For annealing-order and -lengths: figures of Huang et al. 2025 with other"
              " models, devices and engines, 12 to 18, in place of --profile.")  # fmt: skip
@click.option("--harness", is_flag=True, default=None,
              help="Add baselines as in the paper's code: 1 admission a step, 8 rows.")  # fmt: skip
@click.option("--uncached", is_flag=True, default=None,
              help="Add each policy without pre-computed prompts.")  # fmt: skip
@click.option("--error", type=click.FloatRange(0, 3), callback=_number,
              help="Sigma of the log-normal ratio of predicted to true execution times, with"
              " --durations noisy.")  # fmt: skip
@click.option("--noise", type=click.FloatRange(0, 3), callback=_number,
              help="Sigma of the log-normal ratio of true execution times to the"
              " trace's.")  # fmt: skip
@click.option("--canceled", type=click.FloatRange(0, 1), callback=_number,
              help="For ablation: share of the plans that robots cancel half way through a"
              " segment.")  # fmt: skip
@click.option("--durations", type=click.Choice(DURATIONS),
              help="Predicted execution times: noisy, the true ones with --error; model, those of"
              " the skill sets, searches by their lower bound. Default: model for the composed"
              " workloads of timelyllm-*, else noisy.")  # fmt: skip
@click.option("--network", "network_s", type=click.FloatRange(0, 60), callback=_number,
              help="Seconds that a message takes, each way.")  # fmt: skip
@click.option("--engine", type=click.Choice(ENGINES),
              help="Engine; a real one serves in real time, with a shorter workload.")  # fmt: skip
@click.option("--duration", "seconds", cls=Option, formerly=["--seconds"],
              type=click.FloatRange(5, 86_400), callback=_number,
              help="Seconds of each workload, with a real engine and for fleet; of the picture, for"
              " pipeline-timeline.")  # fmt: skip
@click.option("--rates", metavar="0.5,1,2", callback=_numbers(0, MOST_RATE, "0.5,1,2"),
              help="Conversations a second, for slice-*, mixed, pipeline-* and"
              " pice-load; tasks a second for pice-plans; requests a second, not all at once, for"
              " annealing-order.")  # fmt: skip
@click.option("--ratios", metavar="0.1,0.7", callback=_numbers(0, 1, "0.1,0.7"),
              help="Shares of real-time tasks among conversations, for slice-*.")  # fmt: skip
@click.option("--lengths", metavar="8-25:40-160,...", callback=_words,
              help="Tokens of answers, of real-time tasks and of others, for slice-*; one range for"
              " mixed, which has no real-time tasks.")  # fmt: skip
@click.option("--bounds", metavar="1,4", callback=_numbers(0.01, 100, "1,4"),
              help="For slice-*: ratios of the declared token limit to the tokens of the longest"
              " answer; below 1, longer answers end there.")  # fmt: skip
@click.option("--ttft", "ttft_s", type=click.FloatRange(0.001, 86_400), callback=_number,
              help="For slice-* and pipeline-online: seconds to the first token that conversations"
              " ask for; Zhou et al. 2025 and Ahn et al. 2025 name no value.")  # fmt: skip
@click.option(
    "--weights",
    metavar="1,10,100",
    callback=_numbers(0.01, 1e6, "1,10,100"),
    help="For slice-weight: worth of a real-time task over that of a conversation.",
)
@click.option("--sizes", metavar="10,20", callback=_counts(MOST_REQUESTS, "10,20"),
              help="For bursts, urgent and annealing-*: requests that begin at once; for"
              " pice-parallel people at once, for pice-queue sketches that may wait.")  # fmt: skip
@click.option("--charged", is_flag=True, default=None,
              help="For slice-*: prompts of conversations take time; in Zhou et al. 2025 they"
              " do not.")  # fmt: skip
@click.option("--max-rows", type=click.IntRange(1, 4096),
              help="For slice-* and mixed: most rows of a step, as the parameter max_rows of a"
              " server.")  # fmt: skip
@click.option("--model", help="With a real engine: folder or hub id; else the embedded model.")
@click.option("--engine-arg", "engine_args", multiple=True, metavar="NAME=VALUE", callback=_given,
              help="An option of vLLM's own.")  # fmt: skip
@click.option("--scripted", is_flag=True, default=None,
              help="With a real engine: serve the texts of the workload, not its"
              " model's.")  # fmt: skip
@click.option("--own-pace", is_flag=True, default=None,
              help="With a real engine: keep its own step times, not the profile's.")  # fmt: skip
@click.option("--requests", metavar="1,8,64", callback=_counts(MOST_REQUESTS, "1,8,64"),
              help="How many requests are served at a time, for engine-overhead; in all, for"
              " pipeline-online.")  # fmt: skip
@click.option("--workloads", metavar="64/256/256", callback=_words,
              help="For pipeline-offline and -timeline: requests that come at once, tokens of each"
              " prompt, tokens of each answer.")  # fmt: skip
@click.option("--pipelines", metavar="A,B", callback=_words,
              help="For pipeline-*: kinds of boxes, such as rtx4070x4-llama2-13b.")  # fmt: skip
@click.option("--links", metavar="A,B", callback=_words,
              help="For pipeline-*: blocking or overlapping transfers, or both.")  # fmt: skip
@click.option("--bandwidths", metavar="100,1000", callback=_numbers(1, 1e6, "100,1000"),
              help="For pipeline-*: Mbit/s of each link; for pice-bandwidth of the link to the"
              " cloud; each is a run.")  # fmt: skip
@click.option("--models", metavar="A,B", callback=_words,
              help="For pice-throughput: models of the cloud, such as llama3-70b.")  # fmt: skip
@click.option("--kv", metavar="A,B", callback=_words,
              help="For pipeline-offline: limited by the memory of the boxes, or"
              " unlimited.")  # fmt: skip
@click.option("--budgets", metavar="256,2048", callback=_counts(MOST_BUDGET, "256,2048"),
              help="For pipeline-*: most tokens of a step; rules of micro-batches with"
              " budgets of their own have the first one only.")  # fmt: skip
@click.option("--tpot", "tpot_s", type=click.FloatRange(0.001, 3600), callback=_number,
              help="For pipeline-online: mean seconds of each token after the first that requests"
              " ask for.")  # fmt: skip
@click.option("--tokens", type=click.IntRange(2, 4096), help="Tokens of each answer, for engine-*.")
@click.option("--repeats", type=click.IntRange(1, 1000), help="Measurements of each, for engine-*.")
@click.option("--explain", is_flag=True, default=None,
              help="Timelines say why requests waited: in the report, the JSON file, and"
                   " `timely-llm trace explain`.")  # fmt: skip
@click.option("--jobs", type=click.IntRange(1, 256), help="Processes that work at once.")
@click.option("--json", "json_file", type=OutputFile(), help="Write the run to this file.")
@click.option("--html", "html_file", type=OutputFile(HTML), help="Write a report to this file.")
def experiment(name: str, json_file: Path | None, html_file: Path | None, **options: Any) -> None:
    """Run the experiment NAME and print its tables beside the paper's.

    A policy may carry variants and options: timely:drops, fcfs:harness, timely:rows=6,
    deadline:urgent=0. An option that is not given has the experiment's own default.
    """
    if html_file is not None:
        need("a report", "reports")
    chosen = find(name)
    wanted = chosen.options(**{key: value for key, value in options.items() if value is not None})
    with progress.bar(name, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()) as update:
        run = chosen.run(wanted, update)
    run = run.model_copy(update={"command": shlex.join(["timely-llm", *sys.argv[1:]])})
    from timely_llm.report.console import console, show

    page = console()
    show(run, page)
    if json_file is not None:
        write_run(run, json_file)
        page.print(Text(f"Wrote {json_file}"))
    if html_file is not None:
        from timely_llm.report.load import LoadedRun
        from timely_llm.report.page import write_page

        write_page([LoadedRun.of(run, datetime.now(UTC))], html_file)
        page.print(Text(f"Wrote {html_file}"))
