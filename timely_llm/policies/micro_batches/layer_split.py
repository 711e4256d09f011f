"""How many layers of a model each of several unlike boxes computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import inf
from typing import NamedTuple

from timely_llm.core.errors import ConfigurationError


class LayerSplit(NamedTuple):
    """Layers of a model on boxes.

    Attributes:
        layers: number of layers of each box, in the order of the boxes; 0 for a box left out.
        bottleneck_s: seconds that a micro-batch occupies the busiest box or link.
        latency_s: seconds of a micro-batch through all of them.
    """

    layers: tuple[int, ...]
    bottleneck_s: float
    latency_s: float


def split_layers(
    layers_s: Sequence[Sequence[float]],
    links_s: Sequence[Sequence[float]],
    most: Sequence[int] | None = None,
    blocking: bool = False,
) -> LayerSplit:
    """Return the split with the least bottleneck, and among such splits the least latency.

    Dynamic programming over the first layer and the box of a stage, as EdgeShard has for throughput
    (Zhang et al. 2025). There it searches over sets of boxes in any order; here the boxes have an
    order and any of them may be left out, which takes steps in the square of layers and boxes.
    A second pass over the stages that keep the least bottleneck finds the least latency; EdgeShard
    has one objective or the other. Exact in both.

    Args:
        layers_s: for each box, seconds of each layer for a micro-batch; infinity: not on this box.
        links_s: for each box, seconds to send a micro-batch to each box; those to later ones count.
        most: for each box, most layers that its memory can hold with their KV; None: no limit.
        blocking: whether a box computes nothing while it sends: its send then adds to its layers.

    Raises:
        ConfigurationError: if no split fits.
    """
    boxes, layers = len(layers_s), len(layers_s[0])
    most = most if most is not None else (layers,) * boxes

    def stages(box: int, first: int, limit_s: float) -> list[tuple[int, int, float, float]]:
        """Return end, next box, bottleneck and latency of each stage that begins at a layer.

        The next box is `boxes` where the stage is the last one.
        """
        found, compute_s = [], 0.0
        for end in range(first + 1, min(first + most[box], layers) + 1):
            compute_s += layers_s[box][end - 1]
            for later in range(box + 1, boxes) if end < layers else (boxes,):
                send_s = links_s[box][later] if end < layers else 0.0
                busy_s = compute_s + send_s if blocking else max(compute_s, send_s)
                if busy_s <= limit_s:
                    found.append((end, later, busy_s, compute_s + send_s))
        return found

    def best(
        join: Callable[[float, float], float], column: int, limit_s: float
    ) -> tuple[float, tuple[tuple[int, int], ...]]:
        """Return the least joined value of all stages, and each stage's box and layers."""

        @lru_cache(None)
        def rest(box: int, first: int) -> tuple[float, tuple[tuple[int, int], ...]]:
            value = inf
            chosen: tuple[tuple[int, int], ...] = ()
            for stage in stages(box, first, limit_s):
                end, later = stage[:2]
                after, others = rest(later, end) if end < layers else (0.0, ())
                if (joined := join(stage[column], after)) < value:
                    value, chosen = joined, ((box, end - first), *others)
            return value, chosen

        return min(rest(box, 0) for box in range(boxes))

    bottleneck_s, _ = best(max, 2, inf)
    if bottleneck_s == inf:
        raise ConfigurationError(
            f"{layers} layers fit on no split of {boxes} boxes that hold {list(most)}"
        )
    latency_s, chosen = best(float.__add__, 3, bottleneck_s)
    of_box = dict(chosen)
    return LayerSplit(tuple(of_box.get(b, 0) for b in range(boxes)), bottleneck_s, latency_s)
