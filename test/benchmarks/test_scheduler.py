"""The scheduler's benchmark measures what it says."""

from timely_llm.benchmarks.scheduler import rows
from timely_llm.policies.registry import POLICIES


def test_each_policy_has_a_row_for_each_number_of_generations() -> None:
    told: list[tuple[float, float]] = []
    made = rows(
        generations=(1, 12), turns=5, progress=lambda done, total: told.append((done, total))
    )
    assert [(row["policy"], row["generations"], row["streams"]) for row in made] == [
        (policy, *sizes)
        for policy in POLICIES
        for sizes in ((1, 0), (12, 0), (12, 6), (1, 1), (12, 12))
    ]
    for row in made:
        assert list(row) == ["policy", "generations", "streams", "plan_us", "turn_us"]
        assert 0 < row["plan_us"] < row["turn_us"]
    assert told[0] == (0, len(made))
    assert told[-1] == (len(made), len(made))


def test_a_pool_may_be_of_streams_alone() -> None:
    made = rows(("deadline", "slice"), (1, 7), ("streams",), turns=5)
    assert [(row["policy"], row["generations"], row["streams"]) for row in made] == [
        ("deadline", 1, 1), ("deadline", 7, 7), ("slice", 1, 1), ("slice", 7, 7),
    ]  # fmt: skip
