"""The rows of a run's picture: what each robot and each person asked, was given and did with it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection

from timely_llm.demo.requests import Request
from timely_llm.demo.talks import Span, Talk

WIDTH_PX, DPI = 1600, 150
LEFT, RIGHT = 0.065, 0.99
MIN_PX = 2.0
FONT_PT, LABELS_PT = 8.5, (7.0, 6.0)
# Blue, vermillion and green of Okabe and Ito: distinct for all common kinds of colour vision.
DARK = {False: "#0072B2", True: "#D55E00"}
PALE = {False: "#BFDDF0", True: "#F8CDB0"}
TALK_DARK, TALK_PALE = "#009E73", "#BFE7DC"
WAIT_FACE, WAIT_HATCH, INK = "#F4F4F4", "#B4B4B4", "#222222"
WAIT_STYLE: dict[str, Any] = {"fc": WAIT_FACE, "ec": WAIT_HATCH, "hatch": "//////", "lw": 0}
# Within a row of height 1, measured upwards from its middle.
GENERATION, EXECUTION, DELIVERY, DUE = (0.06, 0.23), (-0.42, 0.02), (0.25, 0.34), 0.42


@dataclass(frozen=True)
class Rows:
    """Where rows are drawn.

    Attributes:
        axes: a row has the height 1.
        origin_s: the time that is 0 in the picture.
        window: what is shown, in seconds from the origin.
    """

    axes: Axes
    origin_s: float
    window: Span

    def requests(self, placed: list[tuple[Request, float]], end_s: float) -> None:
        """Draw requests of robots, each with the middle of its row; the run ended at `end_s`."""
        for urgent in (False, True):
            of_class = [(request, y) for request, y in placed if request.urgent == urgent]
            style = {"fc": PALE[urgent], "ec": DARK[urgent], "lw": 0.7, "zorder": 2}
            self._fill(EXECUTION, ((r.waits(end_s), y) for r, y in of_class), WAIT_STYLE)
            self._generation(of_class, DARK[urgent])
            calls = [(call, y) for request, y in of_class for call in request.execution()]
            self._fill(EXECUTION, (([(c.start_s, c.end_s)], y) for c, y in calls), style)
            for call, y in calls:
                self._label(call.text, (call.start_s, call.end_s), y)
        delivered = [(piece, y) for request, y in placed for piece in request.delivered]
        self._marks([(piece.at_s, piece.due_s, y) for piece, y in delivered])
        for request, y in placed:
            if request.outcome and request.outcome.kind == "canceled":
                at_s = request.outcome.at_s - self.origin_s
                self.axes.plot(at_s, y + sum(EXECUTION) / 2, "x", color=INK, markersize=5,
                               markeredgewidth=1.3, zorder=5)  # fmt: skip

    def talks(self, placed: list[tuple[Talk, float]], end_s: float) -> None:
        """Draw questions of people, each with the middle of its row; the run ended at `end_s`.

        Below: when there were words to take in, and hatched, when the person waited for some.
        """
        style = {"fc": TALK_PALE, "ec": TALK_DARK, "lw": 0.7, "zorder": 2}
        waits = (
            ([(t.asked_s, t.heard[0][0] if t.heard else _end_s(t, end_s)), *t.stalled], y)
            for t, y in placed
        )
        self._fill(EXECUTION, waits, WAIT_STYLE)
        self._generation(placed, TALK_DARK)
        self._fill(EXECUTION, ((talk.heard, y) for talk, y in placed), style)
        for talk, y in placed:
            for span in talk.heard[:1]:
                self._label(talk.question, span, y)
        self._marks(
            [(t.chunks[0].at_s, t.arrived_s + t.slo.ttft_s, y) for t, y in placed if t.chunks]
        )

    def _generation(self, placed: Sequence[tuple[Request | Talk, float]], color: str) -> None:
        slices = (([(s.start_s, s.end_s) for s in work.slices], y) for work, y in placed)
        self._fill(GENERATION, slices, {"fc": color, "lw": 0, "zorder": 2})

    def _fill(
        self, band: Span, rows: Iterable[tuple[list[Span], float]], style: dict[str, Any]
    ) -> None:
        """Draw spans as boxes in a band of their rows, none too narrow to be seen."""
        least_s = MIN_PX * (self.window[1] - self.window[0]) / (WIDTH_PX * (RIGHT - LEFT))
        across, up = [], []
        for spans, y in rows:
            for span in map(self._from_origin, spans):
                if within(span, self.window):
                    across.append((span[0], max(span[1], span[0] + least_s)))
                    up.append((y + band[0], y + band[1]))
        self.axes.add_collection(PolyCollection(boxes(across, up), **style))

    def _marks(self, delivered: list[tuple[float, float, float]]) -> None:
        """Mark when something was delivered and due, each with the middle of its row."""
        at_s, due_s, ys = np.array(delivered).reshape(-1, 3).T
        at_s, due_s = at_s - self.origin_s, due_s - self.origin_s
        self.axes.vlines(
            at_s, ys + DELIVERY[0], ys + DELIVERY[1], color=INK, linewidth=0.7, zorder=4
        )
        for late, face in ((at_s <= due_s, "white"), (at_s > due_s, INK)):
            self.axes.plot(due_s[late], ys[late] + DUE, "v", markersize=3.8, markerfacecolor=face,
                           markeredgecolor=INK, markeredgewidth=0.6, zorder=4)  # fmt: skip

    def _label(self, text: str, at: Span, y: float) -> None:
        """Write a text into its box, if there is room."""
        span = self._from_origin(at)
        start_s, end_s = max(span[0], self.window[0]), min(span[1], self.window[1])
        share = (end_s - start_s) / (self.window[1] - self.window[0])
        room_pt = share * WIDTH_PX * (RIGHT - LEFT) / DPI * 72 - 3.5
        for size_pt in LABELS_PT:
            if len(text) * size_pt * 0.61 < room_pt:
                self.axes.text((start_s + end_s) / 2, y + sum(EXECUTION) / 2, text, color=INK,
                               fontsize=size_pt, ha="center", va="center", zorder=3)  # fmt: skip
                return

    def _from_origin(self, span: Span) -> Span:
        return span[0] - self.origin_s, span[1] - self.origin_s


def boxes(across: list[Span], up: list[Span]) -> list[list[Span]]:
    """Return the corners of boxes."""
    return [
        [(left, low), (right, low), (right, high), (left, high)]
        for (left, right), (low, high) in zip(across, up, strict=True)
    ]


def within(span: Span, window: Span) -> bool:
    """Return whether some of a span is in a window."""
    return span[1] > window[0] and span[0] < window[1]


def _end_s(talk: Talk, end_s: float) -> float:
    return talk.outcome.at_s if talk.outcome else end_s
