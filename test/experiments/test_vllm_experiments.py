"""What is measured on vLLM; `make test-vllm` runs this."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from timely_llm.core.time_utility import NORMAL, URGENT
from timely_llm.engines.registry import make_engine
from timely_llm.experiments.catalog.engine import overhead as engine_overhead
from timely_llm.experiments.catalog.engine import resume as engine_resume
from timely_llm.experiments.catalog.engine.overhead import OUR_STEPS, OURS, STOCK, STOCK_CORE
from timely_llm.experiments.catalog.engine.resume import (
    CACHED,
    KEPT,
    MEASURED,
    OFFLOADED,
    OWN_TOKENS,
    PINNED,
    PREFILLED,
)
from timely_llm.experiments.catalog.timelyllm import drone as timelyllm_drone
from timely_llm.profiling.engine_steps import OWN_TOKENS as OWN
from timely_llm.profiling.engine_steps import measure_prompts
from timely_llm.resources import resource
from timely_llm.traces.files import write_trace
from timely_llm.traces.model import Job, Trace

pytest.importorskip("vllm", reason="vLLM is not installed: see `make test-vllm`")

from timely_llm.engines.vllm.engine import BLOCK_TOKENS

TEXTS = (
    "Scene: [sofa, lamp]\nTask: [A] Where is the cat? Fly to it if you find it.",
    "Scene: [bed]\nTask: [A] Go up 50 cm.",
)


def test_ours_and_stock_vllm_are_measured_with_both_starts() -> None:
    experiment = engine_overhead.EXPERIMENT
    options = experiment.options(requests=(2,), tokens=4, repeats=1)
    run = experiment.run(options, lambda done, total: None)
    arms = [STOCK, OURS, STOCK_CORE, OUR_STEPS]
    assert [(row["seed"], row["arm"]) for row in run.rows] == [
        (seed, arm) for seed in (0, 1) for arm in arms
    ]
    for row in run.rows:
        assert row["share_of_stock"] == 1.0 or row["arm"] in (OURS, OUR_STEPS)
        assert float(row["share_of_stock"] or 0) > 0
        assert row["over_stock_us"] is not None


def test_a_plan_goes_on_in_each_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_resume, "PASSES", 1)
    experiment = engine_resume.EXPERIMENT
    run = experiment.run(experiment.options(tokens=4, repeats=1), lambda done, total: None)
    again = {row["way"]: row["recomputed_tokens"] for row in run.rows}
    prompt = int(run.setup["tokens of the prompt"] or 0)
    assert again[KEPT] == 0
    assert again[PINNED] == (prompt - OWN_TOKENS) % BLOCK_TOKENS + OWN_TOKENS + 4
    assert again[PREFILLED] == prompt + 5
    assert again[CACHED] == (prompt + 3) % BLOCK_TOKENS
    assert again[OFFLOADED] is None
    (why_not,) = {str(row["measured"]) for row in run.rows} - {MEASURED}
    assert why_not.startswith("not measured: vLLM's OffloadingConnector moves KV between a GPU")


def test_a_plan_goes_on_with_kv_from_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(engine_resume, "PASSES", 1)
    given = {
        "kv_connector": "ExampleConnector",
        "kv_connector_extra_config": {"shared_storage_path": str(tmp_path)},
    }
    experiment = engine_resume.EXPERIMENT
    options = experiment.options(
        tokens=4, repeats=1, engine_args=(f"kv_transfer_config={json.dumps(given)}",)
    )
    run = experiment.run(options, lambda done, total: None)
    again = {row["way"]: row["recomputed_tokens"] for row in run.rows}
    prompt = int(run.setup["tokens of the prompt"] or 0)
    assert {row["measured"] for row in run.rows} == {MEASURED}
    assert again[OFFLOADED] == (prompt + 3) % BLOCK_TOKENS
    assert again[PREFILLED] == prompt + 5


def test_its_own_schedulers_serve_beside_ours(tmp_path: Path) -> None:
    jobs = tuple(
        Job(f"j{i}", 3.0 + 0.05 * i, f"r{i}", str(i % 2), "drone", TEXTS[i % 2],
            URGENT if i % 2 else NORMAL)
        for i in range(14)
    )  # fmt: skip
    file = tmp_path / "trace.jsonl"
    write_trace(Trace("small", jobs=jobs), file)
    experiment = timelyllm_drone.EXPERIMENT
    policies = ("vllm-fcfs", "vllm-priority:rows=2", "fcfs")
    options = experiment.options(
        engine="vllm", policies=policies, trace=file, profile="millisecond"
    )
    run = experiment.run(options, lambda done, total: None)
    assert [(row["policy"], row["engine"]) for row in run.rows] == [
        *((policy, "vllm") for policy in policies), ("fcfs", "simulated"),
    ]  # fmt: skip
    assert {row["requests"] for row in run.rows} == {9}
    assert {row["share_served"] for row in run.rows} == {1.0}


def test_a_workload_is_served_with_random_weights(tmp_path: Path) -> None:
    jobs = tuple(
        Job(f"j{i}", 3.0 + 0.05 * i, f"r{i}", "1", "drone", TEXTS[i % 2],
            URGENT if i % 2 else NORMAL, segment_tokens=(4, 6, 1))
        for i in range(14)
    )  # fmt: skip
    file = tmp_path / "trace.jsonl"
    write_trace(Trace("small", jobs=jobs), file)
    experiment = timelyllm_drone.EXPERIMENT
    policies = ("vllm-fcfs", "vllm-priority:rows=2", "deadline")
    for scripted in (True, False):
        options = experiment.options(
            engine="vllm", policies=policies if scripted else policies[2:], trace=file,
            profile="millisecond", own_pace=True, scripted=scripted,
            engine_args=("load_format=dummy", "dtype=bfloat16"),
        )  # fmt: skip
        run = experiment.run(options, lambda done, total: None)
        engines = [row["engine"] for row in run.rows]
        assert engines == ["vllm"] * len(options.policies) + ["simulated"]
        if scripted:
            assert {row["share_served"] for row in run.rows} == {1.0}


def test_random_weights_can_be_measured() -> None:
    engine = make_engine(
        "vllm", model=resource("models/tiny_planner"), engine_args={"load_format": "dummy"}
    )
    found = measure_prompts(engine, 1)
    engine.close()
    shared = (256 - OWN) // BLOCK_TOKENS * BLOCK_TOKENS
    assert [prompt.computed for prompt in found[:2]] == [256, 256 - shared]
