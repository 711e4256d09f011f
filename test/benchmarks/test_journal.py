"""The benchmark of the recovery journal writes what a server writes, three ways."""

from timely_llm.benchmarks.journal import JOURNALS, rows


def test_each_way_to_write_has_the_same_records_for_slow_and_fast_robots() -> None:
    seen: list[float] = []
    made = rows(number=8, turns=40, progress=lambda done, total: seen.append(done / total))
    assert [row["journal"] for row in made] == [*JOURNALS, *JOURNALS]
    slow, fast = made[: len(JOURNALS)], made[len(JOURNALS) :]
    for group in (slow, fast):
        assert len({(row["robots"], row["rows"], row["records"]) for row in group}) == 1
        assert all(row["us"] > 0 for row in group)
    assert fast[0]["segments_per_s"] > slow[0]["segments_per_s"]
    assert fast[0]["rows"] > slow[0]["rows"]
    # Beginning and end of a segment are reported; requests, skill sets and ends come on top.
    assert fast[0]["records"] > 0
    assert seen[-1] == 1.0
