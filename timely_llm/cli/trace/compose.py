"""`timely-llm trace compose`, `import`, `convert` and `info`: workloads as files."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError
from rich import box
from rich.console import Console
from rich.text import Text

from timely_llm.cli.options import EXISTING_FILE, SEED, OutputFile
from timely_llm.core.documents.problems import field_problem
from timely_llm.core.documents.read import load_document
from timely_llm.core.output_file import write_json
from timely_llm.report.fitted_table import FittedTable
from timely_llm.resources import resource
from timely_llm.skills.skill_set import SkillSet, load_skill_set
from timely_llm.traces.compose import compose as compose_trace
from timely_llm.traces.files import check_kind, read_trace, write_trace
from timely_llm.traces.imported.azure import read_azure
from timely_llm.traces.imported.lrtrace import read_lrtrace
from timely_llm.traces.lines import MAX_REQUESTS
from timely_llm.traces.model import Trace, TraceError, printable
from timely_llm.traces.recipes import Recipe, presets
from timely_llm.traces.summary import summary
from timely_llm.traces.tasks import PromptSet, TraceTasks

TRACE = click.Path(path_type=Path)
EXISTING_TRACE = click.Path(exists=True, path_type=Path)
AGENTS_WITHOUT_PRESET = 16


@click.command()
@click.argument("output", type=TRACE)
@click.option("--preset", help="Recipe to begin with: wid1, wid2, wid3, chatbot or mixed.")
@click.option("--tasks", help='Kinds of tasks that events choose from: "1-8, 10".')
@click.option("--groups", help='Kinds of tasks of each event in order: "{(1, 2), 8, 9}".')
@click.option("--events-per-s", type=float, help="Mean events a second.")
@click.option("--max-tasks", type=int, help="Most tasks of one event.")
@click.option("--agents", multiple=True, help="Robots: 24 of each kind, or drone=24.")
@click.option("--urgent-share", type=float, help="Probability that a chosen task is urgent.")
@click.option("--talks-per-s", type=float, help="Mean conversations a second.")
@click.option("--people", type=int, help="Number of people who talk.")
@click.option(
    "--duration", "duration_s", type=float, help="Seconds in which robots and people ask."
)
@click.option("--events", type=int, help="Most events of the trace.")
@click.option(
    "--seed",
    type=SEED,
    default=0,
    help="Seed of everything random: the same seed makes the same trace.",
)
@click.option(
    "--task-set", type=EXISTING_FILE, help="File of tasks of your own, instead of traces 1-11."
)
@click.option(
    "--prompts", type=EXISTING_FILE, help="File of prompts of people, instead of stories."
)
@click.option("--skill-set", "skill_files", type=EXISTING_FILE, multiple=True,
              help="File of a skill set of your own; may be given several times.")  # fmt: skip
def compose(
    output: Path, preset: str | None, agents: tuple[str, ...], task_set: Path | None,
    prompts: Path | None, skill_files: tuple[Path, ...], **values: Any,
) -> None:  # fmt: skip
    """Compose a workload of tasks, robots and people, and write it to OUTPUT.

    Events come at random times (a Poisson process). An event gives some robots a task at once; a
    busy robot gets none. Without a preset there are 16 robots of each kind.
    """
    check_kind(output)
    recipe_values = {} if preset is None else _preset(preset)
    given = {name: value for name, value in values.items() if value is not None}
    for one, other in (("tasks", "groups"), ("groups", "tasks")):
        if one in given and other not in given:
            recipe_values.pop(other, None)
    task_file = task_set or resource("config/traces/lrtrace_tasks.yaml")
    tasks = load_document(task_file, TraceTasks, "task set", TraceError)
    kinds = {task.skill_set for task in tasks.tasks.values()}
    recipe_values |= given
    if agents or preset is None:
        recipe_values["agents"] = _agents(agents, kinds, recipe_values.get("agents", {}))
    try:
        recipe = Recipe.model_validate(recipe_values)
    except ValidationError as error:
        raise click.UsageError(_problem(error)) from error
    prompt_file = prompts or resource("config/traces/story_prompts.yaml")
    loaded = [load_skill_set(file) for file in (*_shipped(kinds), *skill_files)]
    made = compose_trace(
        recipe,
        tasks,
        {skill_set.name: skill_set for skill_set in loaded},
        load_document(prompt_file, PromptSet, "prompts", TraceError),
        name=preset or output.stem,
        source=_command(output.name),
    )
    _write(made, output)


@click.command("import")
@click.argument("file", type=EXISTING_FILE)
@click.argument("output", type=TRACE)
@click.option(
    "--kind",
    type=click.Choice(["lrtrace", "azure"]),
    help="Kind of the trace; by the ending of FILE if not given.",
)
@click.option("--limit", type=click.IntRange(1, MAX_REQUESTS), default=MAX_REQUESTS,
              help="Rows of an Azure trace to take, from the first on.")  # fmt: skip
@click.option("--skill-set", "skill_sets", multiple=True, metavar="NAME|FILE",
              help="What LRTrace's robots can do: drone, arm or a file of your own; by default"
                   " derived from its jobs.")  # fmt: skip
def import_(
    file: Path, output: Path, kind: str | None, limit: int, skill_sets: tuple[str, ...]
) -> None:
    """Turn a published trace into one of this package and write it to OUTPUT.

    FILE is a JSON file of LRTrace, as published or in the compact form, or a CSV of Azure's LLM
    inference traces. Jobs of LRTrace's drones become jobs of the skill set drone, those of its arms
    jobs of the skill set arm.
    """
    check_kind(output)
    kind = kind or {".json": "lrtrace", ".csv": "azure"}.get(file.suffix)
    if kind is None:
        raise click.UsageError(f"{file} is neither .json nor .csv: say --kind lrtrace or azure")
    if kind == "azure":
        if skill_sets:
            raise click.UsageError("--skill-set is for robots: an Azure trace has none")
        _write(read_azure(file, limit), output)
        return
    made = read_lrtrace(file, [_skill_set(word) for word in skill_sets])
    _write(made, output)
    Console(soft_wrap=True).print(Text(printable(made.source)))


@click.command()
@click.argument("file", type=EXISTING_TRACE)
@click.argument("output", type=TRACE)
def convert(file: Path, output: Path) -> None:
    """Convert the trace FILE without loss to the format that OUTPUT's name says."""
    check_kind(output)
    _write(read_trace(file), output)


