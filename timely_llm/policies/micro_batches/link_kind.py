"""Whether a stage that sends can compute: learned from the times of steps."""

from __future__ import annotations

from math import isfinite, sqrt
from typing import NamedTuple


class LinkKind(NamedTuple):
    """Share of the link's time that a stage loses, learned online by weighted least squares.

    A full pipeline brings a micro-batch every `max(bottleneck, latency / micro-batches)` seconds.
    The bottleneck is `stage + link` where sends block the stage, and the larger one where they
    overlap. Each interval lies somewhere between the two predictions. Its weight is the square of
    their distance relative to the longer one: an interval shows little where they are close.

    A value: `observe` returns the next one.

    Attributes:
        lost: weighted sum of the observed shares: 0 where sends overlap, 1 where they block.
        weight: sum of the weights.
    """

    lost: float = 0.0
    weight: float = 0.0

    @property
    def blocking(self) -> bool:
        """Whether sends block; true before any sample, as in engines that send synchronously."""
        return self.lost >= 0.5 * self.weight

    @property
    def known(self) -> bool:
        """Whether the share is two standard errors from one half, for intervals that vary by 20 %.

        With as many micro-batches as stages both kinds look much alike. One micro-batch more makes
        their difference clear.
        """
        return abs(self.lost - 0.5 * self.weight) >= 2.0 * _NOISE * sqrt(self.weight) > 0.0

    def observe(
        self, stage_s: float, link_s: float, interval_s: float, stages: int, micro_batches: int
    ) -> LinkKind:
        """Return the estimate after one more sample, or this one if the sample shows nothing.

        Only intervals of a full pipeline count, with all micro-batches in flight: a stage that
        waits for requests looks like one that waits for its link. Intervals beyond one and a half
        times the longer prediction are taken for such waits.

        Args:
            stage_s: seconds of computation of the slowest stage.
            link_s: seconds of its link for the same micro-batch.
            interval_s: seconds between this step's end and the one before.
            stages: stages of the pipeline, at least 2.
            micro_batches: micro-batches in flight.
        """
        if not all(isfinite(s) and s > 0.0 for s in (stage_s, link_s, interval_s)):
            return self
        paced_s = (stages * stage_s + (stages - 1) * link_s) / micro_batches
        overlapped_s = max(stage_s, link_s, paced_s)
        blocked_s = max(stage_s + link_s, paced_s)
        apart_s = blocked_s - overlapped_s
        if apart_s <= 0.0 or interval_s > 1.5 * blocked_s:
            return self
        share = min(max((interval_s - overlapped_s) / apart_s, -1.0), 2.0)
        weight = (apart_s / blocked_s) ** 2
        return LinkKind(
            _FORGETTING * self.lost + weight * share, _FORGETTING * self.weight + weight
        )


_FORGETTING = 0.99
_NOISE = 0.2
