"""Chunks of prompts in micro-batches: with which prompts pass soonest; which due work affords."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from timely_llm.core.generation import Generation, PlanGeneration, by_kind
from timely_llm.policies.lengths import SegmentLengths
from timely_llm.policies.micro_batches.flow_shop import FlowShop
from timely_llm.policies.pipeline_time import PipelineTime

LEAST = 64
"""Fewest prompt tokens of a micro-batch: a smaller one costs more steps than it saves seconds."""

Prompts = Sequence[tuple[int, float]]
"""Tokens up to the end of each waiting prompt, and the seconds until its first token is due."""

_FIRST_GUESS = 8  # tokens of a segment, until some of its class were seen


def soonest_chunk(shop: FlowShop, tokens: int) -> int:
    """Return a power of two: the chunks of prompts after which the last of them ends first.

    Small chunks fill the pipeline sooner; each further one adds the fixed seconds of the busiest
    stage or link. Of equal ends the smallest chunk counts, so that decoding sequences wait least.

    Args:
        shop: the pipeline.
        tokens: prompt tokens that wait, at least 1.
    """

    def end_s(chunk: int) -> float:
        return (-(-tokens // chunk) - 1) * shop.busy_s(1, chunk) + shop.latency_s(chunk)

    most = max(tokens - 1, LEAST).bit_length()
    return min((1 << power for power in range(LEAST.bit_length() - 1, most + 1)), key=end_s)


class ChunkTime(NamedTuple):
    """Seconds of a cycle by the prompt tokens in its micro-batches.

    Attributes:
        step_time: of the pipeline.
        micro_batches: of a cycle.
        rows: sequences that decode in one micro-batch.
        context: tokens that they attend to.
    """

    step_time: PipelineTime
    micro_batches: int
    rows: int
    context: int

    def latency_s(self, chunk: int) -> float:
        """Return the seconds of a micro-batch with a chunk, through all stages."""
        return self.step_time.latency_s(self.rows, chunk, self.context)

    def busy_s(self, chunk: int) -> float:
        """Return its seconds at the busiest stage or link."""
        return self.step_time.occupancy_s(self.rows, chunk, self.context)

    def cycle_s(self, chunk: int) -> float:
        """Return the seconds of a cycle in which each micro-batch has a chunk."""
        return max(self.latency_s(chunk), self.micro_batches * self.busy_s(chunk))

    def apart_s(self, chunk: int) -> float:
        """Return the seconds between two turns of a micro-batch that alone has no chunk."""
        others_s = (self.micro_batches - 1) * self.busy_s(chunk)
        return max(self.latency_s(0), others_s + self.busy_s(0))

    def longest_chunk(self, most: int, limits_s: Collection[float], prompts: Prompts) -> int:
        """Return the longest chunk that all due times afford.

        A due time that is missed even with the shortest chunk does not count, and no prompt misses
        its own that meets it with `most`.

        Args:
            most: the chunk with which prompts pass soonest.
            limits_s: longest cycles with which decoding sequences are in time.
            prompts: the waiting prompts, in their order.
        """
        chunk = min(LEAST, most)
        least_s = self.cycle_s(chunk)
        limit_s = min((limit_s for limit_s in limits_s if limit_s >= least_s), default=None)
        if limit_s is None:
            return most
        while chunk < most and self.cycle_s(2 * chunk) <= limit_s:
            chunk *= 2
        in_time = self._in_time(most, prompts)
        while chunk < most and not in_time <= self._in_time(chunk, prompts):
            chunk *= 2
        return min(chunk, most)

    def _in_time(self, chunk: int, prompts: Prompts) -> set[int]:
        """Return the places of the prompts that end in time."""
        busy_s, latency_s = self.busy_s(chunk), self.latency_s(chunk)
        return {
            place
            for place, (tokens, left_s) in enumerate(prompts)
            if (-(-tokens // chunk) - 1) * busy_s + latency_s <= left_s
        }


class DueTimes:
    """Says how fast sequences must decode, by learned lengths of segments and answers.

    Args:
        to_say: tokens that an answer still says.
    """

    def __init__(self, to_say: Callable[[Generation], int]) -> None:
        self._to_say = to_say
        self._segments = SegmentLengths(_FIRST_GUESS)

    def watch(self, batch: Collection[Generation]) -> None:
        """Learn from the sequences of a cycle."""
        self._segments.watch(by_kind(batch)[0])

    def limit_s(self, now: float, generation: Generation) -> float:
        """Return the longest cycle, a token each, with which the next deliverable has some worth.

        Seconds; negative: it is too late.
        """
        tokens = 1.0
        if isinstance(generation, PlanGeneration):
            tokens = max(self._segments.to_go(generation).mean, 1.0)
        elif generation.zero_s == generation.due_s:  # the whole answer has a deadline
            tokens = self._to_say(generation)
        return (generation.zero_s - now) / tokens
