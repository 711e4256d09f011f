"""Layers on unlike boxes, beside all splits there are."""

from __future__ import annotations

from itertools import product
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from test.examples import examples
from timely_llm.core.errors import ConfigurationError
from timely_llm.engines.pipeline_profiles import LayerSplit, split_layers


def cost(
    split: tuple[int, ...], layers_s: list[list[float]], links_s: list[list[float]], blocking: bool
) -> tuple[float, float]:
    """Return bottleneck and latency of a split."""
    used = [box for box, count in enumerate(split) if count]
    busy_s, latency_s, first = 0.0, 0.0, 0
    for place, box in enumerate(used):
        compute_s = sum(layers_s[box][first : first + split[box]])
        first += split[box]
        send_s = links_s[box][used[place + 1]] if place + 1 < len(used) else 0.0
        busy_s = max(busy_s, compute_s + send_s if blocking else max(compute_s, send_s))
        latency_s += compute_s + send_s
    return busy_s, latency_s


_seconds = st.sampled_from([0.0, 1.0, 2.0, 3.0, 5.0, 8.0])  # few values, so that ties are common


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[list[float]], list[list[float]], list[int], bool]:
    boxes, layers = draw(st.integers(1, 4)), draw(st.integers(1, 6))

    def table(columns: int) -> list[list[float]]:
        row = st.lists(_seconds, min_size=columns, max_size=columns)
        return draw(st.lists(row, min_size=boxes, max_size=boxes))

    most = draw(st.lists(st.integers(0, 6), min_size=boxes, max_size=boxes))
    return table(layers), table(boxes), most, draw(st.booleans())


@examples(300)
@given(problems())
def test_no_split_has_a_smaller_bottleneck_or_as_small_a_one_and_less_latency(
    problem: tuple[list[list[float]], list[list[float]], list[int], bool],
) -> None:
    layers_s, links_s, most, blocking = problem
    layers = len(layers_s[0])
    fitting = [split for split in product(*(range(m + 1) for m in most)) if sum(split) == layers]
    if not fitting:
        with pytest.raises(ConfigurationError, match="fit on no split"):
            split_layers(layers_s, links_s, most, blocking)
        return
    found = split_layers(layers_s, links_s, most, blocking)
    assert found.layers in fitting
    assert found[1:] == cost(found.layers, layers_s, links_s, blocking)
    assert found[1:] == min(cost(split, layers_s, links_s, blocking) for split in fitting)


def test_a_box_twice_as_fast_has_twice_the_layers() -> None:
    found = split_layers([[2.0] * 6, [1.0] * 6], [[0.0, 1.0], [0.0, 0.0]])
    assert found == LayerSplit((2, 4), 4.0, 9.0)


def test_a_box_behind_a_slow_link_is_left_out() -> None:
    layers_s = [[1.0] * 4, [1.0] * 4, [1.0] * 4]
    links_s = [[0.0, 9.0, 1.0], [0.0, 0.0, 9.0], [0.0, 0.0, 0.0]]
    assert split_layers(layers_s, links_s).layers == (2, 0, 2)


def test_memory_limits_the_layers_of_a_box() -> None:
    layers_s, links_s = [[1.0] * 6, [1.0] * 6], [[0.0, 0.0], [0.0, 0.0]]
    assert split_layers(layers_s, links_s, most=[2, 6]) == LayerSplit((2, 4), 4.0, 6.0)


def test_a_send_that_blocks_takes_layers_from_its_box() -> None:
    layers_s, links_s = [[1.0] * 6, [1.0] * 6], [[0.0, 2.0], [0.0, 0.0]]
    assert split_layers(layers_s, links_s).layers == (3, 3)
    assert split_layers(layers_s, links_s, blocking=True) == LayerSplit((2, 4), 4.0, 8.0)


def test_a_layer_can_be_bound_to_a_box() -> None:
    layers_s, links_s = [[1.0, 1.0, 1.0, inf], [inf, 1.0, 1.0, 1.0]], [[0.0, 1.0], [0.0, 0.0]]
    assert split_layers(layers_s, links_s).layers == (2, 2)


def test_a_model_that_fits_nowhere_is_refused_in_a_sentence() -> None:
    with pytest.raises(
        ConfigurationError, match=r"4 layers fit on no split of 2 boxes that hold \[1, 2\]"
    ):
        split_layers([[1.0] * 4] * 2, [[0.0] * 2] * 2, [1, 2])
