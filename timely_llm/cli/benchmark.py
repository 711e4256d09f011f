"""`timely-llm benchmark`: what the package claims about its own speed, measured here and now."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, TimeRemainingColumn

from timely_llm.cli import progress
from timely_llm.cli.help import Group
from timely_llm.cli.options import (
    MODEL,
    POLICY_NAMES,
    SEED,
    Option,
    OutputFile,
    OwnOr,
    need_ros,
)
from timely_llm.core.errors import ConfigurationError, TimelyError
from timely_llm.core.output_file import write_json
from timely_llm.core.requirements import EXECUTORS, executors, need
from timely_llm.core.text import count_of
from timely_llm.dispatch.assign.registry import DISPATCHERS, make_dispatcher
from timely_llm.dispatch.contract import MOST_DUE
from timely_llm.engines.contract import Engine
from timely_llm.engines.registry import EXTRAS
from timely_llm.policies.micro_batches.policy import Mode
from timely_llm.policies.registry import DEFAULT_POLICY, POLICIES
from timely_llm.report.fitted_table import FittedTable

Rows = list[dict[str, Any]]
JSON = click.option("--json", "json_file", type=OutputFile(), help="Write the rows to this file.")
_POOLS = ("plans", "both", "streams")
"""Those of `timely_llm.benchmarks.scheduler`, which is imported when it runs."""


@click.group(cls=Group)
def benchmark() -> None:
    """Measure the package itself, and print rows of numbers."""


@benchmark.command()
@MODEL
@click.option("--batch", "batches", type=click.IntRange(1, 512), multiple=True, default=(1, 8, 32),
              help="Sequences in a step; may be given several times.")  # fmt: skip
@click.option("--threads", type=click.IntRange(1, 256), default=1, help="CPU threads of the model.")
@click.option("--prompt", type=click.IntRange(1, 1900), default=128, help="Tokens of each prompt.")
@click.option(
    "--pinned",
    type=click.IntRange(0, 1899),
    default=0,
    help="Tokens of the beginning that all prompts share.",
)
@JSON
def engine(
    model: str, batches: tuple[int, ...], threads: int, prompt: int, pinned: int,
    json_file: Path | None,
) -> None:  # fmt: skip
    """Compare a decode step of the embedded engine with generate's static batch of its model."""
    if pinned >= prompt:
        raise click.BadParameter(f"must be below --prompt, {prompt}", param_hint="--pinned")
    need("the benchmark engine", "server")
    from timely_llm.benchmarks.engine import rows
    from timely_llm.resources import EMBEDDED_MODEL, resource

    folder = model or resource(EMBEDDED_MODEL)

    def work(progress: Callable[[float, float], None]) -> Rows:
        return rows(folder, batches, threads=threads, prompt_tokens=prompt, pinned_tokens=pinned)

    show("engine", work, json_file)


@benchmark.command()
@click.option("--engine", "name", type=click.Choice(["transformers", "vllm"]), default="vllm",
              help="Engine to compare with itself.")  # fmt: skip
@click.option("--engine-arg", "engine_args", metavar="NAME=VALUE", multiple=True,
              help="Option of vLLM's own, for one of the two engines.")  # fmt: skip
@click.option("--engine-process", is_flag=True, help="Run one of them in a process of its own.")
@MODEL
@click.option("--batch", "batches", type=click.IntRange(1, 64), multiple=True, default=(1, 8),
              help="Sequences in a step; may be given several times.")  # fmt: skip
@click.option(
    "--groups",
    type=click.IntRange(1, 10_000),
    default=16,
    help="How many batches of tasks are run.",
)
@JSON
def variants(
    name: str, engine_args: tuple[str, ...], engine_process: bool, model: str,
    batches: tuple[int, ...], groups: int, json_file: Path | None,
) -> None:  # fmt: skip
    """Compare an engine with itself under further options, on the same tasks of a drone."""
    from timely_llm.benchmarks.variants import rows
    from timely_llm.engines.registry import make_engine, parse_engine_args
    from timely_llm.resources import EMBEDDED_MODEL, resource

    make = partial(make_engine, name, model=model or resource(EMBEDDED_MODEL),
                   kv_tokens=32_768)  # fmt: skip
    options: dict[str, Any] = {"engine_args": parse_engine_args(engine_args)}
    engines = {name: make, "with the options": partial(make, process=engine_process, **options)}
    show("variants", lambda progress: rows(engines, batches, groups), json_file)


