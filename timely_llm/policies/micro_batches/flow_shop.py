"""A pipeline as a flow shop of stages and links, and how many micro-batches share a cycle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import zip_longest
from math import inf
from typing import NamedTuple

from timely_llm.core.errors import ConfigurationError
from timely_llm.policies.micro_batches.token_budget import even

_ALIKE = 1.01


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

    A micro-batch enters the first stage again as soon as it has left the last one and the overhead
    is over: its next tokens need the ones before. What is sent while computing goes on waits in a
    buffer without a limit.

    Attributes:
        stages: seconds of the computation of each stage.
        links: seconds of the transfer after each stage but the last.
        blocking: whether a transfer begins when both its stages are free, and keeps both from
            computing, as a synchronous send and receive do; else it overlaps.
        overhead_s: seconds of a micro-batch between the last stage and the first one, in which
            others can have both.
    """

    stages: tuple[Affine, ...]
    links: tuple[Affine, ...]
    blocking: bool = True
    overhead_s: float = 0.0

    def latency_s(self, tokens: float) -> float:
        """Return the seconds of a micro-batch alone, until it can enter the first stage again.

        Eq. 1 of Ahn et al. 2025, for stages and links that may differ, with the overhead.
        """
        return self.overhead_s + sum(
            base_s + token_s * tokens for base_s, token_s in (*self.stages, *self.links)
        )

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
                left_s[job] = now + self.overhead_s
            first_s, second_s = second_s, now
        return Rolled(second_s - first_s, first_s)

    def rounded(self, digits: int = 2) -> FlowShop:
        """Return the shop with seconds rounded to significant digits, to be cached by."""

        def near(seconds: float) -> float:
            return float(f"{seconds:.{digits}g}")

        def all_near(costs: tuple[Affine, ...]) -> tuple[Affine, ...]:
            return tuple(Affine(near(base_s), near(token_s)) for base_s, token_s in costs)

        return FlowShop(
            all_near(self.stages), all_near(self.links), self.blocking, near(self.overhead_s)
        )


def smallest_gap(
    stages: int,
    most: int,
    tokens: float,
    compute_s: Callable[[float], float],
    link_s: Callable[[float], float],
) -> int:
    """Return the number of micro-batches by Algorithm 2 of Ahn et al. 2025.

    It minimizes the difference between the first token's time (Eq. 1) and the time that the first
    stage computes (Eq. 2). Of equal differences the smallest number counts, by the strict
    comparison of line 9. A limit below the number of stages leaves that number, by line 1. Sizes
    are not rounded to whole tokens, by line 4.

    Args:
        stages: stages of the pipeline.
        most: most micro-batches.
        tokens: tokens of all micro-batches together.
        compute_s: seconds of a stage by the tokens of a micro-batch.
        link_s: seconds of a link by the tokens of a micro-batch.
    """
    best, best_gap_s = stages, inf
    for count in range(stages, most + 1):
        one_s, sent_s = compute_s(tokens / count), link_s(tokens / count)
        first_token_s = stages * one_s + (stages - 1) * sent_s
        gap_s = abs(first_token_s - count * one_s)
        if gap_s < best_gap_s:
            best, best_gap_s = count, gap_s
    return best


def shortest_cycle(shop: FlowShop, tokens: int, most: int, least: int = 1) -> int:
    """Return the number of even micro-batches with the shortest cycle, by rolls of the flow shop.

    Of cycles that differ by less than a hundredth the largest number counts: its micro-batches are
    the smallest, so the pipeline fills first, and new work can enter soonest. There are at most as
    many micro-batches as tokens, or `least`. The choice is cached by the shop and by the tokens,
    which are rounded up to five binary digits: exact up to 32, else at most a sixteenth more.

    Args:
        shop: the pipeline; `FlowShop.rounded` makes learned seconds cacheable.
        tokens: tokens of all micro-batches together.
        most: most micro-batches.
        least: fewest micro-batches, at least 1 and at most `most`.

    Raises:
        ConfigurationError: if `least` is not in 1 to `most`.
    """
    if not 1 <= least <= most:
        raise ConfigurationError(f"at least {least} micro-batches: allowed are 1 to {most}")
    shift = max(tokens.bit_length() - 5, 0)
    return _shortest_cycle(shop, -(-tokens >> shift) << shift, most, least)


@lru_cache(maxsize=4096)
def _shortest_cycle(shop: FlowShop, tokens: int, most: int, least: int) -> int:
    cycles_s: dict[int, float] = {}
    shortest_s = inf
    for count in range(least, max(min(most, tokens), least) + 1):
        sizes = even(tokens, count)
        if shop.bound_s(sizes) <= shortest_s * _ALIKE:
            cycles_s[count] = shop.roll(sizes).cycle_s
            shortest_s = min(shortest_s, cycles_s[count])
    return max(count for count, cycle_s in cycles_s.items() if cycle_s <= shortest_s * _ALIKE)
