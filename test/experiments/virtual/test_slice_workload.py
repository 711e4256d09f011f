import math
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely_llm.core.slo import REAL_TIME, TEXT, VOICE
from timely_llm.experiments.contract import ExperimentError
from timely_llm.experiments.virtual.slice_workload import (
    AGENTS,
    PROMPT_TOKENS,
    LengthRange,
    Mix,
    talks,
    tasks,
)

SPANS = st.tuples(st.integers(1, 4096), st.integers(1, 4096)).map(lambda t: (min(t), max(t)))


@given(st.builds(LengthRange, SPANS, SPANS))
def test_lengths_are_read_as_they_are_written(lengths: LengthRange) -> None:
    assert LengthRange.parse(str(lengths)) == lengths


@given(st.text(alphabet="0123456789-:, ²", max_size=16))
def test_any_other_text_is_a_mistake_that_is_explained(text: str) -> None:
    try:
        lengths = LengthRange.parse(text)
    except ExperimentError as error:
        assert "lengths must be like 8-25:40-160" in str(error)
    else:
        assert LengthRange.parse(str(lengths)) == lengths


@pytest.mark.parametrize(
    "text", ["", "8-25", "25-8:40-160", "0-8:40-160", "8-25:40-4097", "a-b:c-d"]
)
def test_lengths_that_are_not_possible(text: str) -> None:
    with pytest.raises(ExperimentError, match="lengths must be like 8-25:40-160"):
        LengthRange.parse(text)


def test_three_kinds_ask_with_the_papers_service_levels() -> None:
    trace = tasks(Mix(2.0, bound=2.0), seed=3)
    assert len(trace.conversations) == 300
    kinds = {AGENTS[kind]: kind for kind in (REAL_TIME, VOICE, TEXT)}
    counts = dict.fromkeys(kinds, 0)
    for one in trace.conversations:
        name = one.agent.split("-")[0]
        kind, counts[name] = kinds[name], counts[name] + 1
        low, high = (8, 25) if kind is REAL_TIME else (40, 160)
        assert low <= one.output_tokens <= high
        assert one.max_tokens == 2 * high
        assert PROMPT_TOKENS[0] <= one.prompt_tokens <= PROMPT_TOKENS[1]
        assert (one.ttft_s, one.weight) == (1.0, 100.0 if kind is REAL_TIME else 1.0)
        assert (one.tpot_s, one.deadline_s) == (kind.slo.tpot_s, kind.slo.deadline_s)
    assert counts["machine"] == pytest.approx(210, abs=25)
    assert counts["speaker"] == pytest.approx(counts["reader"], abs=30)
    assert trace.span_s == pytest.approx(150, rel=0.2)
    assert {one.output_tokens for one in trace.conversations if one.deadline_s < math.inf} == set(
        range(8, 26)
    ), "both ends of a span are reached"


def test_a_higher_rate_is_the_same_tasks_sooner() -> None:
    slow, fast = (tasks(Mix(rate), seed=1).conversations for rate in (1.0, 4.0))
    for one, other in zip(slow, fast, strict=True):
        assert one.arrival_s == pytest.approx(4.0 * other.arrival_s)
        assert (one.id, one.output_tokens) == (other.id, other.output_tokens)


def test_with_more_real_time_tasks_the_others_stay_what_they_were() -> None:
    few, many = (tasks(Mix(1.0, ratio), seed=1).conversations for ratio in (0.2, 0.6))
    left = [(a, b) for a, b in zip(few, many, strict=True) if b.deadline_s == math.inf]
    assert 80 <= len(left) <= 160
    assert all(a == b for a, b in left)


def test_another_seed_is_another_workload_and_rate_0_has_no_requests() -> None:
    assert tasks(Mix(1.0), seed=1) != tasks(Mix(1.0), seed=2)
    assert list(islice(talks(Mix(0.0), 0), 1)) == []
