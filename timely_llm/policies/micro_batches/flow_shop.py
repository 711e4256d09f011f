"""A pipeline as a flow shop: stages and links in a row, each with one micro-batch at a time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import NamedTuple


class Affine(NamedTuple):
    """Seconds that are affine in the tokens of a micro-batch.

    Attributes:
        base_s: seconds of a micro-batch.
        token_s: seconds of each of its tokens.
    """

    base_s: float
    token_s: float

    def seconds(self, tokens: float) -> float:
        """Return the seconds of a micro-batch of `tokens`."""
        return self.base_s + self.token_s * tokens


class Rolled(NamedTuple):
    """What a roll of the flow shop found.

    Attributes:
        cycle_s: seconds from one pass of all micro-batches to the next, in the long run.
        first_s: seconds of the first pass, from an empty pipeline until its last end.
    """

    cycle_s: float
    first_s: float


class FlowShop(NamedTuple):
    """A pipeline of stages and links that process micro-batches in order, one at a time.

    A micro-batch enters the first stage again as soon as it has left the last one: its next tokens
    need the ones before. What is sent while computing goes on waits in a buffer without a limit.

    Attributes:
        stages: seconds of the computation of each stage.
        links: seconds of the transfer after each stage but the last.
        blocking: whether a transfer begins when both its stages are free, and keeps both from
            computing, as a synchronous send and receive do; else it overlaps.
    """

    stages: tuple[Affine, ...]
    links: tuple[Affine, ...]
    blocking: bool = True

    def latency_s(self, tokens: float) -> float:
        """Return the seconds of a micro-batch alone, from the first stage to the last.

        Eq. 1 of Ahn et al. 2025, for stages and links that may differ.
        """
        return sum(base_s + token_s * tokens for base_s, token_s in (*self.stages, *self.links))

    def busy_s(self, micro_batches: int, tokens: int) -> float:
        """Return the seconds that micro-batches occupy the busiest stage or link.

        Args:
            micro_batches: number of micro-batches.
            tokens: tokens of all of them together.
        """
        stages = [base_s * micro_batches + token_s * tokens for base_s, token_s in self.stages]
        links = [base_s * micro_batches + token_s * tokens for base_s, token_s in self.links]
        if self.blocking:
            for place, link_s in enumerate(links):
                stages[place] += link_s
                stages[place + 1] += link_s
            return max(stages)
        return max(stages + links)

    def bound_s(self, sizes: Sequence[int]) -> float:
        """Return the larger one of `busy_s` and the latency: no cycle is shorter.

        Micro-batches of one size have this cycle.
        """
        return max(self.busy_s(len(sizes), sum(sizes)), self.latency_s(max(sizes)))

    def roll(self, sizes: Sequence[int]) -> Rolled:
        """Return the cycle of micro-batches of `sizes` tokens, from two passes of all of them.

        The cycle is the time between the ends of both passes: exact for micro-batches of one size.
        """
        costs = {
            size: [
                *zip_longest(
                    [cost.seconds(size) for cost in self.stages],
                    [cost.seconds(size) for cost in self.links],
                    fillvalue=0.0,
                )
            ]
            for size in {*sizes}
        }
        jobs = [costs[size] for size in sizes]
        stages_s, links_s = [0.0] * len(self.stages), [0.0] * len(self.stages)  # free from then on
        left_s, last = [0.0] * len(sizes), len(self.stages) - 1
        first_s = second_s = 0.0
        for _ in range(2):
            for job, cost in enumerate(jobs):
                now = left_s[job]
                for stage, (compute_s, send_s) in enumerate(cost):
                    if stages_s[stage] > now:
                        now = stages_s[stage]
                    now += compute_s
                    stages_s[stage] = now
                    if stage == last:
                        break
                    free_s = stages_s[stage + 1] if self.blocking else links_s[stage]
                    if free_s > now:
                        now = free_s
                    now += send_s
                    if self.blocking:
                        stages_s[stage] = stages_s[stage + 1] = now
                    else:
                        links_s[stage] = now
                left_s[job] = now
            first_s, second_s = second_s, now
        return Rolled(second_s - first_s, first_s)

    def rounded(self, digits: int = 2) -> FlowShop:
        """Return the shop with seconds rounded to significant digits, to be cached by."""

        def near(costs: tuple[Affine, ...]) -> tuple[Affine, ...]:
            return tuple(
                Affine(float(f"{base_s:.{digits}g}"), float(f"{token_s:.{digits}g}"))
                for base_s, token_s in costs
            )

        return FlowShop(near(self.stages), near(self.links), self.blocking)
