"""Segments really travel between two processes."""

import pytest

from timely_llm.benchmarks.delivery import rows


def test_every_segment_arrives_by_topic_and_by_feedback() -> None:
    progress: list[tuple[float, float]] = []
    measured = rows(6, "single", lambda done, total: progress.append((done, total)))
    assert [row["path"] for row in measured] == ["topic", "feedback"]
    for row in measured:
        assert row["segments"] >= 18
        assert row["lost"] == 0
        assert 0 < row["p50_ms"] <= row["p99_ms"] <= row["max_ms"]
    assert progress[-1] == (6, 6)


@pytest.mark.extended
def test_what_a_dispatcher_adds_is_measured_beside_the_servers_own_topics() -> None:
    measured = {row["path"]: row for row in rows(4, "single", servers=2, robots=2)}
    assert list(measured) == ["topic", "feedback", "direct", "added", "relayed"]
    for path in ("topic", "direct", "added", "relayed"):
        assert measured[path]["lost"] == 0
    assert measured["relayed"]["p50_ms"] > 0
