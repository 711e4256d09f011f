"""The benchmark of segmentation reads real plans."""

from timely_llm.benchmarks.segmentation import TRACES, rows


def test_each_of_the_papers_traces_has_a_row() -> None:
    told: list[tuple[float, float]] = []
    made = rows(repeats=2, decode_steps=3, progress=lambda done, total: told.append((done, total)))
    assert [row["plan"] for row in made] == list(TRACES)
    for row in made:
        assert 1 <= row["segments"] < row["tokens"]
        assert row["token_us"] > 0
        assert 0 < row["step_share"] < 1
        assert row["embedded_share"] > 0
    assert told[-1] == (8, 8)
