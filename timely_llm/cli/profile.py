"""`timely-llm profile`: how long skills take (Ling et al. 2024, §4.3, §6), or an engine's steps."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import click
from rich import box
from rich.console import Console
from rich.text import Text

from timely_llm import __version__
from timely_llm.cli.options import EXISTING_FILE, Layers, OutputFile, Pace
from timely_llm.cli.profiles.engine import Measured, profile_engine
from timely_llm.cli.profiles.recorded import show_recorded
from timely_llm.core.errors import ConfigurationError
from timely_llm.core.output_file import PICTURE, YAML, write_json, write_text
from timely_llm.core.requirements import need
from timely_llm.core.text import echoed
from timely_llm.engines.registry import ENGINES, parse_engine_args
from timely_llm.engines.simulated import DEFAULT_PROFILE
from timely_llm.profiling.fitting import MIN_SAMPLES, Fit, fit_skill
from timely_llm.profiling.measurements import is_bag, read_bag, read_csv
from timely_llm.profiling.recorded_steps import fit_recorded, read_steps
from timely_llm.report.fitted_table import FittedTable
from timely_llm.skills.skill_set import SkillSet, load_skill_set

EXISTING = click.Path(exists=True, path_type=Path)


@click.command()
@click.argument("file", type=EXISTING, required=False)
@click.option("--skill-set", "skill_file", type=EXISTING_FILE, help="File of the skill set.")
@click.option("--engine", is_flag=False, flag_value="transformers",
              type=click.Choice(["simulated", "transformers", "vllm"]),
              metavar="[simulated|transformers|vllm]",
              help="Measure the steps of this engine.")  # fmt: skip
@click.option("--event-log", type=EXISTING_FILE,
              help="Fit step times to the steps in this event log of a plan server.")  # fmt: skip
@click.option("--model", help="With --engine: folder or hub id; the embedded model if not given.")
@click.option("--dtype", type=click.Choice(["float32", "bfloat16", "float16"]),
              help="With --engine: number type of weights and KV; float32 if not"
              " given.")  # fmt: skip
@click.option("--threads", type=click.IntRange(1, 256),
              help="With --engine transformers: CPU threads; 1 if not given.")  # fmt: skip
@click.option("--engine-arg", "engine_args", multiple=True, metavar="NAME=VALUE",
              help="With --engine vllm: option of vLLM's own; may be given several"
              " times.")  # fmt: skip
@click.option("--pace", type=Pace(),
              help="With --engine simulated: the profile to measure.")  # fmt: skip
@click.option("--layers", type=Layers(), metavar="16,16",
              help="With --engine in stages: layers of each. Prints the split with which the"
              " busiest stage or link takes least.")  # fmt: skip
@click.option("--most-layers", type=Layers(), metavar="20,32",
              help="With --layers: most layers that each box has memory for.")  # fmt: skip
@click.option(
    "--output", type=OutputFile(YAML), help="Write the skill set, or the profile, to this file."
)
@click.option(
    "--plot",
    type=OutputFile(PICTURE),
    help="Write a picture of what was measured and fitted to this file.",
)
@click.option("--json", "json_file", type=OutputFile(), help="Write the fits as JSON to this file.")
def profile(
    file: Path | None, skill_file: Path | None, engine: str | None, event_log: Path | None,
    model: str | None, dtype: str | None, threads: int | None, engine_args: tuple[str, ...],
    pace: str | None, layers: tuple[int, ...] | None, most_layers: tuple[int, ...] | None,
    output: Path | None, plot: Path | None, json_file: Path | None,
) -> None:  # fmt: skip
    """Fit the durations of skills to the executions in FILE, or measure an engine's steps.

    FILE is a rosbag2 recording of a plan server's topics segments and execution_reports, or a CSV
    file. The first line of a CSV file names its columns: skill; seconds; and arguments, written as
    in a plan (100, or 'red cup', 3), or arg1, arg2 and so on.

    A skill that depends on the scene gets quantiles. Each other skill gets a polynomial of its
    first number, of the lowest degree that fits as well as any. Skills with fewer than 3 executions
    stay as they are. Comments about durations that change are kept, marked "before the fit".

    With --engine, and without FILE, the command measures steps of a language model on this machine:
    by decode rows, prompt tokens and context tokens. It also measures prompts with and without a
    pinned prefix. The fitted profile goes to --output; measured:FILE names it wherever a profile is
    named. An engine in stages gets a profile of each stage and each link, from one step at a time.

    With --event-log, the profile is fitted to the steps that a plan server recorded in its last
    life. It has only what these steps determine. The command also prints the latency predictor's
    coefficients of steps that only compute prompts or only decode (Huang et al. 2025).
    """
    if plot is not None:
        need("a picture", "reports")
    if engine is not None:
        if file is not None or skill_file is not None:
            raise click.UsageError("--engine measures steps: it takes no FILE and no --skill-set")
        if event_log is not None:
            raise click.UsageError("give --engine or --event-log, not both")
        if output is None:
            raise click.UsageError("--engine needs --output, the file that the profile goes to")
        for option, engines, chosen in (
            ("--threads", ("transformers",), threads), ("--pace", ("simulated",), pace),
            ("--model", ENGINES[1:], model), ("--dtype", ENGINES[1:], dtype),
        ):  # fmt: skip
            if chosen is not None and engine not in engines:
                raise click.UsageError(f"{option} is for --engine {' or '.join(engines)} only")
        measured = Measured(
            engine, model or "", dtype or "float32", threads or 1, parse_engine_args(engine_args),
            pace or DEFAULT_PROFILE, layers or (), most_layers or (),
        )  # fmt: skip
        profile_engine(measured, output, plot, json_file)
        return
    for option, value in (
        ("--model", model), ("--dtype", dtype), ("--threads", threads),
        ("--engine-arg", engine_args or None), ("--pace", pace), ("--layers", layers),
        ("--most-layers", most_layers),
    ):  # fmt: skip
        if value is not None:
            raise click.UsageError(f"{option} is for --engine only")
    if event_log is not None:
        if file is not None or skill_file is not None or plot is not None:
            raise click.UsageError(
                "--event-log fits step times: it takes no FILE, no --skill-set and no --plot"
            )
        source = (
            f"fitted by timely-llm profile --event-log to {echoed(event_log.name)},"
            f" {date.today().isoformat()}, timely_llm {__version__}"
        )
        name = f"{echoed(event_log.stem)}, recorded"
        show_recorded(fit_recorded(read_steps(event_log), name, source), output, json_file)
        return
    if file is None:
        raise click.UsageError(
            "give a FILE with executions and --skill-set, or --engine, or --event-log"
        )
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
    written = _write_fits(fits, skill_set, file, skill_file, output, plot, json_file)
    console = Console()
    console.print(_fit_table(fits))
    few = [f"{name} ({len(found)})" for name, found in groups.items() if len(found) < MIN_SAMPLES]
    if few:
        console.print(
            Text(f"Left as they are, fewer than {MIN_SAMPLES} executions: {', '.join(few)}")
        )
    for reason, count in recording.left_out.items():
        console.print(Text(f"Not used: {count} {reason}"))
    for path in written:
        console.print(Text(f"Wrote {path}"))


def _write_fits(
    fits: list[Fit], skill_set: SkillSet, file: Path, skill_file: Path, output: Path | None,
    plot: Path | None, json_file: Path | None,
) -> list[Path]:  # fmt: skip
    """Write the files that were asked for and return their paths."""
    if output is not None:
        from timely_llm.profiling.skill_file import with_durations

        text = skill_file.read_text(encoding="utf-8")
        durations = {fit.name: fit.after for fit in fits}
        write_text(output, YAML, with_durations(text, durations, str(skill_file)))
    if plot is not None:
        # matplotlib takes a second to import: only where it is needed.
        from timely_llm.report.profiles import draw_profile

        draw_profile(fits, skill_set.skills, plot, f"{skill_set.name}: durations from {file.name}")
    if json_file is not None:
        write_json(json_file, [_fit_row(fit) for fit in fits])
    return [path for path in (output, plot, json_file) if path is not None]


def _fit_table(fits: list[Fit]) -> FittedTable:
    table = FittedTable(
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


def _fit_row(fit: Fit) -> dict[str, object]:
    return {
        "skill": fit.name,
        "executions": len(fit.seconds),
        "left_out": int(fit.outliers.sum()),
        "before": fit.before.model_dump(exclude_none=True),
        "after": fit.after.model_dump(exclude_none=True),
        "error_before_s": fit.error_before_s,
        "error_after_s": fit.error_after_s,
    }
