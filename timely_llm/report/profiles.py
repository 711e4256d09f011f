"""Pictures of fitted durations and of fitted step-time profiles, beside their measurements."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from timely_llm.core.output_file import PICTURE, write_file
from timely_llm.engines.simulated import Profile
from timely_llm.profiling.engine_steps import MeasuredStep
from timely_llm.profiling.fitting import Fit
from timely_llm.profiling.step_profile import StepFit, predicted_s
from timely_llm.report.palette import LIGHT
from timely_llm.skills.skill import Skill

POINT, FITTED, THIRD, BEFORE = (LIGHT.series[place] for place in (0, 1, 2, 6))
SOFT, INK = LIGHT.soft, LIGHT.ink
BAND_ALPHA = 0.3
"""Opacity of the band of fitted durations."""
COLUMNS, DPI, FONT_PT = 3, 150, 8.0
PANEL_IN, HEAD_IN, FOOT_IN = (3.6, 2.7), 0.4, 0.55
MARGIN_IN = (0.55, 0.62, 0.5)  # left of the axes, above them and below them
MOST_POINTS = 2000


def draw_profile(fits: Sequence[Fit], skills: Mapping[str, Skill], path: Path, title: str) -> None:
    """Write a picture with a panel for each fitted skill.

    The panel of a skill with a polynomial shows seconds over its number. Any other panel shows the
    cumulative distribution of execution times.

    Raises:
        OSError: the file cannot be written.
    """
    columns = min(COLUMNS, len(fits))
    rows = math.ceil(len(fits) / columns)
    wide, high = columns * PANEL_IN[0], HEAD_IN + rows * PANEL_IN[1] + FOOT_IN
    figure = Figure(figsize=(wide, high), dpi=DPI)
    FigureCanvasAgg(figure)
    figure.text(0.12 / wide, 1 - 0.15 / high, title, fontsize=FONT_PT + 3, color=INK, va="top")
    grid = [
        figure.add_axes(_place(number % columns, number // columns, wide, high))
        for number in range(len(fits))
    ]
    for axes, fit in zip(grid, fits, strict=True):
        _style(axes, fit)
        if np.ptp(fit.x) > 0 and fit.after.polynomial is not None:
            _draw_curve(axes, fit, skills[fit.name])
        else:
            _draw_shares(axes, fit)
    figure.legend(
        handles=_legend(fits), loc="lower left", bbox_to_anchor=(0, 0), frameon=False,
        ncols=5 if columns > 1 else 2, fontsize=FONT_PT, labelcolor=INK,
    )  # fmt: skip
    kind = path.suffix[1:] or "png"
    write_file(path, PICTURE, lambda file: figure.savefig(file, format=kind))


def _place(column: int, row: int, wide: float, high: float) -> tuple[float, float, float, float]:
    """Return left, bottom, width and height of a panel's axes, as shares of the figure."""
    left = column * PANEL_IN[0] + MARGIN_IN[0]
    top = HEAD_IN + row * PANEL_IN[1] + MARGIN_IN[1]
    size = PANEL_IN[0] - MARGIN_IN[0] - 0.15, PANEL_IN[1] - MARGIN_IN[1] - MARGIN_IN[2]
    return left / wide, 1 - (top + size[1]) / high, size[0] / wide, size[1] / high


def _style(axes: Axes, fit: Fit) -> None:
    axes.set_title(fit.name, fontsize=FONT_PT + 2, loc="left", color=INK, pad=25)
    axes.text(
        0, 1.03, f"{fit.model}\n{len(fit.seconds)} executions; mean error"
        f" {fit.error_before_s:.2g} s before, {fit.error_after_s:.2g} s after",
        transform=axes.transAxes, fontsize=FONT_PT - 1, color=SOFT, linespacing=1.4,
    )  # fmt: skip
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=FONT_PT - 1, colors=INK)
    axes.grid(alpha=0.25, linewidth=0.5)


