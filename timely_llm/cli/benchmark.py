"""`timely-llm benchmark`: what the package claims about its own speed, measured here and now."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from timely_llm.cli.options import FILE, SEED, check_output, need_ros
from timely_llm.core import output_file
from timely_llm.policies.registry import DEFAULT_POLICY, POLICIES

Rows = list[dict[str, Any]]
JSON = click.option("--json", "json_file", type=FILE, help="Write the rows to this file.")


@click.group()
def benchmark() -> None:
    """Measure the package itself; rows of plain numbers."""


@benchmark.command()
@click.option("--model", default="", show_default=False, help="Folder or hub id; the embedded one.")
@click.option("--batch", "batches", type=click.IntRange(1, 512), multiple=True, default=(1, 8, 32))
@click.option("--threads", type=click.IntRange(1, 256), default=1, help="CPU threads.")
@click.option("--prompt", type=click.IntRange(1, 1900), default=128, help="Tokens of a prompt.")
@click.option("--pinned", type=click.IntRange(0, 1899), default=0, help="Of these, shared by all.")
@JSON
def engine(
    model: str, batches: tuple[int, ...], threads: int, prompt: int, pinned: int,
    json_file: Path | None,
) -> None:  # fmt: skip
    """A decode step of the embedded engine against generate's static batch of the same model."""
    check_output(json_file, "--json")
    from timely_llm.benchmarks.engine import rows
    from timely_llm.resources import resource

    if pinned >= prompt:
        raise click.BadParameter(f"must be below --prompt, {prompt}", param_hint="--pinned")
    folder = model or resource("models/tiny_planner")

    def work(progress: Callable[[float, float], None]) -> Rows:
        return rows(folder, batches, threads=threads, prompt_tokens=prompt, pinned_tokens=pinned)

    show("engine", work, json_file)


@benchmark.command()
@click.option("--engine", "name", type=click.Choice(["transformers", "vllm"]), default="vllm")
@click.option("--engine-arg", "engine_args", metavar="NAME=VALUE", multiple=True,
              help="Option of vLLM's own, for one of the two engines.")  # fmt: skip
@click.option("--engine-process", is_flag=True, help="Run one of them in a process of its own.")
@click.option("--model", default="", show_default=False, help="Folder or hub id; the embedded one.")
@click.option("--batch", "batches", type=click.IntRange(1, 64), multiple=True, default=(1, 8))
@click.option("--groups", type=click.IntRange(1, 10_000), default=16, help="Batches of tasks.")
@JSON
def variants(
    name: str, engine_args: tuple[str, ...], engine_process: bool, model: str,
    batches: tuple[int, ...], groups: int, json_file: Path | None,
) -> None:  # fmt: skip
    """An engine beside itself with more options: the same tasks of a drone, step by step."""
    check_output(json_file, "--json")
    from timely_llm.benchmarks.variants import rows
    from timely_llm.engines.engine_args import parse_engine_args
    from timely_llm.engines.registry import make_engine
    from timely_llm.resources import resource

    make = partial(make_engine, name, model=model or resource("models/tiny_planner"),
                   kv_tokens=32_768)  # fmt: skip
    options: dict[str, Any] = {"engine_args": parse_engine_args(engine_args)}
    engines = {name: make, "with the options": partial(make, process=engine_process, **options)}
    show("variants", lambda progress: rows(engines, batches, groups), json_file)


@benchmark.command()
@click.option("--policy", "policies", type=click.Choice(list(POLICIES)), multiple=True,
              default=tuple(POLICIES), show_default="all")  # fmt: skip
@click.option("--generations", type=click.IntRange(1, 10_000), multiple=True,
              default=(1, 8, 64, 256))  # fmt: skip
@JSON
def scheduler(
    policies: tuple[str, ...], generations: tuple[int, ...], json_file: Path | None
) -> None:
    """What a policy's decision costs a step, without the forward pass."""
    check_output(json_file, "--json")
    from timely_llm.benchmarks.scheduler import rows

    show("scheduler", lambda progress: rows(policies, generations, progress=progress), json_file)


@benchmark.command()
@JSON
def segmentation(json_file: Path | None) -> None:
    """What looking for the ends of segments costs a token."""
    check_output(json_file, "--json")
    from timely_llm.benchmarks.segmentation import rows

    show("segmentation", lambda progress: rows(progress=progress), json_file)


