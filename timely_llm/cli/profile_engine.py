"""`timely-llm profile --engine`: measure how long steps take here, and write it as a profile."""

from __future__ import annotations

import json
import platform
from datetime import date
from pathlib import Path

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from timely_llm import __version__
from timely_llm.engines.profiles import MEASURED
from timely_llm.engines.registry import make_engine
from timely_llm.profiling.engine_steps import KV_TOKENS, MOST_ROWS, MeasuredStep, measure
from timely_llm.profiling.step_profile import (
    StepFit,
    fit_profile,
    predicted_s,
    relative_error,
    write_profile,
)
from timely_llm.resources import resource

EMBEDDED_MODEL = "models/tiny_planner"


def profile_engine(
    model: str, dtype: str, threads: int, output: Path, plot: Path | None, json_file: Path | None
) -> None:
    """Measure an engine's steps, print them beside the fitted profile, and write the files.

    Raises:
        TimelyError: the model cannot be loaded or run.
        OSError: a file cannot be written.
    """
    steps, device = _measured(model, dtype, threads)
    called = _name(model)
    cpu = f", {threads} thread{'s' if threads > 1 else ''}"
    source = (
        f"measured by timely-llm profile --engine: {called}, {dtype}, {device}{cpu}, transformers"
        f" engine, {date.today().isoformat()}, timely_llm {__version__}"
    )
    fit = fit_profile(steps, f"{called}, measured", source)
    write_profile(fit.profile, output)
    console = Console()
    _show(fit, console)
    if plot is not None:
        # matplotlib takes a second to import: not before somebody needs it.
        from timely_llm.profiling.step_picture import draw_steps

        draw_steps(fit, plot)
    if json_file is not None:
        document = {"profile": vars(fit.profile), "steps": [_row(fit, step) for step in steps]}
        json_file.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    for path in (output, plot, json_file):
        if path is not None:
            console.print(Text(f"Wrote {path}"), soft_wrap=True)
    hint = f"Use it wherever a profile is named: {MEASURED}{output}"
    console.print(Text(hint), soft_wrap=True)


def _measured(model: str, dtype: str, threads: int) -> tuple[list[MeasuredStep], str]:
    """Return the steps, and what they were made on."""
    engine = make_engine(
        "transformers", model=model or resource(EMBEDDED_MODEL), dtype=dtype, threads=threads,
        kv_tokens=KV_TOKENS, max_rows=MOST_ROWS,
    )  # fmt: skip
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    try:
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("engine", total=None)
            steps = measure(
                engine, progress=lambda done, of: bar.update(task, completed=done, total=of)
            )
    finally:
        engine.close()
    return steps, _device()


def _name(model: str) -> str:
    """Return what a model is called, without the folders that it is in."""
    local = resource(EMBEDDED_MODEL) if not model else Path(model)
    return local.resolve().name if local.exists() else model


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


def _order(step: MeasuredStep) -> tuple[bool, int, int, int]:
    setting = step.setting
    return setting.chunk > 0, setting.rows, setting.chunk, step.context_tokens