def _draw_curve(axes: Axes, fit: Fit, skill: Skill) -> None:
    number = next(a for a in skill.arguments if a.type != "text")
    chosen = _chosen(fit)
    good, bad = chosen[~fit.outliers[chosen]], chosen[fit.outliers[chosen]]
    at = np.linspace(float(np.min(fit.x)), float(np.max(fit.x)), 200)
    before, after = (
        np.array([duration.predict_s((float(x),)) for x in at])
        for duration in (fit.before, fit.after)
    )
    if fit.after.spread is not None:
        low, high = min(fit.after.spread.values()), max(fit.after.spread.values())
        axes.fill_between(
            at, after * low, after * high, color=FITTED, alpha=BAND_ALPHA, linewidth=0, zorder=1
        )
    axes.plot(fit.x[good], fit.seconds[good], "o", **_points(len(good)))
    axes.plot(at, before, "--", color=BEFORE, linewidth=1.2, zorder=3)
    axes.plot(at, after, "-", color=FITTED, linewidth=1.8, zorder=4)
    _limit(axes, fit, good, bad)
    axes.set_xlabel(f"{number.name} ({number.unit})" if number.unit else number.name,
                    fontsize=FONT_PT, color=INK)  # fmt: skip
    axes.set_ylabel("seconds", fontsize=FONT_PT, color=INK)


def _limit(axes: Axes, fit: Fit, good: np.ndarray, bad: np.ndarray) -> None:
    """Scale the panel to the good executions; outliers above it stand at its edge."""
    top = 1.15 * max(float(np.max(fit.seconds[good])), axes.get_ylim()[1] / 1.05)
    axes.set_ylim(0, top)
    axes.plot(
        fit.x[bad], np.minimum(fit.seconds[bad], 0.97 * top), "x", color=INK, markersize=4,
        markeredgewidth=0.9, zorder=5, clip_on=False,
    )  # fmt: skip