@benchmark.command()
@MODEL
@click.option("--engine-arg", "engine_args", metavar="NAME=VALUE", multiple=True,
              help="Option of vLLM's own, or slow_link_for_tests=BYTES_PER_S.")  # fmt: skip
@click.option("--stages", "number", type=click.IntRange(2, 16), default=2, help="Pipeline stages.")
@click.option("--micro-batches", type=click.IntRange(0, 256), default=0,
              help="Most steps in flight; 0: as many as stages.")  # fmt: skip
@click.option("--micro-batching", "modes", type=click.Choice([mode.value for mode in Mode]),
              multiple=True, metavar="RULE", default=("off", "paper", "cycle"), show_default=True,
              help=f"Rule of micro-batches, one of {', '.join(Mode)}; may be given several"
              " times.")  # fmt: skip
@click.option("--requests", type=click.IntRange(2, 512), default=32, help="How many, at once.")
@click.option("--prompt", type=click.IntRange(1, 1000), default=64, help="Tokens of each prompt.")
@click.option("--answer", type=click.IntRange(2, 1000), default=64, help="Tokens of each answer.")
@click.option("--policy", type=OwnOr(list(POLICIES)), metavar="POLICY", default="fcfs",
              help=f"Policy that plans the cycles. {POLICY_NAMES}")  # fmt: skip
@click.option("--repetitions", type=click.IntRange(2, 100), default=5, help="Runs of each rule.")
@click.option("--stock", is_flag=True,
              help="Measure stock vLLM with its own scheduler in place of the rules.")  # fmt: skip
@JSON
def stages(
    model: str, engine_args: tuple[str, ...], number: int, micro_batches: int,
    modes: tuple[str, ...], requests: int, prompt: int, answer: int, policy: str,
    repetitions: int, stock: bool, json_file: Path | None,
) -> None:  # fmt: skip
    """Measure how long the stages of the engine vllm are idle, for each rule of micro-batches.

    Means, and beside them (_ci) half the width of the 95 % confidence interval over the runs.
    seconds_ratio and idle_more compare with the first rule, run by run.
    """
    from timely_llm.benchmarks.stages import AlikeRequests, rows, stock_rows
    from timely_llm.engines.registry import make_engine, parse_engine_args
    from timely_llm.engines.sequences import EngineLimits
    from timely_llm.engines.tokenizer import HubTokenizer
    from timely_llm.experiments.realtime.run import StockSpec
    from timely_llm.experiments.results.metrics import summary
    from timely_llm.resources import EMBEDDED_MODEL, resource

    asked = AlikeRequests(requests, prompt, answer)
    folder = model or resource(EMBEDDED_MODEL)
    options = {"pipeline_parallel_size": number, **parse_engine_args(engine_args)}
    rules, vocabulary = [Mode(mode) for mode in modes], len(HubTokenizer(folder))
    made: Engine
    if stock:
        made = stock_engine = StockSpec("vllm-fcfs", "fcfs", EngineLimits()).engine(folder, options)
        forget = stock_engine.forget_prefixes
        measure = partial(stock_rows, made, vocabulary, asked, forget=forget)
    else:
        made = make_engine("vllm", model=folder, engine_args=options, micro_batches=micro_batches)
        measure = partial(rows, made, vocabulary, rules, asked, policy)

    def work(progress: Callable[[float, float], None]) -> Rows:
        try:
            return summary(measure(repetitions, progress), ("micro_batching",))
        finally:
            made.close()

    show("stages", work, json_file)


@benchmark.command()
@click.option("--policy", "policies", type=OwnOr(list(POLICIES)), metavar="POLICY",
              multiple=True, default=tuple(POLICIES), show_default="all",
              help=f"Policy to measure; may be given several times. {POLICY_NAMES}")  # fmt: skip
@click.option("--generations", type=click.IntRange(1, 10_000), multiple=True,
              default=(1, 8, 64, 256),
              help="Requests in the pool; may be given several times.")  # fmt: skip
