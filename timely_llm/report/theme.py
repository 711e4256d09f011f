"""Plots in two colour schemes: each of their models carries what it looks like in both."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from bokeh.models import Model, SaveTool
from bokeh.models.annotations import Legend, LegendItem, Title
from bokeh.models.renderers import GlyphRenderer
from bokeh.plotting import figure

from timely_llm.report.palette import SCHEMES, Scheme
from timely_llm.report.words import short

M = TypeVar("M", bound=Model)
Style = dict[str, Any]
Drawn: TypeAlias = "GlyphRenderer[Any]"
"""What a plot shows of one source."""

FONT, FONT_SIZE = "system-ui, sans-serif", "12px"
PHONE_PX, CHARACTER_PX, SWATCH_PX, LEGEND_ROW_PX = 320, 6, 40, 25
LONGEST_NAME = 34
_TEX = ("$$", "\\(", "\\[")
_JOINER = "\u2060"  # not seen, and no break


def plain(text: str, most: int = 60) -> str:
    """Return a text as plots may show it: of at most so many characters, and never as TeX.

    BokehJS takes a text with delimiters of TeX for TeX, and asks the network for MathJax.
    """
    shown = short(text, most)
    for mark in _TEX:
        shown = shown.replace(mark, mark[0] + _JOINER + mark[1])
    return shown


def themed(model: M, style: Callable[[Scheme], Style]) -> M:
    """Return a model that looks as in the light scheme, and whose tags say how it does in each.

    The page's script reads the tags.
    """
    styles = {name: style(scheme) for name, scheme in SCHEMES.items()}
    model.update(**styles["light"])
    model.tags = [styles]
    return model


def canvas(name: str, height: int, title: str = "", **options: Any) -> figure:
    """Return an empty plot as wide as its place; `name` is that of the picture it is saved as."""
    made = figure(
        sizing_mode="stretch_width", toolbar_location="above", tools=[], height=height, **options
    )
    made.toolbar.logo = None
    themed(made, lambda scheme: {
        "background_fill_color": scheme.page, "border_fill_color": scheme.page,
        "border_line_color": scheme.page, "border_line_width": 3, "outline_line_color": None,
    })  # fmt: skip
    if title:
        words = Title(text=title, text_font=FONT, text_font_size="14px")
        made.title = themed(words, lambda scheme: {"text_color": scheme.ink})
    for axis in made.axis:
        axis.axis_label_text_font_size = axis.major_label_text_font_size = FONT_SIZE
        axis.axis_label_text_font = axis.major_label_text_font = FONT
        axis.axis_label_text_font_style = "normal"
        axis.minor_tick_line_color = None
        themed(axis, lambda scheme: {
            "axis_label_text_color": scheme.soft, "major_label_text_color": scheme.ink,
            "axis_line_color": scheme.soft, "major_tick_line_color": scheme.soft,
        })  # fmt: skip
    for grid in made.grid:
        themed(grid, lambda scheme: {"grid_line_color": scheme.grid})
    made.add_tools(SaveTool(filename=name))
    return made


def add_legend(plot: figure, entries: Mapping[str, Sequence[Drawn]]) -> Legend:
    """Put names and what they look like below a plot, in so many columns that a phone has room."""
    names = [plain(name, LONGEST_NAME) for name in entries]
    longest = max(map(len, names), default=0)
    columns = max(1, min(len(names), PHONE_PX // (CHARACTER_PX * longest + SWATCH_PX)))
    items = [
        LegendItem(label={"value": name}, renderers=list(drawn))
        for name, drawn in zip(names, entries.values(), strict=True)
    ]
    legend = Legend(
        items=items, ncols=columns, label_text_font=FONT, label_text_font_size=FONT_SIZE,
        margin=2, location="left", orientation="horizontal", spacing=6, border_line_color=None,
    )  # fmt: skip
    themed(legend, lambda scheme: {
        "label_text_color": scheme.ink, "background_fill_color": scheme.page,
        "inactive_fill_color": scheme.page,
    })  # fmt: skip
    plot.add_layout(legend, "below")
    plot.height = (plot.height or 0) + LEGEND_ROW_PX * math.ceil(len(names) / columns)
    return legend
