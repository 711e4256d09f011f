"""KV that is promised to the end of all that has begun."""

from collections.abc import Collection

from hypothesis import given
from hypothesis import strategies as st

from test.examples import examples
from test.policies.builders import generation, stream, talking
from timely_llm.core.generation import Generation, State
from timely_llm.core.step import Capacity, StepPlan
from timely_llm.policies.lengths import ENOUGH
from timely_llm.policies.micro_batches.memory import MemoryPromises, Price, _largest


def capacity(free_tokens: int) -> Capacity:
    return Capacity(free_tokens, 64, 2048)


def bounded(one: Generation, max_tokens: int = 100) -> Generation:
    one.max_tokens = max_tokens
    return one


def asked(
    promises: MemoryPromises,
    pool: Collection[Generation],
    free_tokens: int,
    price: Price | None = None,
) -> set[str]:
    """Return the keys of a plan of all that may begin, as far as they are kept."""
    admitted = promises.admitted(pool, capacity(free_tokens), price)
    plan = StepPlan(tuple((one.key, one.to_compute) for one in admitted))
    return set(promises.kept(plan).keys)


def test_a_prompt_begins_where_its_whole_text_has_room_beside_the_others() -> None:
    pool = [bounded(talking("r")), bounded(stream("p", to_compute=40))]
    # One of 100 tokens is out. The prompt has decoded as many as the other when that one ends.
    enough = 99 + 39 + 99
    promises = MemoryPromises()
    assert asked(promises, pool, enough) == {"r", "p"}
    assert promises.missing == {}
    assert asked(promises, pool, enough - 5) == {"r"}
    assert promises.missing == {"p": 5}


def test_two_prompts_begin_in_the_order_of_the_plan_while_both_have_room() -> None:
    pool = [bounded(stream(key, to_compute=40)) for key in "pqr"]
    promises = MemoryPromises()
    assert asked(promises, pool, 139 * 2) == {"p", "q"}
    assert promises.missing == {"r": 139}


def test_a_smaller_prompt_passes_one_that_has_no_room() -> None:
    pool = [bounded(talking("r")), bounded(stream("p")), bounded(stream("q"), 10)]
    assert asked(MemoryPromises(), pool, 99 + 49) == {"r", "q"}


def test_the_first_one_begins_even_if_its_bound_has_no_room() -> None:
    assert asked(MemoryPromises(), [bounded(stream("p"))], 45) == {"p"}


def test_what_has_begun_is_never_left_out() -> None:
    pool = [bounded(talking("r")), bounded(stream("p", context=20, to_compute=20))]
    assert asked(MemoryPromises(), pool, 0) == {"r", "p"}


def test_a_prompt_begins_without_a_promise_where_its_eviction_costs_less_than_it_saves() -> None:
    pool = [bounded(talking("r")), bounded(stream("p", to_compute=40))]
    free, cheap, dear = 99 + 39, Price(0.1, 0.001), Price(0.1, 0.5)
    assert asked(MemoryPromises(), pool, free, cheap) == {"r", "p"}
    assert asked(MemoryPromises(), pool, free, dear) == asked(MemoryPromises(), pool, free) == {"r"}


def test_prompts_behind_one_that_is_left_out_wait_too() -> None:
    pool = [bounded(stream("p", to_compute=40)), bounded(stream("q", to_compute=40))]
    small = bounded(stream("s", to_compute=2), 10)
    assert asked(MemoryPromises(), [*pool, small], 139) == {"p"}


def ended(promises: MemoryPromises, tokens: int) -> None:
    """Let an answer come to its own end."""
    one = bounded(talking(f"e{tokens}", tokens=tokens))
    promises.admitted([one], capacity(1000))
    one.state, one.complete = State.ENDED, True
    promises.admitted([], capacity(1000))


def test_learned_lengths_take_the_place_of_bounds() -> None:
    promises = MemoryPromises()
    pool = [bounded(talking("r")), bounded(stream("p", to_compute=40))]
    for length in range(10, 10 + ENOUGH):
        assert asked(promises, pool, 100) == {"r"}
        ended(promises, length)
    # Nine tenths end by 17 tokens: 16 are left for the one, 39 + 16 are the other's by then.
    assert asked(promises, pool, 16 + 39 + 16) == {"r", "p"}
    assert asked(promises, pool, 16 + 39 + 15) == {"r"}


def test_a_plan_that_its_robot_executes_is_learned_of_when_it_has_ended() -> None:
    promises = MemoryPromises()
    plans = [bounded(generation(f"g{i}", context=40)) for i in range(ENOUGH)]
    for one in plans:
        one.token_ids = [0] * 12
    promises.admitted(plans, capacity(1000))
    for one in plans:
        one.state, one.complete = State.EXECUTING, True
    promises.admitted([], capacity(1000))
    pool = [bounded(generation("r", context=40)), bounded(generation("p", to_compute=40))]
    assert asked(promises, pool, 109 + 12 + 39 + 12) == {"r"}
    for one in plans:
        one.state = State.ENDED
    assert asked(promises, pool, 109 + 12 + 39 + 12) == {"r", "p"}


def test_an_answer_that_is_canceled_teaches_no_length() -> None:
    promises = MemoryPromises()
    canceled = [bounded(talking(f"c{place}", tokens=5)) for place in range(ENOUGH)]
    promises.admitted(canceled, capacity(10_000))
    for one in canceled:
        one.state = State.ENDED
    pool = [bounded(talking("r")), bounded(stream("p", to_compute=40))]
    assert asked(promises, pool, 100) == {"r"}


def test_what_has_ended_is_forgotten() -> None:
    promises = MemoryPromises()
    for number in range(50):
        ended(promises, number + 1)
    assert not promises._known


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 60), st.integers(1, 90)), max_size=12),
    st.integers(0, 600),
)
@examples(100)
def test_promises_are_never_more_than_the_memory(
    shapes: list[tuple[int, int, int]], free_tokens: int
) -> None:
    pool = [
        bounded(stream(f"s{place}", context=context, to_compute=tokens), most)
        for place, (context, tokens, most) in enumerate(shapes)
    ]
    kept = asked(MemoryPromises(), pool, free_tokens)
    served = [one for one in pool if one.kv_tokens or one.key in kept]
    beginning = [one for one in served if not one.kv_tokens]
    total = free_tokens + sum(one.kv_tokens for one in pool)

    def held(cycle: int) -> int:
        """Return the KV tokens of all that have not ended after some tokens of each."""
        return sum(
            one.kv_tokens + one.to_compute - 1 + cycle for one in served if one.max_tokens >= cycle
        )

    if beginning and len(served) > 1:
        assert max(map(held, range(100))) <= total


def test_what_ends_soon_leaves_its_room() -> None:
    """The prompt ends long after the other: both never need all of their KV."""
    prompt = bounded(stream("p", to_compute=100), 50)
    ending = bounded(talking("r", tokens=49), 50)
    beginning = bounded(talking("r", tokens=1), 50)
    assert asked(MemoryPromises(), [ending, prompt], 155) == {"r", "p"}
    assert asked(MemoryPromises(), [beginning, prompt], 155) == {"r"}


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 60)), min_size=1, max_size=8))
def test_the_largest_sum_is_that_of_a_simulation(parts: list[tuple[int, int]]) -> None:
    futures = sorted((-to_say, held) for to_say, held in parts)
    largest = max(
        sum(held + after for to_say, held in parts if to_say >= after)
        for after in range(max(to_say for to_say, _ in parts) + 1)
    )
    assert _largest(futures) == largest