@click.option("--pool", "pools", type=click.Choice(_POOLS), multiple=True, default=_POOLS,
              show_default="all",
              help="What the requests are: plans, both (half of them conversations), or streams"
              " (conversations); may be given several times.")  # fmt: skip
@JSON
def scheduler(
    policies: tuple[str, ...], generations: tuple[int, ...], pools: tuple[str, ...],
    json_file: Path | None,
) -> None:  # fmt: skip
    """Measure what a policy's decision adds to a step, without the forward pass."""
    from timely_llm.benchmarks.scheduler import rows

    show("scheduler", lambda progress: rows(policies, generations, pools, progress=progress),
         json_file)  # fmt: skip


@benchmark.command()
@click.option("--requests", type=click.IntRange(2, 4096), default=64,
              help="Requests of a round, half of them plans.")  # fmt: skip
@click.option("--rounds", type=click.IntRange(2, 10_000), default=30, help="Measured rounds.")
@JSON
def cloud(requests: int, rounds: int, json_file: Path | None) -> None:
    """Measure what a cloud that is set costs the requests that do not ask it.

    Means, and beside them (_ci) half the width of the 95 % confidence interval over the rounds.
    """
    from timely_llm.benchmarks.cloud import rows
    from timely_llm.experiments.results.metrics import summary

    def work(progress: Callable[[float, float], None]) -> Rows:
        return summary(rows(requests, rounds, progress), ("cloud",))

    show("cloud", work, json_file)


@benchmark.command()
@click.option("--dispatchers", metavar="A,B", default=",".join(DISPATCHERS), show_default="all",
              help="Rules to measure, such as most-worth,two-choices:seed=3, or my_module:MyRule of"
              " your own.")  # fmt: skip
@click.option("--due", type=click.IntRange(1, MOST_DUE), default=16, show_default=True,
              help="Deliverables that each server has to make.")  # fmt: skip
@click.option(
    "--front",
    is_flag=True,
    help="Measure the calls of a dispatcher with open requests, not an assignment alone.",
)
@JSON
def dispatch(dispatchers: str, due: int, front: bool, json_file: Path | None) -> None:
    """Measure what the assignment of requests to servers costs, for each rule."""
    from timely_llm.benchmarks.dispatch import front_rows, rows

    names = [name.strip() for name in dispatchers.split(",") if name.strip()]
    try:
        for name in names:
            make_dispatcher(name)
    except ConfigurationError as error:
        raise click.BadParameter(str(error), param_hint="--dispatchers") from error
    measure = front_rows if front else rows
    show("dispatch", lambda progress: measure(names, progress=progress, due=due), json_file)


@benchmark.command()
@JSON
def segmentation(json_file: Path | None) -> None:
    """Measure what the search for segments' boundaries costs a token."""
    from timely_llm.benchmarks.segmentation import rows

    show("segmentation", lambda progress: rows(progress=progress), json_file)


@benchmark.command()
@click.option(
    "--requests", type=click.IntRange(1, 100_000), default=300, help="How many plans are asked for."
)
@click.option("--executor", "executors", type=click.Choice(EXECUTORS), multiple=True,
              default=executors, show_default="all that work here",
              help="The server's executor, or the dispatcher's.")  # fmt: skip
@click.option("--servers", type=click.IntRange(0, 16), default=0,
              help="Servers behind a dispatcher; 0: one server without a dispatcher.")  # fmt: skip
@click.option("--robots", type=click.IntRange(0, 512), default=0,
              help="Simulated robots that ask meanwhile.")  # fmt: skip
@click.option("--realtime-priority", type=click.IntRange(0, 99), default=0,
              help="Real-time priority of the dispatcher, and one lower of the servers and of the"
              " robots that are measured; 0: none.")  # fmt: skip
@JSON
def delivery(
    requests: int, executors: tuple[str, ...], servers: int, robots: int, realtime_priority: int,
    json_file: Path | None,
) -> None:  # fmt: skip
    """Measure the time from a matched boundary to a robot's callback in another process."""
    if realtime_priority and not servers:
        raise click.UsageError("--realtime-priority is that of a dispatcher: it needs --servers")
    need_ros()
    from timely_llm.benchmarks.delivery import rows

    def work(progress: Callable[[float, float], None]) -> Rows:
        made = (
            rows(requests, one, progress, servers, robots, realtime_priority) for one in executors
        )
        return [row for rows_of_one in made for row in rows_of_one]

    show("delivery", work, json_file)


