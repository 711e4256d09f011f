"""Step times of Llama-2-13B in stages on boxes and links, and the split of layers over boxes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from math import inf
from typing import NamedTuple

from timely_llm.core.errors import ConfigurationError, EngineError
from timely_llm.engines.pipelined import PipelineProfile, StageLink
from timely_llm.engines.simulated import Profile

LAYERS = 40
LAYER_GB = 26.0 / LAYERS
"""Weights of a layer: 13 billion values of 2 bytes, embeddings among them."""
LAYER_KV_GB = 2 * 5120 * 2 / 1e9
"""KV of one token in a layer: keys and values of 5,120 values, 2 bytes each."""
SPARE_GB = 1.43
"""Activations and buffers of a box. Not measured: it leaves a 12 GB box 14,000 tokens of KV."""
USED = 0.9
"""Share of a box's memory that the engine takes: vLLM's default."""

BASE_S, TOKEN_S = 0.0153, 0.001455
COMPUTE_TOKEN_S = 0.00015
SLOW_MBIT = 100.0
LINK_TOKEN_S = TOKEN_S - COMPUTE_TOKEN_S

SOURCE = (
    "derived from Ahn et al. 2025, Table 1: the baseline's processing times of 64, 128 and 256"
    " requests of 256 prompt and 256 answer tokens are a line, 15.3 ms a micro-batch and 1.455 ms a"
    " token; the part of computing, 0.15 ms a token, is this package's, the rest is the transfer at"
    " 100 Mbit/s, as much as 16.3 kB take (vLLM sends 20.5 kB: hidden state and residual); other"
    " bandwidths in proportion; KV by arithmetic: 90 % of the memory less weights and 1.43 GB"
)


class Box(NamedTuple):
    """A box with a part of the layers.

    Attributes:
        speed: how fast it computes, over an RTX 4070.
        memory_gb: memory of its GPU.
    """

    speed: float
    memory_gb: float

    def step_times(self, name: str, layers: int) -> Profile:
        """Return the seconds of a step in some of the layers."""
        share = layers / (LAYERS / 4) / self.speed
        token_s = share * COMPUTE_TOKEN_S
        return Profile(name, SOURCE, share * BASE_S, token_s, token_s)

    def kv_tokens(self, layers: int) -> int:
        """Return the tokens of KV that fit beside the weights of some layers."""
        free_gb = USED * self.memory_gb - SPARE_GB - layers * LAYER_GB
        return max(int(free_gb / (layers * LAYER_KV_GB)), 0)

    def most_layers(self, kv_tokens: int) -> int:
        """Return the most layers that leave room for some tokens of KV."""
        layer_gb = LAYER_GB + kv_tokens * LAYER_KV_GB
        return int((USED * self.memory_gb - SPARE_GB) / layer_gb)


class Boxes(NamedTuple):
    """Boxes in a row.

    Attributes:
        about: what they are, for users.
        boxes: in the order of the stages.
        layers: of each; empty: as `split_layers` finds for a micro-batch of `SPLIT_TOKENS`.
    """

    about: str
    boxes: tuple[Box, ...]
    layers: tuple[int, ...] = ()


DEFAULT_PIPELINE = "rtx4070x4-llama2-13b"
RTX_4070, TWICE = Box(1.0, 12.0), Box(2.0, 24.0)
SPLIT_TOKENS, SPLIT_KV_TOKENS = 16, 14_000
"""Micro-batch for which layers are split, and the KV that each stage must have room for."""

PIPELINES: Mapping[str, Boxes] = {
    DEFAULT_PIPELINE: Boxes("four RTX 4070, 10 layers each", (RTX_4070,) * 4, (10,) * 4),
    "boxes2-llama2-13b": Boxes(
        "two boxes as fast as an RTX 4070 with 24 GB, 20 layers each", (Box(1.0, 24.0),) * 2,
        (20,) * 2,
    ),
    "one-box-llama2-13b": Boxes(
        "one box as fast as an RTX 4070 with 48 GB, which holds the model", (Box(1.0, 48.0),),
        (LAYERS,),
    ),
    "unlike4-llama2-13b": Boxes(
        "two boxes twice as fast with 24 GB, two RTX 4070, 10 layers each",
        (TWICE, TWICE, RTX_4070, RTX_4070), (10,) * 4,
    ),
    "unlike4-split-llama2-13b": Boxes(
        "the same unlike boxes, layers split by what each box and link can do",
        (TWICE, TWICE, RTX_4070, RTX_4070),
    ),
}  # fmt: skip
"""Pipelines by name."""


def pipeline_profile(
    name: str = DEFAULT_PIPELINE,
    mbit: float = SLOW_MBIT,
    blocking: bool = True,
    kv_limit: bool = True,
) -> PipelineProfile:
    """Return a pipeline of `PIPELINES`.

    Args:
        name: its name.
        mbit: bandwidth of each link, Mbit/s.
        blocking: whether transfers keep stages from computing.
        kv_limit: whether the memory of the boxes limits the KV.

    Raises:
        EngineError: there is no pipeline of that name, or the bandwidth is not above 0.
    """
    if name not in PIPELINES:
        raise EngineError(f"unknown pipeline {name!r}: choose one of {', '.join(PIPELINES)}")
    if not (math.isfinite(mbit) and mbit > 0.0):
        raise EngineError(f"the bandwidth of a link must be above 0 Mbit/s, not {mbit}")
    about, boxes, layers = PIPELINES[name]
    link = StageLink(0.0, LINK_TOKEN_S * SLOW_MBIT / mbit)
    layers = layers or _split(boxes, link, blocking)
    used = [(box, number) for box, number in zip(boxes, layers, strict=True) if number]
    return PipelineProfile(
        name,
        f"{about}; {SOURCE}",
        tuple(box.step_times(name, number) for box, number in used),
        (link,) * (len(used) - 1),
        blocking,
        tuple(box.kv_tokens(number) for box, number in used) if kv_limit else (),
    )


def _split(boxes: tuple[Box, ...], link: StageLink, blocking: bool) -> tuple[int, ...]:
    """Return the layers of each box for the least bottleneck."""
    step_s: list[Callable[[int], float]] = [box.step_times("", 1).step_s for box in boxes]
    send_s = link.transfer_s(SPLIT_TOKENS)
    return split_layers(
        [[one(SPLIT_TOKENS)] * LAYERS for one in step_s],
        [[send_s] * len(boxes)] * len(boxes),
        [box.most_layers(SPLIT_KV_TOKENS) for box in boxes],
        blocking,
    ).layers


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
