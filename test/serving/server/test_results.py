"""Results are kept for a time, as many as fit."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from timely_llm.core.request import ErrorCode, PlanResult
from timely_llm.serving.server.results import Results, size_of


def test_what_is_kept_is_found_until_its_time_is_over() -> None:
    results: Results[str] = Results(keep_s=10.0, most=8)
    results.put("one", "how it ended", 100, now=0.0)
    assert results.get("one", now=9.9) == "how it ended"
    assert results.get("two", now=9.9) is None
    assert results.get("one", now=10.0) is None
    assert (len(results), results.bytes) == (0, 0)


def test_the_oldest_goes_first() -> None:
    results: Results[str] = Results(keep_s=10.0, most=2)
    for key in ("one", "two", "one", "three"):  # the second "one" is a new request of that id
        results.put(key, key, 100, now=0.0)
    assert [results.get(key, 0.0) for key in ("one", "two", "three")] == ["one", None, "three"]


def test_what_is_too_large_for_all_memory_is_not_kept() -> None:
    results: Results[str] = Results(keep_s=10.0, most=8, most_bytes=1000)
    results.put("small", "small", 500, now=0.0)
    results.put("huge", "huge", 1001, now=0.0)
    assert (len(results), results.bytes) == (0, 0)


def test_a_time_of_zero_keeps_nothing() -> None:
    results: Results[str] = Results(keep_s=0.0, most=8)
    results.put("one", "one", 1, now=0.0)
    assert len(results) == 0


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(1, 400), st.floats(0.0, 3.0))),
    st.integers(1, 8),
)
def test_the_bounds_hold_whatever_is_put(puts: list[tuple[int, int, float]], most: int) -> None:
    results: Results[int] = Results(keep_s=5.0, most=most, most_bytes=1000)
    reference: list[tuple[str, int, int, float]] = []
    now = 0.0
    for number, (key, size, wait_s) in enumerate(puts):
        now += wait_s
        results.put(str(key), number, size, now)
        reference = [kept for kept in reference if kept[0] != str(key)]
        reference.append((str(key), number, size, now + 5.0))
        while reference and (
            len(reference) > most or sum(kept[2] for kept in reference) > 1000
            or reference[0][3] <= now
        ):  # fmt: skip
            del reference[0]
        assert len(results) == len(reference) <= most
        assert results.bytes == sum(kept[2] for kept in reference) <= 1000
    for kept_key, number, _, _ in reference:
        assert results.get(kept_key, now) == number


def test_the_size_of_a_result_grows_with_its_text() -> None:
    small = PlanResult("id", "robot", ErrorCode.NONE, "")
    large = PlanResult("id", "robot", ErrorCode.NONE, "", plan="x" * 10_000)
    assert size_of(large) - size_of(small) == 10_000
