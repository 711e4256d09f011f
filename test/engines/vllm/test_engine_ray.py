"""Two stages of the engine vllm on two nodes of a Ray cluster, started by vLLM's own executor."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from timely_llm.core.errors import EngineLost
from timely_llm.core.step import StepPlan
from timely_llm.engines.contract import Decoding
from timely_llm.engines.sequences import EngineLimits

if TYPE_CHECKING:
    from timely_llm.conformance.engines.driver import Driver

pytest.importorskip("vllm", reason="vLLM is not installed: see `make test-vllm`")
pytest.importorskip("ray", reason="Ray is not installed: see `make test-vllm-ray`")
pytest.importorskip("cpu_in_ray", reason="see `make test-vllm-ray`")

import ray
from cpu_in_ray import RESOURCE
from ray.cluster_utils import Cluster

from timely_llm.engines.vllm.engine import VllmEngine

LIMITS = EngineLimits(max_model_len=256)
PROMPT = list(range(5, 105))
IN_RAY = {"pipeline_parallel_size": 2, "distributed_executor_backend": "ray"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A Ray cluster with two nodes, each with room for one stage."""
    node = {"num_cpus": 1, "resources": {RESOURCE: 1}, "object_store_memory": 78643200}
    made = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    made.add_node(**node)
    ray.init(address=made.address)
    yield made
    ray.shutdown()
    made.shutdown()


def answers(engine: VllmEngine, driver: type[Driver]) -> list[list[int]]:
    driven = driver(engine)
    driven.add_ids("greedy", PROMPT)
    driven.add_ids("drawn", PROMPT, decoding=Decoding(1.0, seed=4))
    return [driven.answer(key, 12, chunk=40) for key in ("greedy", "drawn")]


@pytest.mark.timeout(600)
def test_stages_on_two_nodes_answer_as_one_process_and_the_end_of_a_node_is_reported(
    llama: Path, drive: type[Driver], cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    # vLLM waits as long for a worker on another node that has ended.
    monkeypatch.setenv("VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS", "20")
    said = []
    for args in ({}, IN_RAY, IN_RAY):  # the second engine finds what the first one has freed
        engine = VllmEngine(llama, limits=LIMITS, engine_args=args)
        said.append(answers(engine, drive))
        if len(said) < 3:
            engine.close()
    assert said[0] == said[1] == said[2]
    workers: list[Any] = engine._core._core.model_executor.ray_worker_handles
    assert len({worker.node_id for worker in workers}) == 2

    (other,) = cluster.list_all_nodes()[1:]
    assert other.node_id in {worker.node_id for worker in workers}
    cluster.remove_node(other, allow_graceful=False)
    try:
        with pytest.raises(EngineLost, match="a worker process of vLLM has ended"):
            for _ in range(120):  # a worker may live for seconds after its node
                assert engine.capacity.max_rows
                engine.submit(StepPlan((("greedy", 1),)))
                engine.collect()
                time.sleep(0.5)
    finally:
        engine.close()  # an engine that outlives its cluster ends this process without a report
