"""The picture of a step-time profile: steps that were measured, and what the profile says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from timely_llm.core.output_file import PICTURE, write_file
from timely_llm.engines.profiles import Profile
from timely_llm.profiling.engine_steps import MeasuredStep
from timely_llm.profiling.picture import BEFORE, DPI, FITTED, FONT_PT, INK, POINT, SOFT
from timely_llm.profiling.step_profile import StepFit, predicted_s

SIZE_IN = (11.0, 4.0)
_KINDS = ((POINT, "o"), (FITTED, "s"), ("#009E73", "^"))
_MS = 1e3


def draw_steps(fit: StepFit, path: Path) -> None:
    """Write a picture of three panels: decoding by rows, prompts by tokens, and all steps.

    Raises:
        OSError: the file cannot be written.
    """
    figure = Figure(figsize=SIZE_IN, dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    decoding, prompts, everything = figure.subplots(1, 3)
    seen = [step for step in fit.steps if not step.setting.unseen]
    _draw_decoding(decoding, fit.profile, [s for s in seen if not s.setting.chunk])
    _draw_prompts(prompts, fit.profile, [s for s in seen if not s.setting.rows])
    _draw_everything(everything, fit)
    figure.suptitle(fit.profile.name, fontsize=FONT_PT + 3, color=INK)
    kind = path.suffix[1:] or "png"
    write_file(path, PICTURE, lambda file: figure.savefig(file, format=kind))


def _draw_decoding(axes: Axes, profile: Profile, steps: Sequence[MeasuredStep]) -> None:
    contexts = list(dict.fromkeys(step.setting.row_context for step in steps))
    for context, (colour, mark) in zip(contexts, _KINDS, strict=False):
        mine = [step for step in steps if step.setting.row_context == context]
        each = sum(s.context_tokens for s in mine) / sum(s.setting.rows for s in mine)
        rows = range(1, max(step.setting.rows for step in mine) + 1)
        axes.plot(rows, [_MS * profile.step_s(r, 0, round(r * each)) for r in rows], color=colour)
        _points(axes, [step.setting.rows for step in mine], mine, colour, mark)
        axes.plot([], [], color=colour, marker=mark, label=f"{each:.0f} tokens of context each")
    _style(axes, "Decoding", "rows", "milliseconds of a step")


def _draw_prompts(axes: Axes, profile: Profile, steps: Sequence[MeasuredStep]) -> None:
    contexts = list(dict.fromkeys(step.setting.chunk_context for step in steps))
    for context, (colour, mark) in zip(contexts, _KINDS, strict=False):
        mine = [step for step in steps if step.setting.chunk_context == context]
        tokens = np.linspace(2, max(step.setting.chunk for step in mine), 50)
        line = [_MS * profile.step_s(0, round(n), context) for n in tokens]
        axes.plot(tokens, line, color=colour)
        _points(axes, [step.setting.chunk for step in mine], mine, colour, mark)
        axes.plot([], [], color=colour, marker=mark, label=f"{context} tokens before it")
    _style(axes, "A prompt's chunk", "tokens", "")


def _draw_everything(axes: Axes, fit: StepFit) -> None:
    for unseen, colour, mark in ((False, BEFORE, "o"), (True, FITTED, "D")):
        mine = [step for step in fit.steps if step.setting.unseen is unseen]
        label = "not seen by the fit" if unseen else "seen by the fit"
        said = [_MS * predicted_s(fit.profile, step) for step in mine]
        _points(axes, said, mine, colour, mark)
        axes.plot([], [], mark, color=colour, label=label)
    ends = [_MS * min(s.seconds for s in fit.steps), _MS * max(s.seconds for s in fit.steps)]
    axes.plot(ends, ends, color=SOFT, linewidth=0.8)
    axes.set_xscale("log")
    axes.set_yscale("log")
    title = f"All; unseen: median {fit.median_error:.0%}, p95 {fit.p95_error:.0%}"
    _style(axes, title, "milliseconds by the profile", "milliseconds as measured")


def _points(
    axes: Axes, x: Sequence[float], steps: Sequence[MeasuredStep], colour: str, mark: str
) -> None:
    axes.plot(x, [_MS * s.seconds for s in steps], mark, color=colour, markersize=3.5, alpha=0.7)


def _style(axes: Axes, title: str, x: str, y: str) -> None:
    axes.set_title(title, fontsize=FONT_PT + 1, loc="left", color=INK)
    axes.set_xlabel(x, fontsize=FONT_PT, color=INK)
    axes.set_ylabel(y, fontsize=FONT_PT, color=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=FONT_PT - 1, colors=INK)
    axes.grid(alpha=0.25, linewidth=0.5)
    axes.legend(fontsize=FONT_PT - 1, frameon=False, labelcolor=INK)
