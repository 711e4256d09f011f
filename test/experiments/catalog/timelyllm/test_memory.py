"""Little KV memory, with and without swap."""

from pathlib import Path

import pytest

from test.experiments.bursts import bursts_file
from timely_llm.core.errors import EngineError
from timely_llm.experiments.catalog.timelyllm import memory
from timely_llm.experiments.catalog.timelyllm.memory import CONTEXT_TOKENS, EXPERIMENT
from timely_llm.experiments.results.document import Row, RunDocument

TIGHT, AMPLE = 3 * CONTEXT_TOKENS, 40 * CONTEXT_TOKENS


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDocument:
    monkeypatch.setattr(memory, "BUDGETS", (AMPLE, TIGHT))
    options = EXPERIMENT.options(
        trace=bursts_file(tmp_path), seeds=1, jobs=1, policies=("fcfs", "timely:lead_s=0.5")
    )
    return EXPERIMENT.run(options, lambda done, total: None)


def test_swap_loads_what_is_computed_again_without_it(run: RunDocument) -> None:
    def of(kv_tokens: int, swap: str, policy: str = "timely:lead_s=0.5") -> Row:
        (row,) = (
            row
            for row in run.rows
            if (row["kv_tokens"], row["swap"], row["policy"]) == (kv_tokens, swap, policy)
        )
        return row

    assert len(run.rows) == 2 * 2 * 2
    assert set(run.keys) | set(run.measures) <= run.rows[0].keys()
    assert set(run.measures) <= run.definitions.keys()
    for swap in ("on", "off"):
        assert of(AMPLE, swap)["evictions"] == 0
        assert of(TIGHT, swap, "fcfs")["recomputed_tokens"] == 0, "it suspends nothing"
    off, on = of(TIGHT, "off"), of(TIGHT, "on")
    assert int(off["evictions"] or 0) > 0
    assert int(off["recomputed_tokens"] or 0) > CONTEXT_TOKENS
    assert off["loaded_tokens"] == on["recomputed_tokens"] == 0
    assert int(on["loaded_tokens"] or 0) > CONTEXT_TOKENS
    assert float(on["waiting_s"] or 0) < float(off["waiting_s"] or 0)
    ample = {name: of(AMPLE, "on")[name] for name in run.measures}
    assert ample == {name: of(AMPLE, "off")[name] for name in run.measures}


def test_plans_that_do_not_fit_together_make_several_segments_for_each_prompt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where they evicted each other for one segment each, arms waited for 5.7 s with this seed."""
    monkeypatch.setattr(memory, "BUDGETS", (4 * CONTEXT_TOKENS,))
    monkeypatch.setattr(memory, "SWAP", {False: "off"})
    options = EXPERIMENT.options(first_seed=2, seeds=1, jobs=1, policies=("deadline",))
    (arms,) = (
        row
        for row in EXPERIMENT.run(options, lambda done, total: None).rows
        if row["workload"] == "wid3"
    )
    assert float(arms["waiting_s"] or 0) < 2.0
    assert int(arms["evictions"] or 0) > 100, "memory lacks"


def test_the_set_up_says_what_the_memory_holds(run: RunDocument) -> None:
    assert run.setup["prompt tokens computed for each request"] == CONTEXT_TOKENS
    assert "7.3 us" in str(run.setup["host memory"])


def test_a_profile_without_times_of_transfers_is_refused_before_anything_runs() -> None:
    options = EXPERIMENT.options(profile="v100x2-qwen2.5-7b", jobs=1, seeds=1)
    with pytest.raises(EngineError, match=r"v100x2-qwen2\.5-7b does not say how long KV takes"):
        EXPERIMENT.run(options, lambda done, total: pytest.fail("it runs"))
