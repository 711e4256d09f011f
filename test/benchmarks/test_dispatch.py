"""The dispatchers' benchmark measures what it says."""

import pytest

from timely_llm.benchmarks.dispatch import front_rows, rows
from timely_llm.core.errors import ConfigurationError
from timely_llm.dispatch.assign.registry import DISPATCHERS


def test_each_rule_has_a_row_for_each_size() -> None:
    told: list[tuple[float, float]] = []
    sizes = ((3, 2), (8, 4))
    made = rows(sizes=sizes, repeats=3, progress=lambda done, total: told.append((done, total)))
    assert [(row["requests"], row["servers"], row["dispatcher"]) for row in made] == [
        (*size, name) for size in sizes for name in DISPATCHERS
    ]
    assert all(0 < row["assign_us"] <= row["p99_us"] for row in made)
    assert (told[0], told[-1]) == ((0, len(made)), (len(made), len(made)))


def test_the_calls_of_a_front_have_a_row_for_each_size() -> None:
    made = front_rows(sizes=((6, 2), (8, 3)), repeats=3, due=4)
    assert [(row["requests"], row["servers"], row["call"]) for row in made] == [
        (*size, call) for size in ((6, 2), (8, 3)) for call in ("asked", "heard", "answer")
    ]
    assert all(row["due"] == 4 and 0 < row["call_us"] <= row["p99_us"] for row in made)


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="unknown dispatcher 'best'"):
        rows(("best",))