@click.command()
@click.argument("file", type=EXISTING_TRACE)
@click.option("--json", "json_file", type=OutputFile(), help="Write the same as JSON to this file.")
def info(file: Path, json_file: Path | None) -> None:
    """Show what is in the trace FILE: jobs, agents, bursts, span, tasks and conversations."""
    found = summary(read_trace(file))
    console = Console()
    console.print(_facts(found))
    if found["tasks"]:
        console.print(_tasks(found["tasks"]))
        console.print(_time_utilities(found["time_utilities"]))
    if found["talks"]:
        console.print(_talks(found["talks"]))
    if json_file is not None:
        write_json(json_file, found)
        console.print(Text(f"Wrote {json_file}"))


def _write(made: Trace, output: Path) -> None:
    write_trace(made, output)
    words = f"{len(made.jobs)} jobs and {len(made.conversations)} conversations"
    Console().print(Text(f"Wrote {output}: {words} of {len(made.agents)} agents"))


def _preset(name: str) -> dict[str, Any]:
    known = presets()
    if name not in known:
        raise click.BadParameter(
            f"{name!r} is not one of {', '.join(known)}", param_hint="--preset"
        )
    return known[name].model_dump(exclude_defaults=True)


def _agents(words: tuple[str, ...], kinds: set[str], before: dict[str, int]) -> dict[str, int]:
    """Return how many robots there are of each kind."""
    counts = dict(before) or dict.fromkeys(sorted(kinds), AGENTS_WITHOUT_PRESET)
    for word in words:
        kind, _, count = word.rpartition("=")
        if not count.isdecimal() or (kind and kind not in kinds):
            raise click.BadParameter(
                f"{word!r} is not like 24 or drone=24; kinds are {', '.join(sorted(kinds))}",
                param_hint="--agents",
            )
        counts |= dict.fromkeys([kind] if kind else list(counts), int(count))
    return counts


