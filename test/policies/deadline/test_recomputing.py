from hypothesis import given
from hypothesis import strategies as st

from timely_llm.policies.deadline.recomputing import Recomputing


def test_before_any_prompt_is_computed_again_later_segments_may_evict() -> None:
    assert Recomputing().may_evict(0.0)


@given(st.lists(st.floats(0.001, 10.0), min_size=1, max_size=30))
def test_prompts_computed_again_take_half_of_the_time_at_most(prompts_s: list[float]) -> None:
    """A plan evicts as soon as it may, always for a prompt that is computed again."""
    recomputing, now, spent_s = Recomputing(), 0.0, 0.0
    for prompt_s in prompts_s:
        recomputing.began(now, prompt_s)
        now += prompt_s
        spent_s += prompt_s
        while not recomputing.may_evict(now):
            now += prompt_s / 4
        assert spent_s <= now / 2 * (1.0 + 1e-9)


def test_a_prompt_that_was_loaded_counts_with_the_time_that_it_took() -> None:
    recomputing = Recomputing()
    recomputing.began(1.0, 0.5)
    assert not recomputing.may_evict(1.1)
    assert recomputing.may_evict(1.21)
