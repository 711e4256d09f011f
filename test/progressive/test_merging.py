"""Merging by pairs (§IV-B), and by due time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from test.examples import examples
from timely_llm.progressive.merging import PartGroup, just_in_time, merged, merged_in_time
from timely_llm.progressive.sketch import Part


def parts(*words: int) -> list[Part]:
    return [Part(place, "w " * count) for place, count in enumerate(words)]


def alone(*words: int) -> list[PartGroup]:
    return [(part,) for part in parts(*words)]


def numbers(groups: Sequence[PartGroup]) -> list[list[int]]:
    return [[part.index for part in group] for group in groups]


def test_the_shortest_goes_with_the_longest() -> None:
    assert numbers(merged(alone(5, 9, 2, 7))) == [[1, 2], [0, 3]]


def test_the_one_in_the_middle_stays_alone() -> None:
    assert numbers(merged(alone(5, 9, 2, 7, 4))) == [[1, 2], [3, 4], [0]]
    assert numbers(merged(alone(3))) == [[0]]


def test_merging_goes_on_while_it_is_in_time() -> None:
    sentences = parts(5, 9, 2, 7, 4, 6, 3)
    assert len(merged_in_time(sentences, lambda groups: True)) == 1
    assert len(merged_in_time(sentences, lambda groups: len(groups) >= 2)) == 2
    assert len(merged_in_time(sentences, lambda groups: len(groups) >= 3)) == 4
    assert numbers(merged_in_time(sentences, lambda groups: False)) == [[n] for n in range(7)]


def test_no_parts_make_no_groups() -> None:
    assert merged_in_time([], lambda groups: True) == []
    assert just_in_time([], [], [], lambda groups: 1.0) == []


def step_s(groups: int) -> float:
    return 0.1 + 0.01 * groups


def test_one_sequence_is_enough_for_a_slow_listener() -> None:
    due_s = [1.0, 5.0, 9.0]  # 20 tokens at 0.2 s, listened to; made at 0.11 s
    assert len(just_in_time(parts(4, 4, 4), [20] * 3, due_s, step_s, listener_s=0.2)) == 1


def test_a_quick_listener_needs_more_sequences_at_once() -> None:
    due_s = [2.0, 2.2, 2.4, 2.6]  # 20 tokens: made in 2.8 s, listened to in 1 s
    made = just_in_time(parts(4, 4, 4, 4), [20] * 4, due_s, step_s, listener_s=0.05)
    assert numbers(made) == [[0], [1], [2], [3]]


def test_two_robots_parts_fit_two_sequences() -> None:
    made = just_in_time(parts(4, 4, 4, 4), [10] * 4, [1.2, 1.2, 2.4, 2.4], step_s)
    assert numbers(made) == [[0, 2], [1, 3]]


def test_no_more_groups_than_the_most() -> None:
    assert len(just_in_time(parts(1, 1, 1), [50] * 3, [0.0] * 3, step_s, most=2)) == 2


@examples(50)
@given(st.lists(st.integers(1, 20), min_size=1, max_size=12), st.integers(1, 12))
def test_merging_keeps_each_part_once_and_in_order(words: list[int], least: int) -> None:
    groups = merged_in_time(parts(*words), lambda groups: len(groups) >= least)
    assert sorted(chain(*numbers(groups))) == list(range(len(words)))
    assert all(group == sorted(group) for group in numbers(groups))
    assert len(merged(groups)) == (len(groups) + 1) // 2


@examples(50)
@given(
    st.lists(st.tuples(st.floats(1, 50), st.floats(0, 20)), min_size=1, max_size=8),
    st.floats(0, 0.5),
)
def test_just_in_time_keeps_each_part_once_and_in_order(
    wanted: list[tuple[float, float]], listener_s: float
) -> None:
    tokens, due_s = zip(*wanted, strict=True)
    found = just_in_time(parts(*[1] * len(wanted)), tokens, due_s, step_s, listener_s)
    assert sorted(chain(*numbers(found))) == list(range(len(wanted)))
    assert all(group == sorted(group) for group in numbers(found))
