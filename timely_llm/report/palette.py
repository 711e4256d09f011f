"""All colours of timelines and charts: on a light page, on a dark page, and in a terminal.

PNG files, the HTML page and the terminal take their colours from this module only. The hues are
those of Okabe and Ito (2008), which differ for all common kinds of colour vision. Each `strong`
colour has a contrast of at least 3 to 1 with its page (WCAG 2.2, 1.4.11). `ink` has a contrast of
at least 4.5 to 1 with each `pale` colour (1.4.3). Hatches and markers repeat the information of
colours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Literal

Tone = Literal["normal", "urgent", "answer", "failed"]
"""The meaning of a bar's colour: the class of its request, or a failed segment."""


@dataclass(frozen=True)
class Hue:
    """Two colours of one hue: for outlines and the model's work, and for labelled faces."""

    strong: str
    pale: str


@dataclass(frozen=True)
class Scheme:
    """Colours on one kind of page.

    Attributes:
        page: background of the page.
        raised: background of buttons and table heads.
        ink, soft: text, and less important text.
        line: borders and grid lines.
        link: links and the focus outline.
        idle: hatch of a robot that has nothing to execute, or of a listener without words.
        series: colours of a chart's series, in order.
        tones: colours of bars.
        servers: colours of the model's work at each of several servers, in order.
    """

    page: str
    raised: str
    ink: str
    soft: str
    line: str
    link: str
    idle: str
    series: tuple[str, ...]
    tones: Mapping[Tone, Hue]
    servers: tuple[Hue, ...]


# Each pair of colours is for a light and for a dark page.
_PLAIN = {
    "page": ("#ffffff", "#15191f"),
    "raised": ("#f6f8fa", "#1d232b"),
    "ink": ("#1f2328", "#e6edf3"),
    "soft": ("#59636e", "#9da7b3"),
    "line": ("#d1d9e0", "#353d47"),
    "link": ("#0860ca", "#6cb6ff"),
    "idle": ("#8b949e", "#7d8794"),
}
_SERIES = (
    ("#0072b2", "#4da3dd"),
    ("#d55e00", "#f08b48"),
    ("#00805d", "#2fbf97"),
    ("#a8508a", "#d890bd"),
    ("#9a6700", "#e69f00"),
    ("#2f86bd", "#8fd0f5"),
    ("#6e7781", "#a0a8b2"),
)
_TONES: Mapping[Tone, tuple[Hue, Hue]] = {
    "normal": (Hue("#0072b2", "#bfddf0"), Hue("#4da3dd", "#1c415b")),
    "urgent": (Hue("#d55e00", "#f8cdb0"), Hue("#f08b48", "#5f3417")),
    "answer": (Hue("#009e73", "#bfe7dc"), Hue("#2fbf97", "#134a3c")),
    "failed": (Hue("#a8508a", "#f0d3e4"), Hue("#d890bd", "#553047")),
}
_SERVERS: tuple[tuple[Hue, Hue], ...] = (
    (Hue("#6a3d9a", "#dccdea"), Hue("#b18ae0", "#3c2a55")),
    (Hue("#8a6d00", "#efe3b0"), Hue("#d9b93a", "#4c4012")),
    (Hue("#0f7c8a", "#bfe3e8"), Hue("#3fc3d2", "#12454c")),
    (Hue("#1f2328", "#d0d4d9"), Hue("#e6edf3", "#444c56")),
    (Hue("#b3245f", "#f3c9da"), Hue("#f077a8", "#5a1c38")),
    (Hue("#4f7a00", "#d9e6b8"), Hue("#9ccc3c", "#35480f")),
    (Hue("#6e7781", "#d9dde2"), Hue("#a0a8b2", "#3a424b")),
    (Hue("#8f3d1d", "#e8cdbf"), Hue("#d98a66", "#4f2717")),
)


def _scheme(side: int) -> Scheme:
    return Scheme(
        **{name: pair[side] for name, pair in _PLAIN.items()},
        series=tuple(pair[side] for pair in _SERIES),
        tones={tone: pair[side] for tone, pair in _TONES.items()},
        servers=tuple(pair[side] for pair in _SERVERS),
    )


LIGHT = _scheme(0)
DARK = _scheme(1)
SCHEMES = {"light": LIGHT, "dark": DARK}

TERMINAL: Mapping[Tone, str] = {
    "normal": "blue",
    "urgent": "red",
    "answer": "green",
    "failed": "magenta",
}
"""The tones as names of a terminal's own colours, which fit its background."""

TERMINAL_SERVERS = (
    "magenta", "yellow", "cyan", "white", "green", "bright_magenta", "bright_black", "bright_yellow"
)  # fmt: skip
"""The same for several servers, in order."""


def server_color(name: str) -> str:
    """Return the colour of one of several servers in a terminal, by the number in its name."""
    number = int("".join(filter(str.isdecimal, name)) or 1) - 1
    return TERMINAL_SERVERS[number % len(TERMINAL_SERVERS)]


HATCHES = ("", "/", ".", "x", "-", "\\", "o", "|")
MARKERS = ("circle", "square", "triangle", "diamond", "inverted_triangle", "star")


@dataclass(frozen=True)
class Look:
    """The look of a chart's series: the index of its colour in a scheme, a hatch and a marker."""

    color: int
    hatch: str
    marker: str


def looks(count: int) -> list[Look]:
    """Return the looks of `count` series.

    Colours, hatches and markers repeat after different numbers of series: the first 168 differ.
    """
    colors = range(len(LIGHT.series))
    kinds = zip(cycle(colors), cycle(HATCHES), cycle(MARKERS), strict=False)
    return [Look(*kind) for kind in islice(kinds, count)]


def style_variables() -> str:
    """Return all colours as CSS variables that follow the reader's colour scheme."""
    pairs = {**_PLAIN, **{f"series-{number}": pair for number, pair in enumerate(_SERIES)}}
    for tone, (light, dark) in _TONES.items():
        pairs[tone] = light.strong, dark.strong
        pairs[f"{tone}-pale"] = light.pale, dark.pale
    for number, (light, dark) in enumerate(_SERVERS):
        pairs[f"server-{number}"] = light.strong, dark.strong
        pairs[f"server-{number}-pale"] = light.pale, dark.pale
    lines = (f"--{name}:light-dark({light},{dark})" for name, (light, dark) in pairs.items())
    return ":root{" + ";".join(lines) + "}"
