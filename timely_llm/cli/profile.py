"""`timely-llm profile`: how long skills take (paper 001 §4.3, §6), or an engine's steps."""

from __future__ import annotations

import json
from pathlib import Path

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from timely_llm.cli.options import EXISTING_FILE, FILE, check_output
from timely_llm.core.errors import ConfigurationError
from timely_llm.core.output_file import JSON, PICTURE, YAML, write_text
from timely_llm.engines.engine_args import parse_engine_args
from timely_llm.profiling.bags import is_bag, read_bag
from timely_llm.profiling.fitting import MIN_SAMPLES, Fit, fit_skill
from timely_llm.profiling.measurements import read_csv
from timely_llm.skills.skill_set import SkillSet, load_skill_set

EXISTING = click.Path(exists=True, path_type=Path)


@click.command()
@click.argument("file", type=EXISTING, required=False)
@click.option("--skill-set", "skill_file", type=EXISTING_FILE, help="Skill set.")
@click.option("--engine", is_flag=False, flag_value="transformers",
              type=click.Choice(["transformers", "vllm"]), metavar="[transformers|vllm]",
              help="Measure the steps of this engine instead.")  # fmt: skip
@click.option("--model", help="With --engine: folder or hub id; the embedded model if not given.")
@click.option("--dtype", type=click.Choice(["float32", "bfloat16", "float16"]),
              help="With --engine: numbers of weights and KV; float32 if not given.")  # fmt: skip
@click.option("--threads", type=click.IntRange(1, 256),
              help="With --engine transformers: CPU threads; 1.")  # fmt: skip
@click.option("--engine-arg", "engine_args", multiple=True, metavar="NAME=VALUE",
              help="With --engine vllm: option of vLLM's own, several times.")  # fmt: skip
@click.option("--output", type=FILE, help="Write the skill set, or the profile, here.")
@click.option("--plot", type=FILE, help="Write a picture of what was measured and fitted here.")
@click.option("--json", "json_file", type=FILE, help="Write the fits as JSON here.")
def profile(
    file: Path | None, skill_file: Path | None, engine: str | None, model: str | None,
    dtype: str | None, threads: int | None, engine_args: tuple[str, ...], output: Path | None,
    plot: Path | None, json_file: Path | None,
) -> None:  # fmt: skip
    """Fit how long skills take to the executions in FILE, or how long an engine's steps take.

    FILE is a rosbag2 recording of a plan server's topics segments and execution_reports, or a CSV
    file. The first line of a CSV file names its columns: skill; seconds; and arguments, written as
    in a plan (100, or 'red cup', 3), or arg1, arg2 and so on.

    Skills that depend on the scene get quantiles; others a polynomial of their first number, of the
    lowest degree that is as good as any. Skills with fewer than 3 executions stay as they are.

    With --engine, and without FILE, steps of a language model are measured on this machine: by the
    rows that decode, the tokens of prompts, and the tokens that are attended to; and prompts with
    and without a pinned beginning. The profile that fits the steps goes to --output. It can be
    named wherever a profile is: measured:FILE.
    """
    check_output(output, "--output", YAML)
    check_output(plot, "--plot", PICTURE)
    check_output(json_file, "--json")
    if engine is not None:
        if file is not None or skill_file is not None:
            raise click.UsageError("--engine measures steps: it takes no FILE and no --skill-set")
        if output is None:
            raise click.UsageError("--engine needs --output, the file that the profile goes to")
        if engine == "vllm" and threads is not None:
            raise click.UsageError("--threads is for --engine transformers only")
        # torch takes seconds to import: not before somebody needs it.
        from timely_llm.cli.profile_engine import Measured, profile_engine

        measured = Measured(
            engine, model or "", dtype or "float32", threads or 1, parse_engine_args(engine_args)
        )
        profile_engine(measured, output, plot, json_file)
        return
    for value, option in (
        (model, "--model"), (dtype, "--dtype"), (threads, "--threads"),
        (engine_args or None, "--engine-arg"),
    ):  # fmt: skip
        if value is not None:
            raise click.UsageError(f"{option} is for --engine only")
    if file is None:
        raise click.UsageError("give a FILE with executions and --skill-set, or --engine")
    if skill_file is None:
        raise click.UsageError("Missing option '--skill-set'")
    _profile_skills(file, skill_file, output, plot, json_file)


