"""`timely-llm profile`: how long skills take (Ling et al. 2024, §4.3, §6), or an engine's steps."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import zip_longest
from pathlib import Path
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.progress import BarColumn, TimeRemainingColumn
from rich.text import Text

from timely_llm import __version__
from timely_llm.cli import progress
from timely_llm.cli.options import EXISTING_FILE, Layers, OutputFile, Pace
from timely_llm.cli.profiles.recorded import show_recorded
from timely_llm.core.clock import VirtualClock
from timely_llm.core.errors import ConfigurationError
from timely_llm.core.output_file import PICTURE, YAML, write_json, write_text
from timely_llm.core.requirements import need
from timely_llm.core.text import echoed
from timely_llm.engines.contract import Engine
from timely_llm.engines.paces import MEASURED, pace_profile
from timely_llm.engines.registry import ENGINES, make_engine, parse_engine_args
from timely_llm.engines.simulated import DEFAULT_PROFILE
from timely_llm.profiling.engine_steps import (
    KV_TOKENS,
    MOST_ROWS,
    MeasuredPrompt,
    MeasuredStep,
    measure,
    measure_prompts,
)
from timely_llm.profiling.fitting import MIN_SAMPLES, Fit, fit_skill
from timely_llm.profiling.measurements import is_bag, read_bag, read_csv
from timely_llm.profiling.recorded_steps import fit_recorded, read_steps
from timely_llm.profiling.step_profile import (
    WHOLE,
    PipelineFit,
    StepFit,
    fit_pipeline,
    fit_profile,
    parts,
    predicted_s,
    profile_values,
    relative_error,
    split_sentences,
    write_profile,
)
from timely_llm.report.fitted_table import FittedTable
from timely_llm.resources import EMBEDDED_MODEL, resource
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


@dataclass(frozen=True)
class Measured:
    """What is measured.

    Attributes:
        engine: its name.
        model: folder, or id on the Hugging Face hub; empty: the embedded one.
        dtype: of weights and KV.
        threads: of the CPU, for the engine transformers.
        engine_args: options of vLLM's own.
        pace: profile of the engine simulated.
        layers: layers of each stage; empty: not known.
        most_layers: most layers that each box has memory for; empty: any number.
    """

    engine: str
    model: str
    dtype: str
    threads: int
    engine_args: Mapping[str, Any]
    pace: str
    layers: tuple[int, ...] = ()
    most_layers: tuple[int, ...] = ()

    @property
    def simulated(self) -> bool:
        """Whether the engine only lets time pass."""
        return self.engine == "simulated"

    @property
    def name(self) -> str:
        """What the model is called, without the folders that it is in."""
        if self.simulated:
            return pace_profile(self.pace).name
        local = Path(self.model or resource(EMBEDDED_MODEL))
        return local.resolve().name if local.exists() else self.model

    @property
    def source(self) -> str:
        """Where the numbers come from."""
        where = "virtual time" if self.simulated else f"{self.dtype}, {_device()}"
        if self.engine == "transformers":
            where += f", {self.threads} thread{'s' if self.threads > 1 else ''}"
        given = "".join(f", {name}={value}" for name, value in self.engine_args.items())
        return (
            f"measured by timely-llm profile --engine {self.engine}: {self.name},"
            f" {where}{given}, {date.today().isoformat()}, timely_llm {__version__}"
        )

    def make(self) -> Engine:
        """Return a new engine.

        Raises:
            TimelyError: the model cannot be loaded.
        """
        return make_engine(
            self.engine, model=self.model or resource(EMBEDDED_MODEL), dtype=self.dtype,
            threads=self.threads, kv_tokens=KV_TOKENS, max_rows=MOST_ROWS,
            engine_args=self.engine_args, pace=self.pace if self.simulated else None,
            clock=VirtualClock(),
        )  # fmt: skip


def profile_engine(
    measured: Measured, output: Path, plot: Path | None, json_file: Path | None
) -> None:
    """Measure an engine's steps, print them beside the fitted profile, and write the files.

    Raises:
        TimelyError: the model cannot be loaded or run.
        OSError: a file cannot be written.
    """
    steps, prompts, stages = _run(measured)
    console = Console()
    name, source = f"{measured.name}, measured", measured.source
    fit: StepFit | PipelineFit
    if stages > 1 and all(step.stages for step in steps):
        fit = fit_pipeline(steps, name, source)
        _show_stages(fit, console)
        fits = fit.stages
    else:
        fit = fit_profile(steps, name, source)
        _show_steps(fit, console)
        fits = (fit,)
        if stages > 1:
            console.print(Text(f"The times of its {stages} stages are not known: one profile"))
    write_profile(fit.profile, output)
    _show_spread(steps, console)
    _show_prompts(prompts, console)
    if plot is not None:
        # matplotlib takes a second to import: only where it is needed.
        from timely_llm.report.profiles import draw_steps

        draw_steps(fits, plot)
    if json_file is not None:
        document = {
            "profile": profile_values(fit.profile),
            "steps": [_step_row(fit, step) for step in steps],
            "prompts": [vars(prompt) for prompt in prompts],
        }
        write_json(json_file, document)
    for path in (output, plot, json_file):
        if path is not None:
            console.print(Text(f"Wrote {path}"), soft_wrap=True)
    hint = f"Use it wherever a profile is named: {MEASURED}{output}"
    console.print(Text(hint), soft_wrap=True)
    if measured.layers:
        for sentence in split_sentences(fit.profile, measured.layers, measured.most_layers):
            console.print(Text(sentence), soft_wrap=True)


def _run(measured: Measured) -> tuple[list[MeasuredStep], list[MeasuredPrompt], int]:
    """Return the steps, the prompts, and the number of stages."""
    engine = measured.make()
    try:
        with progress.bar("engine", BarColumn(), TimeRemainingColumn()) as update:
            steps = measure(engine, progress=update)
            return steps, measure_prompts(engine), engine.capacity.stages
    finally:
        engine.close()


def _device() -> str:
    """Return the device of an engine without a setting."""
    import torch

    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return (named or [platform.processor() or platform.machine()])[0]


def _step_row(fit: StepFit | PipelineFit, step: MeasuredStep) -> dict[str, object]:
    row: dict[str, object] = {
        "rows": step.setting.rows,
        "prefill_tokens": step.setting.chunk,
        "context_tokens": step.context_tokens,
        "measured_s": step.seconds,
        "spread": step.spread,
    }
    if isinstance(fit, PipelineFit):
        row["parts"] = {
            part: {"measured_s": measured, "profile_s": predicted}
            for part, (measured, predicted) in parts(fit.profile, step).items()
        }
    else:
        row["profile_s"] = predicted_s(fit.profile, step)
        row["error"] = relative_error(fit.profile, step)
    return {**row, "unseen": step.setting.unseen}


def _show_steps(fit: StepFit, console: Console) -> None:
    """Print every setting, measured and by the profile, and what the profile is good for."""
    table = FittedTable(box=box.SIMPLE)
    for head in ("rows", "prefill tokens", "context tokens", "measured (ms)", "profile (ms)",
                 "error", "seen by the fit"):  # fmt: skip
        table.add_column(head, justify="right")
    for step in sorted(fit.steps, key=_step_order):
        setting = step.setting
        table.add_row(
            str(setting.rows), str(setting.chunk or ""), str(step.context_tokens),
            f"{1e3 * step.seconds:.2f}", f"{1e3 * predicted_s(fit.profile, step):.2f}",
            f"{relative_error(fit.profile, step):+.0%}", "" if setting.unseen else "yes",
        )  # fmt: skip
    console.print(table)
    for name, value in vars(fit.profile).items():
        shown = f"{value:g}" if isinstance(value, float) else str(value)
        if name == "table_s":
            shown = f"{value[0]:g} to {value[-1]:g}, for 1 to {len(value)} rows"
        console.print(Text(f"{name}: {shown}"), soft_wrap=True)
    console.print(
        Text(
            f"Error on steps not seen by the fit: median {fit.median_error:.1%}, 95th percentile"
            f" {fit.p95_error:.1%}."
        ),
        soft_wrap=True,
    )


def _show_stages(fit: PipelineFit, console: Console) -> None:
    """Print every setting, each part as measured and the profile's error, and the profile."""
    table = FittedTable(box=box.SIMPLE)
    for head in ("rows", "prefill tokens", *(f"{part} (ms)" for part in fit.errors),
                 "seen by the fit"):  # fmt: skip
        table.add_column(head, justify="right")
    for step in sorted(fit.steps, key=_step_order):
        found = parts(fit.profile, step).values()
        table.add_row(
            str(step.setting.rows), str(step.setting.chunk or ""),
            *(f"{1e3 * measured:.2f} {predicted / measured - 1.0:+.0%}"
              for measured, predicted in found),
            "" if step.setting.unseen else "yes",
        )  # fmt: skip
    console.print(table)
    seconds = [(one.base_s, one.row_s, one.prefill_token_s) for one in fit.profile.stages]
    seconds += [(link.message_s, link.token_s, link.token_s) for link in fit.profile.links]
    table = FittedTable(
        box=box.SIMPLE, caption_justify="left",
        caption=f"error: of steps not seen by the fit; a {WHOLE} is predicted as the sum of all"
        " stages and links",
    )  # fmt: skip
    for head in ("part", "constant (ms)", "a row (us)", "a prompt token (us)", "median error",
                 "95th percentile"):  # fmt: skip
        table.add_column(head, justify="right")
    for (part, errors), values in zip_longest(fit.errors.items(), seconds):
        base_s, row_s, token_s = values or (None, None, None)
        table.add_row(
            part, _scaled(1e3, base_s), _scaled(1e6, row_s), _scaled(1e6, token_s),
            *(f"{error:.1%}" for error in errors),
        )  # fmt: skip
    console.print(table)
    blocks = "keeps both its stages from computing" if fit.profile.blocking else "overlaps"
    console.print(Text(f"A transfer {blocks}."))


def _scaled(scale: float, value: float | None) -> str:
    return "" if value is None else f"{scale * value:.3g}"


def _show_spread(steps: Sequence[MeasuredStep], console: Console) -> None:
    """Print how much the repeats of a step differ."""
    spread = sorted(step.spread for step in steps)[len(steps) // 2]
    console.print(
        Text(
            f"Half of the repeats of a step lie within {spread:.1%} of it: where that is much,"
            " something else was running."
        ),
        soft_wrap=True,
    )


def _show_prompts(prompts: Sequence[MeasuredPrompt], console: Console) -> None:
    """Print how long prompts take, with and without a beginning that is there."""
    table = FittedTable(box=box.SIMPLE)
    for head in ("prompt tokens", "of these pinned", "computed", "first token (ms)"):
        table.add_column(head, justify="right")
    for prompt in prompts:
        table.add_row(
            str(prompt.tokens), str(prompt.pinned), str(prompt.computed),
            f"{1e3 * prompt.seconds:.2f}",
        )  # fmt: skip
    console.print(table)


def _step_order(step: MeasuredStep) -> tuple[bool, int, int, int]:
    setting = step.setting
    return setting.chunk > 0, setting.rows, setting.chunk, step.context_tokens
