"""Pipelines of boxes: times as in the paper's table, KV by memory, layers by what boxes can do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely_llm.core.errors import EngineError
from timely_llm.engines.pipeline_profiles import (
    DEFAULT_PIPELINE,
    LAYERS,
    PIPELINES,
    TWICE,
    pipeline_profile,
)


@given(st.integers(1, 4096))
def test_a_micro_batch_takes_a_stage_and_its_link_what_the_table_implies(tokens: int) -> None:
    made = pipeline_profile()
    seconds = made.stages[0].step_s(tokens) + made.links[0].transfer_s(tokens)
    assert seconds == pytest.approx(0.0153 + 0.001455 * tokens)


def test_a_card_of_12_gb_holds_14000_tokens_of_kv_beside_a_quarter_of_the_model() -> None:
    limits = pipeline_profile().kv_tokens
    assert len(set(limits)) == 1
    assert limits[0] == pytest.approx(14_000, rel=0.01)
    assert pipeline_profile(kv_limit=False).kv_tokens == ()


def test_ten_times_the_bandwidth_sends_ten_times_as_fast() -> None:
    slow, fast = pipeline_profile(mbit=100.0).links[0], pipeline_profile(mbit=1000.0).links[0]
    assert slow.transfer_s(64) == pytest.approx(10 * fast.transfer_s(64))


def test_one_box_has_no_link_and_takes_four_times_as_long_as_a_quarter() -> None:
    one, four = pipeline_profile("one-box-llama2-13b"), pipeline_profile()
    assert one.links == ()
    assert one.stages[0].step_s(8) == pytest.approx(4 * four.stages[0].step_s(8))


@pytest.mark.parametrize("blocking", [True, False])
def test_a_split_is_no_worse_than_equal_parts_and_leaves_room_for_kv(blocking: bool) -> None:
    split = pipeline_profile("unlike4-split-llama2-13b", blocking=blocking)
    equal = pipeline_profile("unlike4-llama2-13b", blocking=blocking)
    assert min(split.kv_tokens) >= 14_000
    slowest = [max(stage.base_s for stage in made.stages) for made in (split, equal)]
    assert slowest[0] <= 1.06 * slowest[1]
    assert sum(s.base_s for s in split.stages) < sum(s.base_s for s in equal.stages)


def test_every_pipeline_has_all_layers_and_room_for_kv() -> None:
    for name, (_, _, layers) in PIPELINES.items():
        assert sum(layers or (LAYERS,)) == LAYERS
        assert min(pipeline_profile(name).kv_tokens) > 10_000
    assert TWICE.kv_tokens(LAYERS) == 0


def test_an_unknown_pipeline_and_no_bandwidth_are_refused_in_a_sentence() -> None:
    with pytest.raises(
        EngineError, match=f"unknown pipeline 'x': choose one of {DEFAULT_PIPELINE}"
    ):
        pipeline_profile("x")
    with pytest.raises(EngineError, match="must be above 0 Mbit/s, not 0"):
        pipeline_profile(mbit=0.0)
