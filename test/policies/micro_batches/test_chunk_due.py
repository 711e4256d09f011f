"""Chunks of prompts that due times afford."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from test.examples import examples
from test.policies.builders import generation, stream, talking
from timely_llm.core.slo import Slo, SloClass
from timely_llm.policies.micro_batches.chunk import LEAST, ChunkTime, DueTimes
from timely_llm.policies.pipeline_time import PipelineTime
from timely_llm.policies.step_time import StepTime

STAGES = PipelineTime([StepTime(0.01, 0.001, 0.001)] * 4, [StepTime(0.002, 0.0005, 0.0005)] * 3)
CYCLE = ChunkTime(STAGES, 4, 2, 0)


@pytest.mark.parametrize("chunk", [LEAST, 2 * LEAST, 4 * LEAST])
def test_the_tightest_due_time_decides(chunk: int) -> None:
    limits_s = [CYCLE.cycle_s(chunk), 60.0]
    assert CYCLE.longest_chunk(1024, limits_s, []) == chunk


def test_what_is_late_anyway_shortens_no_chunk() -> None:
    assert CYCLE.longest_chunk(1024, [0.9 * CYCLE.cycle_s(LEAST)], []) == 1024
    assert CYCLE.longest_chunk(1024, [], []) == 1024
    assert CYCLE.longest_chunk(20, [60.0], []) == 20


def test_no_prompt_comes_late_for_it() -> None:
    def ends_s(chunk: int) -> float:
        return (8192 // chunk - 1) * CYCLE.busy_s(chunk) + CYCLE.latency_s(chunk)

    limits_s, left_s = [CYCLE.cycle_s(LEAST)], ends_s(256)
    assert ends_s(LEAST) > left_s
    assert CYCLE.longest_chunk(256, limits_s, [(8192, 60.0)]) == LEAST
    longer = CYCLE.longest_chunk(256, limits_s, [(8192, left_s)])
    assert longer > LEAST and ends_s(longer) <= left_s
    assert CYCLE.longest_chunk(256, limits_s, [(8192, 0.9 * left_s)]) == LEAST, "late anyway"


@given(
    st.integers(1, 2048),
    st.lists(st.floats(-1.0, 30.0), max_size=5),
    st.lists(st.tuples(st.integers(2, 4000), st.floats(-1.0, 30.0)), max_size=5),
)
@examples(60)
def test_a_chunk_is_longer_than_the_least_only_as_far_as_it_is_afforded(
    most: int, limits_s: list[float], prompts: list[tuple[int, float]]
) -> None:
    chunk = CYCLE.longest_chunk(most, limits_s, prompts)
    assert min(LEAST, most) <= chunk <= most
    kept = [limit_s for limit_s in limits_s if limit_s >= CYCLE.cycle_s(min(LEAST, most))]
    if LEAST < chunk < most and not prompts:
        assert CYCLE.cycle_s(chunk) <= min(kept) < CYCLE.cycle_s(2 * chunk)


def test_a_micro_batch_without_a_chunk_ends_sooner_than_those_with_one() -> None:
    assert CYCLE.apart_s(256) == pytest.approx(3 * CYCLE.busy_s(256) + CYCLE.busy_s(0))
    assert CYCLE.apart_s(256) < CYCLE.cycle_s(256)
    assert ChunkTime(STAGES, 1, 2, 0).apart_s(256) == pytest.approx(CYCLE.latency_s(0))


def test_tokens_to_the_next_deliverable_share_the_time_until_it_is_worth_nothing() -> None:
    due = DueTimes(lambda one: 20)
    plan, person = generation("p"), talking("r")
    assert due.limit_s(1.0, plan) == pytest.approx((plan.zero_s - 1.0) / 8)
    assert due.limit_s(1.0, person) == pytest.approx(person.zero_s - 1.0)
    answer = stream("a", of_class=SloClass("", Slo(deadline_s=4.0)))
    assert due.limit_s(2.0, answer) == pytest.approx((answer.due_s - 2.0) / 20)
