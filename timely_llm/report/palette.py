"""Colours, hatches and markers of plots, for a light and a dark page.

The colours are those of Okabe and Ito (2008), distinct for all common kinds of colour vision; some
are darker on a light page so that each stands out from it by 3 to 1 at least (WCAG 2.2, 1.4.11).
Every colour comes with a hatch and a marker, so that nothing depends on colour alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle, islice


@dataclass(frozen=True)
class Scheme:
    """Colours of one scheme.

    Attributes:
        page: behind everything.
        ink, soft: words and lines, and less important ones.
        grid: lines behind a plot.
        series: of policies, in order.
        normal, urgent: of requests.
        waiting: of robots that have nothing to do, and of listeners without a word.
    """

    page: str
    ink: str
    soft: str
    grid: str
    series: tuple[str, ...]
    normal: str
    urgent: str
    waiting: str


SCHEMES = {
    "light": Scheme(
        page="#ffffff",
        ink="#1f2328",
        soft="#59636e",
        grid="#e4e7eb",
        series=("#0072b2", "#d55e00", "#00805d", "#a8508a", "#9a6700", "#2f86bd", "#6e7781"),
        normal="#0072b2",
        urgent="#d55e00",
        waiting="#8b949e",
    ),
    "dark": Scheme(
        page="#15191f",
        ink="#e6edf3",
        soft="#9da7b3",
        grid="#2b323b",
        series=("#4da3dd", "#f08b48", "#2fbf97", "#d890bd", "#e69f00", "#8fd0f5", "#a0a8b2"),
        normal="#4da3dd",
        urgent="#f08b48",
        waiting="#7d8794",
    ),
}

HATCHES = ("", "/", ".", "x", "-", "\\", "o", "|")
MARKERS = ("circle", "square", "triangle", "diamond", "inverted_triangle", "star")


@dataclass(frozen=True)
class Look:
    """What a series looks like: its colour in each scheme, by place, a hatch and a marker."""

    color: int
    hatch: str
    marker: str


def looks(count: int) -> list[Look]:
    """Return looks for so many series.

    The colours, hatches and markers repeat after different numbers of series: the first 168 differ.
    """
    colors = range(len(SCHEMES["light"].series))
    kinds = zip(cycle(colors), cycle(HATCHES), cycle(MARKERS), strict=False)
    return [Look(*kind) for kind in islice(kinds, count)]
