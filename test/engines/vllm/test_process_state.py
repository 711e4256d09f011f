"""Several engines of vLLM in a process, and their ends."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from timely_llm.engines.sequences import EngineLimits

if TYPE_CHECKING:
    from timely_llm.conformance.engines.driver import Driver

pytest.importorskip("vllm", reason="vLLM is not installed: see `make test-vllm`")

from vllm.engine.arg_utils import EngineArgs

from test.engines.vllm_runner import ON_CPU
from timely_llm.engines.vllm import options
from timely_llm.engines.vllm.engine import VllmEngine

PROMPT = list(range(5, 105))


@pytest.mark.skipif(ON_CPU, reason="vLLM runs on a CPU")
def test_each_engine_keeps_its_cuda_graphs(
    llama: Path, drive: type[Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(options, "EngineArgs", EngineArgs)
    args = {"gpu_memory_utilization": 0.05, "compilation_config": {"mode": 0}}
    limits = EngineLimits(kv_tokens=512, max_rows=4)
    drivers = [drive(VllmEngine(llama, "bfloat16", limits, engine_args=args)) for _ in range(2)]
    for driver in drivers:
        driver.add_ids("a", PROMPT)
    assert drivers[0].answer("a", 9) == drivers[1].answer("a", 9)
    for driver in drivers:
        driver.engine.close()


def test_weights_can_be_freed(llama: Path) -> None:
    """Needed on a GPU, where compiled code refers to them after the engine's end."""
    engine = VllmEngine(llama, limits=EngineLimits(kv_tokens=512, max_rows=4))
    core = engine._core._core
    weights = list(core.model_executor.driver_worker.get_model().parameters())
    assert any(one.untyped_storage().nbytes() for one in weights)
    core.model_executor.collective_rpc("free_weights")
    assert not any(one.untyped_storage().nbytes() for one in weights)
    engine.close()


def test_two_engines_in_a_process(llama: Path, drive: type[Driver]) -> None:
    engines = [VllmEngine(llama, limits=EngineLimits(kv_tokens=512)) for _ in range(2)]
    drivers = [drive(engine) for engine in engines]
    for driver in drivers:
        driver.add_ids("a", PROMPT)
    assert drivers[0].answer("a", 9) == drivers[1].answer("a", 9)
    engines[0].close()
    engines[0].close()
    drivers[1].add_ids("b", PROMPT)
    assert drivers[1].answer("b", 12) == drivers[1].answer("a", 12)
    engines[1].close()
