"""`timely-llm profile --event-log`: step times of a recorded run (Huang et al. 2025, §4.2)."""

from __future__ import annotations

import math
from pathlib import Path

from rich import box
from rich.console import Console
from rich.text import Text

from timely_llm.core.output_file import write_json
from timely_llm.engines.paces import MEASURED
from timely_llm.policies.annealing.latency import BatchTime
from timely_llm.profiling.recorded_steps import PhaseFit, RecordedFit
from timely_llm.profiling.step_profile import profile_values, write_profile
from timely_llm.report.fitted_table import FittedTable


def show_recorded(fit: RecordedFit, output: Path | None, json_file: Path | None) -> None:
    """Print the fit of a recorded run, and write the files.

    Args:
        fit: profile, latency predictor and errors.
        output: file of the profile; None: it is only printed.
        json_file: file of all numbers; None: there is none.

    Raises:
        OutputFileError: a file cannot be written.
    """
    console = Console()
    _show_profile(fit, console)
    _show_phases(fit, console)
    if output is not None:
        write_profile(fit.profile, output)
    if json_file is not None:
        write_json(json_file, _document(fit))
    for path in (output, json_file):
        if path is not None:
            console.print(Text(f"Wrote {path}"), soft_wrap=True)
    if output is not None:
        hint = f"Use it wherever a profile is named: {MEASURED}{output}"
        console.print(Text(hint), soft_wrap=True)


def _show_profile(fit: RecordedFit, console: Console) -> None:
    """Print the coefficients, what the run had, and the errors."""
    for name, value in vars(fit.profile).items():
        shown = f"{value:g}" if isinstance(value, float) else str(value)
        if name == "table_s":
            shown = f"{value[0]:g} to {value[-1]:g}, for 1 to {len(value)} rows" if value else ""
        if shown and value is not None and name not in ("name", "source"):
            console.print(Text(f"{name}: {shown}"), soft_wrap=True)
    low, high = fit.prompt_tokens
    for sentence in (
        f"Fitted to {fit.used:,} steps, of at most {fit.most_rows} decode rows, {low:,} to"
        f" {high:,} prompt tokens, and at most {fit.most_context:,} context tokens; other steps are"
        " extrapolated.",
        f"Error on {fit.tested:,} steps not seen by the fit: median {fit.median_error:.1%}, 95th"
        f" percentile {fit.p95_error:.1%}.",
    ):
        console.print(Text(sentence), soft_wrap=True)


def _show_phases(fit: RecordedFit, console: Console) -> None:
    """Print the coefficients of Eq. 14 and 15, or why there are none."""
    table = FittedTable(
        box=box.SIMPLE, caption_justify="left",
        caption="Latency predictor of Huang et al. 2025 (Eq. 14 and 15), for steps that only"
        " compute prompts, and steps that only decode; errors: of steps not seen by the fit",
    )  # fmt: skip
    table.add_column("phase")
    for head in ("alpha (us)", "beta (us)", "gamma (us)", "delta (us)", "steps", "median error",
                 "95th percentile"):  # fmt: skip
        table.add_column(head, justify="right")
    for phase, found in fit.phases.items():
        if isinstance(found, PhaseFit):
            errors = (found.median_error, found.p95_error)
            # Rounded, so that what only rounding made is 0.
            times = [round(1e6 * value, 6) + 0.0 for value in _coefficients(found.time).values()]
            table.add_row(
                phase, *(f"{value:.4g}" for value in times),
                f"{found.batches:,}", *("" if math.isnan(e) else f"{e:.1%}" for e in errors),
            )  # fmt: skip
    if table.row_count:
        console.print(table)
    for found in fit.phases.values():
        if isinstance(found, str):
            console.print(Text(f"Latency predictor: {found}."), soft_wrap=True)


def _coefficients(time: BatchTime) -> dict[str, float]:
    return dict(vars(time))


def _document(fit: RecordedFit) -> dict[str, object]:
    return {
        "profile": profile_values(fit.profile),
        "steps": fit.used,
        "unseen_steps": fit.tested,
        "median_error": fit.median_error,
        "p95_error": fit.p95_error,
        "latency": {
            phase: {
                **_coefficients(found.time),
                "steps": found.batches,
                "median_error": _finite(found.median_error),
                "p95_error": _finite(found.p95_error),
            }
            if isinstance(found, PhaseFit)
            else None
            for phase, found in fit.phases.items()
        },
    }


def _finite(value: float) -> float | None:
    return None if math.isnan(value) else value
