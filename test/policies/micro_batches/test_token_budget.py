"""Algorithm 1 of Ahn et al. 2025, its open ends, and the two budgets that stay as they are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from test.examples import examples
from timely_llm.core.errors import ConfigurationError
from timely_llm.policies.micro_batches.token_budget import (
    PrefillQueue,
    TokenBudget,
    even,
    fixed_chunk,
    static_budget,
)


def as_printed(queue: list[int], micro_batches: int, decoding: int, new_prefill: int) -> int:
    """Algorithm 1, line by line, with `pop` from the front."""
    while len(queue) < micro_batches:
        queue.append(0)
    if new_prefill > 0:
        total = sum(queue) + new_prefill
        base, rem = divmod(total, micro_batches)
        for i in range(micro_batches):
            queue[i] = base
        for i in range(rem):
            queue[i] += 1
    return queue.pop(0) + -(-decoding // micro_batches)


def test_a_prompt_is_spread_over_the_micro_batches_and_decoding_sequences_are_shared() -> None:
    # 10 prompt tokens in 4 micro-batches: 3, 3, 2, 2; of 6 decoding sequences each has up to 2.
    queue, budgets = PrefillQueue(), []
    for new_prefill in (10, 0, 0, 0, 0):
        budget, queue = queue.take(4, 6, new_prefill)
        budgets.append(budget)
    assert budgets == [
        TokenBudget(5, 3, 2, 1),
        TokenBudget(5, 3, 2, 1),
        TokenBudget(4, 2, 2, 1),
        TokenBudget(4, 2, 2, 1),
        TokenBudget(2, 0, 2, 1),
    ]


def test_a_second_prompt_is_spread_with_what_the_first_one_has_left() -> None:
    _, queue = PrefillQueue().take(4, 0, 10)  # leaves 3, 2, 2
    budget, queue = queue.take(4, 0, 6)  # 13 tokens: 4, 3, 3, 3
    assert (budget.prefill, queue.budgets) == (4, (3, 3, 3))


def test_the_budget_that_waited_longest_is_taken() -> None:
    assert PrefillQueue((7, 5, 3)).take(3, 0)[0].prefill == 7


def test_more_micro_batches_add_empty_ones_at_the_end() -> None:
    budget, queue = PrefillQueue((4, 4)).take(4, 0)
    assert (budget.prefill, queue.take(4, 0)[0].prefill) == (4, 4)
    assert queue.take(4, 0)[1].take(4, 0)[0].prefill == 0


def test_fewer_micro_batches_take_over_all_tokens() -> None:
    budget, queue = PrefillQueue((5, 5, 5)).take(2, 0)
    assert (budget.prefill, queue.budgets) == (8, (7,))


def test_fewer_micro_batches_count_tokens_twice_as_printed_and_once_here() -> None:
    printed = [5, 5, 5]
    assert as_printed(printed, 2, 0, 1) + sum(printed) == 21
    budget, queue = PrefillQueue((5, 5, 5)).take(2, 0, 1)
    assert budget.prefill + sum(queue.budgets) == 16


def test_a_budget_that_was_not_spent_comes_back_as_new_tokens() -> None:
    budget, queue = PrefillQueue().take(2, 0, 10)
    spent = 3  # the prompt of this micro-batch ended
    budget, queue = queue.take(2, 0, budget.prefill - spent)
    assert (budget.prefill, queue.budgets) == (4, (3,))


@examples(200)
@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 3000)), max_size=30), st.integers(1, 16)
)
def test_a_constant_number_of_micro_batches_is_as_printed(
    calls: list[tuple[int, int]], micro_batches: int
) -> None:
    printed: list[int] = []
    queue = PrefillQueue()
    for decoding, new_prefill in calls:
        budget, queue = queue.take(micro_batches, decoding, new_prefill)
        assert budget.tokens == as_printed(printed, micro_batches, decoding, new_prefill)
        assert budget.tokens == budget.prefill + budget.decode


@examples(200)
@given(
    st.lists(st.tuples(st.integers(1, 16), st.integers(0, 40), st.integers(0, 3000)), max_size=30)
)
def test_no_prompt_token_is_lost_or_counted_twice(calls: list[tuple[int, int, int]]) -> None:
    queue, taken = PrefillQueue(), 0
    for micro_batches, decoding, new_prefill in calls:
        budget, queue = queue.take(micro_batches, decoding, new_prefill)
        taken += budget.prefill
        assert decoding <= budget.decode * micro_batches < decoding + micro_batches
    assert taken + sum(queue.budgets) == sum(new for _, _, new in calls)
    last = calls[-1][0] if calls else 1
    for _ in range(last):  # one cycle later every token had a budget
        budget, queue = queue.take(last, 0)
        taken += budget.prefill
    assert taken == sum(new for _, _, new in calls)


@given(st.integers(0, 10_000), st.integers(1, 64))
def test_even_parts_differ_by_at_most_one(tokens: int, parts: int) -> None:
    sizes = even(tokens, parts)
    assert (sum(sizes), len(sizes)) == (tokens, parts)
    assert sizes[0] - sizes[-1] in (0, 1)


@pytest.mark.parametrize("numbers", [(0, 1, 1), (4, -1, 1), (4, 1, -1)])
def test_impossible_numbers_are_refused_in_a_sentence(numbers: tuple[int, int, int]) -> None:
    with pytest.raises(ConfigurationError, match="at least 1, 0 and 0 are allowed"):
        PrefillQueue().take(*numbers)


def test_a_static_budget_limits_only_the_sum() -> None:
    assert static_budget(512) == TokenBudget(512, 512, 512)


def test_decoding_sequences_fill_a_fixed_chunk_first() -> None:
    assert fixed_chunk(512, 40) == TokenBudget(512, 472, 40)
    assert fixed_chunk(32, 40) == TokenBudget(32, 0, 32)
