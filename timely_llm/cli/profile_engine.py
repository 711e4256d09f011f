"""`timely-llm profile --engine`: measure how long steps take here, and write it as a profile."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from timely_llm import __version__
from timely_llm.core.output_file import JSON, write_text
from timely_llm.engines.contract import Engine
from timely_llm.engines.profiles import MEASURED
from timely_llm.engines.registry import make_engine
from timely_llm.profiling.engine_steps import KV_TOKENS, MOST_ROWS, MeasuredStep, measure
from timely_llm.profiling.prompts import MeasuredPrompt, measure_prompts
from timely_llm.profiling.step_profile import (
    StepFit,
    fit_profile,
    predicted_s,
    relative_error,
    write_profile,
)
from timely_llm.resources import resource

EMBEDDED_MODEL = "models/tiny_planner"


@dataclass(frozen=True)
class Measured:
    """What is measured.

    Attributes:
        engine: its name.
        model: folder, or id on the Hugging Face hub; empty: the embedded one.
        dtype: of weights and KV.
        threads: of the CPU, for the engine transformers.
        engine_args: options of vLLM's own.
    """

    engine: str
    model: str
    dtype: str
    threads: int
    engine_args: Mapping[str, Any]

    @property
    def name(self) -> str:
        """What the model is called, without the folders that it is in."""
        local = Path(self.model or resource(EMBEDDED_MODEL))
        return local.resolve().name if local.exists() else self.model

    @property
    def source(self) -> str:
        """Where the numbers come from."""
        where = _device()
        if self.engine == "transformers":
            where += f", {self.threads} thread{'s' if self.threads > 1 else ''}"
        given = "".join(f", {name}={value}" for name, value in self.engine_args.items())
        return (
            f"measured by timely-llm profile --engine {self.engine}: {self.name}, {self.dtype},"
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
            engine_args=self.engine_args,
        )  # fmt: skip


def profile_engine(
    measured: Measured, output: Path, plot: Path | None, json_file: Path | None
) -> None:
    """Measure an engine's steps, print them beside the fitted profile, and write the files.

    Raises:
        TimelyError: the model cannot be loaded or run.
        OSError: a file cannot be written.
    """
    steps, prompts = _run(measured)
    called, source = measured.name, measured.source
    fit = fit_profile(steps, f"{called}, measured", source)
    write_profile(fit.profile, output)
    console = Console()
    _show(fit, console)
    _show_prompts(prompts, console)
    if plot is not None:
        # matplotlib takes a second to import: not before somebody needs it.
        from timely_llm.profiling.step_picture import draw_steps

        draw_steps(fit, plot)
    if json_file is not None:
        document = {
            "profile": vars(fit.profile),
            "steps": [_row(fit, step) for step in steps],
            "prompts": [vars(prompt) for prompt in prompts],
        }
        write_text(json_file, JSON, json.dumps(document, indent=2) + "\n")
    for path in (output, plot, json_file):
        if path is not None:
            console.print(Text(f"Wrote {path}"), soft_wrap=True)
    hint = f"Use it wherever a profile is named: {MEASURED}{output}"
    console.print(Text(hint), soft_wrap=True)


def _run(measured: Measured) -> tuple[list[MeasuredStep], list[MeasuredPrompt]]:
    """Return the steps, and the prompts."""
    engine = measured.make()
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    try:
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("engine", total=None)
            steps = measure(
                engine, progress=lambda done, of: bar.update(task, completed=done, total=of)
            )
            return steps, measure_prompts(engine)
    finally:
        engine.close()


def _device() -> str:
    """Return what an engine computes on if nobody says where."""
    import torch

    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return (named or [platform.processor() or platform.machine()])[0]


def _row(fit: StepFit, step: MeasuredStep) -> dict[str, object]:
    return {
        "rows": step.setting.rows,
        "prefill_tokens": step.setting.chunk,
        "context_tokens": step.context_tokens,
        "measured_s": step.seconds,
        "spread": step.spread,
        "profile_s": predicted_s(fit.profile, step),
        "error": relative_error(fit.profile, step),
        "unseen": step.setting.unseen,
    }


def _show(fit: StepFit, console: Console) -> None:
    """Print every setting, measured and by the profile, and what the profile is good for."""
    table = Table(box=box.SIMPLE)
    for head in ("rows", "prefill tokens", "context tokens", "measured (ms)", "profile (ms)",
                 "error", "seen by the fit"):  # fmt: skip
        table.add_column(head, justify="right")
    for step in sorted(fit.steps, key=_order):
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
    spread = sorted(step.spread for step in fit.steps)[len(fit.steps) // 2]
    console.print(
        Text(
            f"Error on steps not seen by the fit: median {fit.median_error:.1%}, 95th percentile"
            f" {fit.p95_error:.1%}. Half of the repeats of a step lie within {spread:.1%} of it:"
            " where that is much, something else was running."
        ),
        soft_wrap=True,
    )


def _show_prompts(prompts: Sequence[MeasuredPrompt], console: Console) -> None:
    """Print how long prompts take, with and without a beginning that is there."""
    table = Table(box=box.SIMPLE)
    for head in ("prompt tokens", "of these pinned", "computed", "first token (ms)"):
        table.add_column(head, justify="right")
    for prompt in prompts:
        table.add_row(
            str(prompt.tokens), str(prompt.pinned), str(prompt.computed),
            f"{1e3 * prompt.seconds:.2f}",
        )  # fmt: skip
    console.print(table)


def _order(step: MeasuredStep) -> tuple[bool, int, int, int]:
    setting = step.setting
    return setting.chunk > 0, setting.rows, setting.chunk, step.context_tokens
