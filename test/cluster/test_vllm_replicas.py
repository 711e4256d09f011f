"""Replicas with the engine vllm: in processes, and in actors of Ray."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil
import pytest

from test.alive import runs
from test.cluster.front import CLUSTERS, Front
from timely_llm.core.request import ChatMessage, ErrorCode, PlanRequest, StreamRequest
from timely_llm.engines.vllm.version import installed_version

pytestmark = [
    pytest.mark.skipif(
        installed_version() is None, reason="vLLM is not installed: see `make test-vllm`"
    ),
    pytest.mark.timeout(600),
]
LOADING_S = 300.0
TASKS = ["Scene: [chair]\nTask: [A] Find the chair.", "Scene: [cup]\nTask: [A] Look for a cup."]


@contextmanager
def replicas(cluster: str, **given: Any) -> Iterator[Front]:
    """Two replicas, each with an engine of its own and the embedded model."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_CPU_OMP_THREADS_BIND", "nobind")
        patch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
        made = Front(cluster=cluster, replicas=2, engine="vllm", **given)
        try:
            yield made
        finally:
            made.close()


def plans(front: Front, beginning: str) -> list[str]:
    """Ask for as many plans as there are replicas; return the ids."""
    for number, task in enumerate(TASKS):
        front.relay.submit(
            PlanRequest(
                f"{beginning} {number}", "robot", "drone", task, closed_loop=False, max_tokens=64
            )
        )
    return [f"{beginning} {number}" for number in range(len(TASKS))]


# Before the replicas that the other tests share.
@pytest.mark.parametrize("cluster", CLUSTERS)
def test_two_workers_of_a_replica_share_its_model_and_end_with_it(cluster: str) -> None:
    with replicas(cluster, engine_args=["tensor_parallel_size=2"]) as front:
        front.until(front.complete, LOADING_S)
        name, *_ = front.names
        workers = psutil.Process(front.pids[name]).children(recursive=True)
        assert len(workers) >= 2
        keys = plans(front, "shared")
        front.until(lambda: front.results.keys() >= {*keys})
        assert {front.results[key].error_code for key in keys} == {ErrorCode.NONE}
        os.kill(front.pids[name], signal.SIGKILL)
        front.until(lambda: not any(runs(one.pid) for one in workers))


@pytest.fixture(scope="module", params=CLUSTERS)
def front(request: pytest.FixtureRequest) -> Iterator[Front]:
    with replicas(request.param, constrained=True) as made:
        yield made


def test_each_engine_makes_plans_and_answers(front: Front) -> None:
    front.until(front.complete, LOADING_S)
    keys = plans(front, "whole")
    front.until(lambda: {*front.servers_of(*keys)} == {*front.names})
    talk = StreamRequest("answer", "person", messages=(ChatMessage("user", "Hello"),), max_tokens=8)
    front.relay.submit(talk)
    front.until(lambda: front.results.keys() >= {*keys, "answer"})
    assert {front.results[key].error_code for key in keys} == {ErrorCode.NONE}
    assert all(front.segments[key][-1].final for key in keys)
    assert front.chunks["answer"]


def test_a_replica_that_is_killed_loads_its_engine_again(front: Front) -> None:
    front.until(front.complete, LOADING_S)
    name = front.names[0]
    before = front.pids[name]
    os.kill(before, signal.SIGKILL)
    front.until(lambda: name not in front.relay.servers)
    front.until(lambda: front.complete() and front.pids[name] != before, LOADING_S)
    keys = plans(front, "again")
    front.until(lambda: front.results.keys() >= {*keys})
    assert {front.results[key].error_code for key in keys} == {ErrorCode.NONE}
