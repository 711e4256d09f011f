"""The benchmark of a cloud that is set and not asked."""

from __future__ import annotations

import pytest

from timely_llm.benchmarks import cloud
from timely_llm.core.errors import TimelyError


def test_each_round_has_a_row_for_each_server() -> None:
    done: list[tuple[float, float]] = []
    made = cloud.rows(requests=4, rounds=2, progress=lambda *now: done.append(now))
    assert [row["cloud"] for row in made] == [*cloud.ARMS, *cloud.ARMS]
    for row in made:
        assert row["request_us"] > 0
        assert row["ratio"] > 0
    assert made[0]["ratio"] == 1.0
    assert (done[0], done[-1]) == ((0, 3), (3, 3))


def test_a_request_that_fails_is_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cloud, "PLAN", "fly('home');")
    with pytest.raises(TimelyError, match="requests failed"):
        cloud.rows(requests=4, rounds=2)