def _draw_shares(axes: Axes, fit: Fit) -> None:
    good = ~fit.outliers
    seconds = np.sort(fit.seconds[good])
    shares = (np.arange(len(seconds)) + 0.5) / len(seconds)
    step = max(1, len(seconds) // MOST_POINTS)
    axes.plot(seconds[::step], shares[::step], "o", **_points(len(seconds[::step])))
    marks = np.linspace(0, 1, 201)
    before, after = (
        np.array([duration.quantile_s((), float(share)) for share in marks])
        for duration in (fit.before, fit.after)
    )
    axes.plot(before, marks, "--", color=BEFORE, linewidth=1.2, zorder=3)
    axes.plot(after, marks, "-", color=FITTED, linewidth=1.8, zorder=4)
    longest = 1.1 * max(float(np.max(seconds)), float(np.max(after)), float(np.max(before)))
    axes.set_xlim(0, longest)
    axes.set_ylim(-0.03, 1.03)
    bad = np.minimum(fit.seconds[fit.outliers], 0.97 * longest)
    axes.plot(bad, np.ones(len(bad)), "x", color=INK, markersize=4, markeredgewidth=0.9, zorder=5)
    axes.set_xlabel("seconds", fontsize=FONT_PT, color=INK)
    axes.set_ylabel("share not longer", fontsize=FONT_PT, color=INK)


def _chosen(fit: Fit) -> np.ndarray:
    """Return the drawn executions: all outliers, and at most about `MOST_POINTS` others."""
    places = np.arange(len(fit.x))
    others = places[~fit.outliers]
    step = max(1, math.ceil(len(others) / MOST_POINTS))
    return np.concatenate([others[::step], places[fit.outliers]])


def _points(count: int) -> dict[str, Any]:
    crowded = count > 150
    return {
        "color": POINT, "markersize": 2.2 if crowded else 3.2, "alpha": 0.35 if crowded else 0.65,
        "markeredgewidth": 0, "zorder": 2,
    }  # fmt: skip


def _legend(fits: Sequence[Fit]) -> list[Line2D | Patch]:
    found: list[Line2D | Patch] = [
        Line2D([], [], marker="o", linestyle="", color=POINT, markersize=4, label="execution"),
        Line2D([], [], color=BEFORE, linestyle="--", linewidth=1.2, label="skill set before"),
        Line2D([], [], color=FITTED, linewidth=1.8, label="fitted"),
    ]
    if any(fit.after.spread is not None for fit in fits):
        found.append(
            Patch(color=FITTED, alpha=BAND_ALPHA, linewidth=0, label="5 % to 95 % of executions")
        )
    if any(np.any(fit.outliers) for fit in fits):
        found.append(
            Line2D([], [], marker="x", linestyle="", color=INK, markersize=4, label="left out")
        )
    return found


SIZE_IN = (11.0, 4.0)
_KINDS = ((POINT, "o"), (FITTED, "s"), (THIRD, "^"))
_MS = 1e3


def draw_steps(fits: Sequence[StepFit], path: Path) -> None:
    """Write a picture of three panels: decoding by rows, prompts by tokens, and all steps.

    Args:
        fits: of the stages; each has a row of panels.
        path: the file.

    Raises:
        OSError: the file cannot be written.
    """
    width, height = SIZE_IN
    figure = Figure(figsize=(width, height * len(fits)), dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    for fit, row in zip(fits, figure.subfigures(len(fits), squeeze=False)[:, 0], strict=True):
        decoding, prompts, everything = row.subplots(1, 3)
        seen = [step for step in fit.steps if not step.setting.unseen]
        _draw_decoding(decoding, fit.profile, [s for s in seen if not s.setting.chunk])
        _draw_prompts(prompts, fit.profile, [s for s in seen if not s.setting.rows])
        _draw_everything(everything, fit)
        row.suptitle(fit.profile.name, fontsize=FONT_PT + 3, color=INK)
    kind = path.suffix[1:] or "png"
    write_file(path, PICTURE, lambda file: figure.savefig(file, format=kind))


def _draw_decoding(axes: Axes, profile: Profile, steps: Sequence[MeasuredStep]) -> None:
    contexts = list(dict.fromkeys(step.setting.row_context for step in steps))
    for context, (colour, mark) in zip(contexts, _KINDS, strict=False):
        mine = [step for step in steps if step.setting.row_context == context]
        each = sum(s.context_tokens for s in mine) / sum(s.setting.rows for s in mine)
        rows = range(1, max(step.setting.rows for step in mine) + 1)
        axes.plot(rows, [_MS * profile.step_s(r, 0, round(r * each)) for r in rows], color=colour)
        _mark_steps(axes, [step.setting.rows for step in mine], mine, colour, mark)
        axes.plot([], [], color=colour, marker=mark, label=f"{each:.0f} tokens of context each")
    _finish(axes, "Decoding", "rows", "milliseconds of a step")


def _draw_prompts(axes: Axes, profile: Profile, steps: Sequence[MeasuredStep]) -> None:
    contexts = list(dict.fromkeys(step.setting.chunk_context for step in steps))
    for context, (colour, mark) in zip(contexts, _KINDS, strict=False):
        mine = [step for step in steps if step.setting.chunk_context == context]
        tokens = np.linspace(2, max(step.setting.chunk for step in mine), 50)
        line = [_MS * profile.step_s(0, round(n), context) for n in tokens]
        axes.plot(tokens, line, color=colour)
        _mark_steps(axes, [step.setting.chunk for step in mine], mine, colour, mark)
        axes.plot([], [], color=colour, marker=mark, label=f"{context} tokens before it")
    _finish(axes, "A prompt's chunk", "tokens", "")


def _draw_everything(axes: Axes, fit: StepFit) -> None:
    for unseen, colour, mark in ((False, BEFORE, "o"), (True, FITTED, "D")):
        mine = [step for step in fit.steps if step.setting.unseen is unseen]
        label = "not seen by the fit" if unseen else "seen by the fit"
        predicted = [_MS * predicted_s(fit.profile, step) for step in mine]
        _mark_steps(axes, predicted, mine, colour, mark)
        axes.plot([], [], mark, color=colour, label=label)
    ends = [_MS * min(s.seconds for s in fit.steps), _MS * max(s.seconds for s in fit.steps)]
    axes.plot(ends, ends, color=SOFT, linewidth=0.8)
    axes.set_xscale("log")
    axes.set_yscale("log")
    title = f"All; unseen: median {fit.median_error:.0%}, p95 {fit.p95_error:.0%}"
    _finish(axes, title, "milliseconds by the profile", "milliseconds as measured")


def _mark_steps(
    axes: Axes, x: Sequence[float], steps: Sequence[MeasuredStep], colour: str, mark: str
) -> None:
    axes.plot(x, [_MS * s.seconds for s in steps], mark, color=colour, markersize=3.5, alpha=0.7)


def _finish(axes: Axes, title: str, x: str, y: str) -> None:
    axes.set_title(title, fontsize=FONT_PT + 1, loc="left", color=INK)
    axes.set_xlabel(x, fontsize=FONT_PT, color=INK)
    axes.set_ylabel(y, fontsize=FONT_PT, color=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=FONT_PT - 1, colors=INK)
    axes.grid(alpha=0.25, linewidth=0.5)
    axes.legend(fontsize=FONT_PT - 1, frameon=False, labelcolor=INK)
