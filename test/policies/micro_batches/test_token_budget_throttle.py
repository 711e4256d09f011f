"""Token throttling with its published constants, by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely_llm.policies.micro_batches.token_budget import Throttle, TokenBudget


@pytest.mark.parametrize(
    ("waiting", "kv_free", "prefill"),
    [
        (8_000, 1.0, 1_000),  # Eq. 1: an eighth of what waits
        (100_000, 1.0, 2_048),  # at most #MaxP
        (100_000, 0.525, 1_024),  # Eq. 2 and 3: half of the free KV above the threshold
        (80, 1.0, 32),  # at least #MinP
        (100_000, 0.06, 32),  # 2048 * 0.01 / 0.95 = 22 tokens, so #MinP
        (100_000, 0.05, 0),  # prefill stops at the threshold
        (100_000, 0.0, 0),
    ],
)
def test_prompt_tokens_follow_what_waits_and_the_free_kv(
    waiting: int, kv_free: float, prefill: int
) -> None:
    assert Throttle().budget(waiting, 2, kv_free, 10, 4) == TokenBudget(prefill + 3, prefill, 3)


@pytest.mark.parametrize(
    ("waiting", "prompts", "kv_free", "prefill"),
    [
        (8_000, 2, 1.0, 1_000),
        (8_000, 1, 1.0, 2_048),  # a prompt alone is not spread
        (80, 2, 1.0, 32),
        (100_000, 2, 0.06, 22),  # the limit by KV comes last
    ],
)
def test_the_released_code_differs_for_one_prompt_and_for_little_free_kv(
    waiting: int, prompts: int, kv_free: float, prefill: int
) -> None:
    budget = Throttle(released=True).budget(waiting, prompts, kv_free, 0, 4)
    assert budget == TokenBudget(prefill, prefill, 0)


@given(
    st.integers(0, 10**6), st.integers(0, 99), st.floats(0, 1), st.integers(0, 999),
    st.integers(1, 16), st.booleans(),
)  # fmt: skip
def test_budgets_keep_the_limits(
    waiting: int, prompts: int, kv_free: float, decoding: int, stages: int, released: bool
) -> None:
    budget = Throttle(released=released).budget(waiting, prompts, kv_free, decoding, stages)
    assert 0 <= budget.prefill <= 2_048
    assert decoding <= budget.decode * stages < decoding + stages
    assert budget.tokens == budget.prefill + budget.decode