@benchmark.command()
@click.option("--requests", type=click.IntRange(1, 100_000), default=300, help="Plans.")
@click.option("--executor", "executors", type=click.Choice(["single", "events"]), multiple=True,
              default=("single", "events"), help="The server's executor.")  # fmt: skip
@JSON
def delivery(requests: int, executors: tuple[str, ...], json_file: Path | None) -> None:
    """From a matched boundary to a robot's callback in another process, over Fast DDS."""
    need_ros()
    check_output(json_file, "--json")
    from timely_llm.benchmarks.delivery import rows

    def work(progress: Callable[[float, float], None]) -> Rows:
        return [row for executor in executors for row in rows(requests, executor, progress)]

    show("delivery", work, json_file)


@benchmark.command()
@click.option("--rate", "rates", type=click.FloatRange(1, 1e6), multiple=True, default=(2000,),
              help="Messages a second.")  # fmt: skip
@click.option("--seconds", type=click.FloatRange(0.1, 3600), default=10.0, help="At each rate.")
@JSON
def record(rates: tuple[float, ...], seconds: float, json_file: Path | None) -> None:
    """A recording of another process: is a message lost, and what does it cost?"""
    need_ros()
    check_output(json_file, "--json")
    from timely_llm.benchmarks.record import rows

    show("record", lambda progress: rows(rates, seconds, progress), json_file)


@benchmark.command()
@click.option("--attack", "attacks", multiple=True, help="Name of an attack; all by default.")
@click.option("--engine", "name", type=click.Choice(["transformers", "simulated", "vllm"]),
              default="transformers", help="The server's engine.")  # fmt: skip
@click.option("--executor", "executors", type=click.Choice(["single", "events"]), multiple=True,
              default=("single", "events"), help="The server's executor.")  # fmt: skip
@click.option("--rounds", type=click.IntRange(1, 1000), default=3, help="Of each attack.")
@JSON
def attack(
    attacks: tuple[str, ...], name: str, executors: tuple[str, ...], rounds: int,
    json_file: Path | None,
) -> None:  # fmt: skip
    """A real server and inputs made to hurt it: what is answered, what does it cost a plan?"""
    need_ros()
    check_output(json_file, "--json")
    from timely_llm.benchmarks.attack import rows
    from timely_llm.benchmarks.attacks import ATTACKS

    known = [made.name for made in ATTACKS]
    for wrong in (attack for attack in attacks if attack not in known):
        raise click.BadParameter(f"{wrong!r} is none of: {'; '.join(known)}", param_hint="--attack")

    def work(progress: Callable[[float, float], None]) -> Rows:
        return [
            row for executor in executors for row in rows(attacks, name, executor, rounds, progress)
        ]

    show("attack", work, json_file)


@benchmark.command()
@click.option("--robots", type=click.IntRange(1, 512), default=64)
@click.option("--minutes", type=click.FloatRange(0.1, 10_000), default=10.0)
@click.option("--policy", type=click.Choice(list(POLICIES)), default=DEFAULT_POLICY)
@click.option("--seed", type=SEED, default=0, help="Seed of everything random in the fleet.")
@JSON
def soak(robots: int, minutes: float, policy: str, seed: int, json_file: Path | None) -> None:
    """A long run: does anybody starve, does memory grow, is a message lost?"""
    need_ros()
    check_output(json_file, "--json")
    from timely_llm.benchmarks.soak import Soak, rows

    show("soak", lambda progress: rows(Soak(robots, minutes, policy, seed), progress), json_file)


def show(
    name: str, work: Callable[[Callable[[float, float], None]], Rows], json_file: Path | None
) -> None:
    """Do the work with a progress bar, print its rows, and write them if asked."""
    console = Console()
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=None)
        rows = work(lambda done, total: bar.update(task, completed=done, total=total))
    console.print(table(rows))
    if json_file is not None:
        command = ["timely-llm", *sys.argv[1:]]
        document = {"benchmark": name, "command": " ".join(command), "rows": rows}
        output_file.write_text(json_file, output_file.JSON, json.dumps(document, indent=2) + "\n")
        console.print(f"written to {json_file}")


def table(rows: Sequence[dict[str, Any]]) -> Table:
    """Return rows as a table; a single row reads better as two columns."""
    if len(rows) == 1:
        shown = Table("", "", show_header=False)
        for name, value in rows[0].items():
            shown.add_row(name, _text(value))
        return shown
    shown = Table(*rows[0])
    for row in rows:
        shown.add_row(*(_text(value) for value in row.values()))
    return shown


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