def _shipped(kinds: set[str]) -> list[Path]:
    folder = resource("config/skill_sets")
    return [file for kind in sorted(kinds) if (file := folder / f"{kind}.yaml").is_file()]


def _skill_set(word: str) -> SkillSet:
    """Return the skill set of a name, or of a file."""
    shipped = {file.stem: file for file in resource("config/skill_sets").glob("*.yaml")}
    if word not in shipped and not Path(word).is_file():
        raise click.BadParameter(
            f"{word!r} is neither a file nor one of {', '.join(sorted(shipped))}",
            param_hint="--skill-set",
        )
    return load_skill_set(shipped.get(word, Path(word)))


def _command(output: str) -> str:
    """Return the command line that composes the same trace again."""
    context = click.get_current_context()
    words = ["timely-llm", "trace", "compose", output]
    for option in context.command.params:
        value = context.params[option.name or ""]
        if isinstance(option, click.Option) and value is not None:
            for one in value if isinstance(value, tuple) else (value,):
                words += [option.opts[0], str(one)]
    return shlex.join(words)


def _problem(error: ValidationError) -> str:
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    words = field_problem(first)
    return f"{place.replace('_', '-')}: {words}" if place else words


def _facts(found: dict[str, Any]) -> FittedTable:
    table = FittedTable(box=box.SIMPLE, show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    robots = ", ".join(f"{count} {kind}" for kind, count in sorted(found["robots"].items()))
    agents = [robots] * bool(robots) + [f"{found['people']} people"] * bool(found["people"])
    bursts = f"{found['bursts']}, the largest of {found['largest_burst']} jobs"
    span = f"{found['span_s']:.1f} s, from {found['first_s']:.1f} to {found['last_s']:.1f} s"
    for name, value in (
        ("trace", found["name"]), ("source", found["source"]), ("jobs", found["jobs"]),
        ("conversations", found["conversations"]),
        ("agents", f"{found['agents']} ({', '.join(agents)})" if agents else "0"),
        ("bursts", bursts), ("span", span),
    ):  # fmt: skip
        table.add_row(name, Text(printable(str(value))))
    return table


def _tasks(rows: list[dict[str, Any]]) -> FittedTable:
    table = FittedTable(box=box.SIMPLE)
    table.add_column("task", overflow="fold", min_width=4)
    table.add_column("robot", overflow="fold", min_width=5)
    for name in ("jobs", "urgent", "takes (s)", "segments", "tokens"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("text", overflow="fold")
    for row in rows:
        text = Text(printable(row["text"]))
        seconds = "" if row["execution_s"] is None else f"{row['execution_s']:.2f}"
        table.add_row(
            Text(row["task"]), Text(row["skill_set"]), str(row["jobs"]), str(row["urgent"]),
            seconds, str(row["segments"] or ""), str(row["tokens"] or ""),
            text,
        )  # fmt: skip
    return table


def _time_utilities(rows: list[dict[str, Any]]) -> FittedTable:
    table = FittedTable("worth", "until (s)", "nothing after (s)", "jobs", box=box.SIMPLE)
    for row in rows[:20]:
        zero = "never" if row["zero_s"] is None else f"{row['zero_s']:g}"
        table.add_row(f"{row['beta']:g}", f"{row['ert_s']:g}", zero, str(row["jobs"]))
    return table


def _talks(found: dict[str, Any]) -> FittedTable:
    table = FittedTable("conversations", "least", "median", "most", box=box.SIMPLE)
    for name in ("prompt_tokens", "output_tokens", "ttft_s", "tpot_s"):
        values = (f"{found[name][key]:g}" for key in ("least", "median", "most"))
        table.add_row(name, *values)
    return table
