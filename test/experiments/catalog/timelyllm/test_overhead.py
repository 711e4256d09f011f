from __future__ import annotations

import pytest

from timely_llm.core.errors import TimelyError
from timely_llm.engines.registry import make_engine
from timely_llm.experiments.catalog.timelyllm import overhead as timelyllm_overhead
from timely_llm.experiments.catalog.timelyllm.overhead import EXPERIMENT, QUEUES, Pair
from timely_llm.experiments.contract import ExperimentError
from timely_llm.experiments.sources import shipped_skill_sets
from timely_llm.policies.registry import make_policy

TASK = "Scene: [chair]\nTask: [A] Find the cat and go to it."
DRONE = shipped_skill_sets()["drone"]


def test_there_is_a_row_for_each_plan_and_each_number_of_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timelyllm_overhead, "PASSES", 1)
    monkeypatch.setattr(timelyllm_overhead, "TURNS", 20)
    told: list[tuple[int, int]] = []
    run = EXPERIMENT.run(
        EXPERIMENT.options(policies=("timely",), seeds=1), lambda done, of: told.append((done, of))
    )
    assert told == [(0, 1), (1, 1)]
    plans, decisions = run.rows[:8], run.rows[8:]
    assert [row["case"] for row in plans] == [f"task {task}" for task in range(1, 9)]
    assert len(decisions) == len(QUEUES)
    for row in plans:
        share, ms, of_ms = (row[n] for n in ("overhead_share", "overhead_ms", "generation_ms"))
        assert isinstance(share, float)
        assert isinstance(ms, float)
        assert isinstance(of_ms, float)
        assert share == pytest.approx(ms / of_ms)
        assert row["segments"] in range(2, 8)
        assert row["tokens"] in range(6, 40)
    assert all(row["overhead_ms"] and row["tokens"] is None for row in decisions)
    settings = {tuple(row[key] for key in run.keys) for row in run.rows}
    papers = [row for paper in run.papers for row in paper.rows]
    assert {tuple(row[key] for key in run.keys) for row in papers} == settings


def test_both_generations_have_the_same_tokens_and_one_has_no_segments() -> None:
    engine = make_engine("transformers", model="models/tiny_planner", device="cpu")
    free = engine.capacity.free_tokens
    pair = Pair(engine, (make_policy("timely"), make_policy("timely")), DRONE)
    pinned = free - engine.capacity.free_tokens
    made = pair.generate(TASK)
    assert made.segments > 1
    assert made.segmented_s > 0
    assert made.plain_s > 0
    assert pair.plain.stats.segments == 0
    assert pair.plain.stats.generated_tokens == made.tokens
    assert pair.segmented.stats.generated_tokens == 2 * made.tokens
    assert free - engine.capacity.free_tokens == pinned, "nothing is left behind"
    engine.close()


def test_a_task_without_a_plan_is_named() -> None:
    engine = make_engine("simulated", script=lambda key, prompt: "what?", pace="millisecond")
    pair = Pair(engine, (make_policy("timely"), make_policy("timely")), DRONE)
    with pytest.raises(ExperimentError, match=r"the model makes no plan for 'Dance\.': "):
        pair.generate("Dance.")


@pytest.mark.parametrize(
    ("policies", "complaint"),
    [(("timely:rows=4",), "name no options"), (("abacus",), "unknown policy 'abacus'")],
)
def test_a_policy_that_cannot_be_measured_is_named(
    policies: tuple[str, ...], complaint: str
) -> None:
    with pytest.raises(TimelyError, match=complaint):
        EXPERIMENT.run(EXPERIMENT.options(policies=policies), lambda done, total: None)