@benchmark.command()
@click.option("--rate", "rates", type=click.FloatRange(1, 1e6), multiple=True, default=(2000,),
              help="Messages a second; may be given several times.")  # fmt: skip
@click.option("--duration", "seconds", cls=Option, formerly=["--seconds"],
              type=click.FloatRange(0.1, 3600), default=10.0,
              help="How many seconds to record at each rate.")  # fmt: skip
@JSON
def record(rates: tuple[float, ...], seconds: float, json_file: Path | None) -> None:
    """Record another process's messages; count the lost ones and measure the cost."""
    need_ros()
    need("the benchmark record", "bags")
    from timely_llm.benchmarks.record import rows

    show("record", lambda progress: rows(rates, seconds, progress), json_file)


@benchmark.command()
@click.option("--plans", "number", type=click.IntRange(1, 256), default=64,
              help="Plans in service.")  # fmt: skip
@click.option("--turns", type=click.IntRange(10, 1_000_000), default=2000, help="Measured turns.")
@JSON
def journal(number: int, turns: int, json_file: Path | None) -> None:
    """Measure what a recovery journal costs a turn of the loop, beside SQLite."""
    from timely_llm.benchmarks.journal import rows

    show("journal", partial(rows, number, turns), json_file)


@benchmark.command()
@click.option("--attack", "attacks", multiple=True, help="Name of an attack; all by default.")
@click.option("--engine", "name", type=click.Choice(["transformers", "simulated", "vllm"]),
              default="transformers", help="The server's engine.")  # fmt: skip
@click.option("--executor", "executors", type=click.Choice(EXECUTORS), multiple=True,
              default=executors, show_default="all that work here",
              help="The server's executor.")  # fmt: skip
@click.option(
    "--rounds", type=click.IntRange(1, 1000), default=3, help="How often each attack is made."
)
@JSON
def attack(
    attacks: tuple[str, ...], name: str, executors: tuple[str, ...], rounds: int,
    json_file: Path | None,
) -> None:  # fmt: skip
    """Attack a real server with harmful inputs; measure its answers and the cost to plans."""
    need_ros()
    need(f"the engine {name}", *EXTRAS[name])
    from timely_llm.benchmarks.attack import ATTACKS, rows

    known = [made.name for made in ATTACKS]
    for wrong in (attack for attack in attacks if attack not in known):
        raise click.BadParameter(f"{wrong!r} is none of: {'; '.join(known)}", param_hint="--attack")

    def work(progress: Callable[[float, float], None]) -> Rows:
        return [
            row for executor in executors for row in rows(attacks, name, executor, rounds, progress)
        ]

    show("attack", work, json_file)


@benchmark.command()
@click.option("--robots", type=click.IntRange(1, 512), default=64, help="Simulated robots.")
@click.option("--duration", type=click.FloatRange(6, 600_000), default=600.0,
              help="Seconds in which the robots ask.")  # fmt: skip
@click.option("--minutes", type=click.FloatRange(0.1, 10_000), hidden=True)
@click.option("--policy", type=OwnOr(list(POLICIES)), metavar="POLICY",
              default=DEFAULT_POLICY,
              help=f"Policy of the server. {POLICY_NAMES}")  # fmt: skip
@click.option("--seed", type=SEED, default=0, help="Seed of everything random in the fleet.")
@click.option(
    "--virtual",
    is_flag=True,
    help="In virtual time: the serving loop with a simulated engine, robots and people.",
)
@JSON
def soak(
    robots: int, duration: float, minutes: float | None, policy: str, seed: int, virtual: bool,
    json_file: Path | None,
) -> None:  # fmt: skip
    """Run a server for long; look for starved requests, growing memory and lost messages.

    The last line is the verdict: whether memory, threads and handles are flat, and all requests
    ended. The exit status is 1 if not.
    """
    from timely_llm.benchmarks import virtual_soak
    from timely_llm.benchmarks.soak import Soak, faults, rows

    if not virtual:
        need_ros()
        need("the benchmark soak", "server")
    run = virtual_soak.rows if virtual else rows
    made: Rows = []

    def work(progress: Callable[[float, float], None]) -> Rows:
        made.extend(run(Soak(robots, minutes or duration / 60, policy, seed), progress))
        return made

    show("soak", work, json_file)
    found = faults(made[0])
    for fault in found:
        click.echo(fault, err=True)
    if found:
        raise TimelyError(f"{count_of(len(found), 'fault')}: the lines above say which")
    click.echo("passed: memory, threads and handles are flat, and all requests ended")


