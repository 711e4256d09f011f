"""`timely-llm profile --engine`: an engine's steps, measured and fitted."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import zip_longest
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, TimeRemainingColumn
from rich.text import Text

from timely_llm import __version__
from timely_llm.cli import progress
from timely_llm.core.clock import VirtualClock
from timely_llm.core.output_file import write_json
from timely_llm.engines.contract import Engine
from timely_llm.engines.paces import MEASURED, pace_profile
from timely_llm.engines.registry import make_engine
from timely_llm.profiling.engine_steps import (
    KV_TOKENS,
    MOST_ROWS,
    MeasuredPrompt,
    MeasuredStep,
    measure,
    measure_prompts,
)
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