def _profile_skills(
    file: Path, skill_file: Path, output: Path | None, plot: Path | None, json_file: Path | None
) -> None:
    """Fit a skill set's durations, write the files and print the fits.

    Raises:
        TimelyError: a file cannot be read, or nothing can be fitted.
    """
    skill_set = load_skill_set(skill_file)
    recording = (read_bag if is_bag(file) else read_csv)(file, skill_set)
    groups = {name: [m for m in recording.measurements if m.skill == name]
              for name in skill_set.skills}  # fmt: skip
    fits = [
        fit_skill(name, skill_set.skills[name], found)
        for name, found in groups.items()
        if len(found) >= MIN_SAMPLES
    ]
    if not fits:
        raise ConfigurationError(
            f"{file} has no skill with {MIN_SAMPLES} executions or more: nothing can be fitted"
        )
    written = _write(fits, skill_set, file, skill_file, output, plot, json_file)
    console = Console()
    console.print(_table(fits))
    few = [f"{name} ({len(found)})" for name, found in groups.items() if len(found) < MIN_SAMPLES]
    if few:
        console.print(
            Text(f"Left as they are, fewer than {MIN_SAMPLES} executions: {', '.join(few)}")
        )
    for reason, count in recording.left_out.items():
        console.print(Text(f"Not used: {count} {reason}"))
    for path in written:
        console.print(Text(f"Wrote {path}"))


def _write(
    fits: list[Fit], skill_set: SkillSet, file: Path, skill_file: Path, output: Path | None,
    plot: Path | None, json_file: Path | None,
) -> list[Path]:  # fmt: skip
    """Write the files that were asked for and return their paths."""
    if output is not None:
        try:
            from timely_llm.profiling.skill_file import with_durations
        except ImportError as error:
            raise ConfigurationError(
                "--output needs the Python package ruamel.yaml: pip install ruamel.yaml"
            ) from error
        text = skill_file.read_text(encoding="utf-8")
        durations = {fit.name: fit.after for fit in fits}
        write_text(output, YAML, with_durations(text, durations, str(skill_file)))
    if plot is not None:
        # matplotlib takes a second to import: not before somebody needs it.
        from timely_llm.profiling.picture import draw_profile

        draw_profile(fits, skill_set.skills, plot, f"{skill_set.name}: durations from {file.name}")
    if json_file is not None:
        rows = [_row(fit) for fit in fits]
        write_text(json_file, JSON, json.dumps(rows, indent=2) + "\n")
    return [path for path in (output, plot, json_file) if path is not None]


def _table(fits: list[Fit]) -> Table:
    table = Table(
        box=box.SIMPLE,
        caption="error: mean |true - predicted|; after: of executions that the fit did not see;"
        " skills that depend on the scene at their median",
        caption_justify="left",
    )
    table.add_column("skill")
    for name in ("executions", "left out"):
        table.add_column(name, justify="right")
    table.add_column("seconds", overflow="fold")
    for name in ("error before (s)", "after (s)"):
        table.add_column(name, justify="right")
    for fit in fits:
        table.add_row(
            fit.name, str(len(fit.seconds)), str(int(fit.outliers.sum())), fit.model,
            f"{fit.error_before_s:.3g}", f"{fit.error_after_s:.3g}",
        )  # fmt: skip
    return table


def _row(fit: Fit) -> dict[str, object]:
    return {
        "skill": fit.name,
        "executions": len(fit.seconds),
        "left_out": int(fit.outliers.sum()),
        "before": fit.before.model_dump(exclude_none=True),
        "after": fit.after.model_dump(exclude_none=True),
        "error_before_s": fit.error_before_s,
        "error_after_s": fit.error_after_s,
    }