@benchmark.command()
@click.option("--kills", "count", type=click.IntRange(0, 10_000), default=100,
              help="How often a server is killed, stopped or drained.")  # fmt: skip
@click.option("--dispatcher-kills", type=click.IntRange(0, 10_000), show_default="20",
              help="The same for the dispatcher.")  # fmt: skip
@click.option("--only-kills", is_flag=True, help="Only kill: nothing is stopped or drained.")
@click.option("--robots", type=click.IntRange(2, 512), default=24, help="Simulated robots.")
@click.option("--people", type=click.IntRange(1, 512), default=8, help="Simulated people.")
@click.option("--hedge", is_flag=True, help="The dispatcher asks two servers for urgent plans.")
@click.option(
    "--journal",
    is_flag=True,
    help="One server with a recovery journal, killed and started again; no dispatcher.",
)
@click.option("--seed", type=SEED, default=0, help="Seed of everything random.")
@click.option("--logs", type=click.Path(file_okay=False, path_type=Path),
              help="Keep the logs of all processes in this new folder.")  # fmt: skip
@JSON
def kills(
    count: int, dispatcher_kills: int | None, only_kills: bool, robots: int, people: int,
    hedge: bool, journal: bool, seed: int, logs: Path | None, json_file: Path | None,
) -> None:  # fmt: skip
    """Kill three servers and their dispatcher at random; each request ends, nothing runs twice.

    With --journal there is one server, which goes on with its plans when it is started again.

    The exit status is 1 if something happened that must not. What came late only because processes
    waited for a processor is printed, and is no fault.
    """
    need_ros()
    from timely_llm.benchmarks.kills.run import KillsOutcome, run
    from timely_llm.benchmarks.kills.schedule import Kills

    if journal and (hedge or dispatcher_kills is not None):
        problem = "with --journal there is no dispatcher: leave --hedge and --dispatcher-kills out"
        raise click.UsageError(problem)
    if dispatcher_kills is None:
        dispatcher_kills = 20
    asked = Kills(count, dispatcher_kills, robots, people, seed, hedge, journal, only_kills)
    found: list[KillsOutcome] = []

    def work(progress: Callable[[float, float], None]) -> Rows:
        with tempfile.TemporaryDirectory() as name:
            folder = logs or Path(name)
            folder.mkdir(parents=True, exist_ok=True)
            if any(folder.iterdir()):
                raise click.BadParameter(f"{folder} is not empty", param_hint="--logs")
            found.append(run(asked, folder, progress))
        return list(found[0].rows)

    show("kills", work, json_file)
    for late in found[0].late:
        click.echo(f"late on a busy machine: {late.check}: {late.evidence}", err=True)
    for fault in found[0].faults:
        click.echo(f"{fault.check}: {fault.evidence}", err=True)
    if found[0].faults:
        raise TimelyError(f"{count_of(len(found[0].faults), 'fault')}: the lines above say which")


def show(
    name: str, work: Callable[[Callable[[float, float], None]], Rows], json_file: Path | None
) -> None:
    """Do the work with a progress bar, print its rows, and write them if asked."""
    console = Console()
    with progress.bar(name, BarColumn(), TimeRemainingColumn()) as update:
        rows = work(update)
    console.print(table(rows))
    if json_file is not None:
        command = ["timely-llm", *sys.argv[1:]]
        document = {"benchmark": name, "command": " ".join(command), "rows": rows}
        write_json(json_file, document)
        console.print(f"written to {json_file}")


def table(rows: Sequence[dict[str, Any]]) -> FittedTable:
    """Return rows as a table; a single row reads better as two columns."""
    if len(rows) == 1:
        shown = FittedTable("", "", show_header=False)
        for name, value in rows[0].items():
            shown.add_row(name, _text(value))
        return shown
    shown = FittedTable(*rows[0])
    for row in rows:
        shown.add_row(*(_text(value) for value in row.values()))
    return shown


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
