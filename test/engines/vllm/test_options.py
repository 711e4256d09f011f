"""Options with which vLLM is started, and which of them are refused."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from timely_llm.core.errors import EngineError
from timely_llm.engines.sequences import EngineLimits

pytest.importorskip("vllm", reason="vLLM is not installed: see `make test-vllm`")

from test.engines.conftest import NGRAMS
from test.engines.vllm_runner import plans_ahead
from timely_llm.engines.vllm import options
from timely_llm.engines.vllm.engine import BLOCK_TOKENS, VllmEngine


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The options that vLLM is asked for; it then refuses them."""
    given: dict[str, Any] = {}

    def take(**options: Any) -> None:
        given.update(options)
        raise EngineError("enough")

    monkeypatch.setattr(options, "EngineArgs", take)
    return given


def test_memory_is_what_kv_tokens_need(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU too, where vLLM would take what is left of it."""
    monkeypatch.setattr(options, "current_platform", SimpleNamespace(is_cpu=lambda: False))
    limits = EngineLimits(max_model_len=256, kv_tokens=512, max_rows=4)
    config = options.engine_config(str(llama), "float32", limits, BLOCK_TOKENS, {})
    token = 2 * 2 * 2 * 32 * 4  # keys and values, layers, heads, values of a head, bytes
    assert config.cache_config.kv_cache_memory_bytes == (512 + 4 * 32 + 32) * token
    config = options.engine_config(
        str(llama), "float32", limits, BLOCK_TOKENS, {"kv_cache_memory_bytes": 1 << 20}
    )
    assert config.cache_config.kv_cache_memory_bytes == 1 << 20


@pytest.mark.parametrize(
    ("gpu", "args", "ahead"),
    [
        (True, {}, True),
        (False, {}, False),
        (True, {"async_scheduling": False}, False),
        (False, {"async_scheduling": True}, True),
        (True, {"pipeline_parallel_size": 2}, False),
        (True, {"speculative_config": NGRAMS}, False),
        (True, {"enable_prefix_caching": True}, False),
        (True, {"enable_prefix_caching": False}, True),
        (True, {"kv_offloading_size": 4}, False),
    ],
)
def test_on_a_gpu_the_next_step_is_planned_while_one_runs(
    llama: Path, asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch,
    gpu: bool, args: Any, ahead: bool,
) -> None:  # fmt: skip
    if "speculative_config" in args and find_spec("numba") is None:
        pytest.skip("vLLM guesses tokens with the package numba")
    monkeypatch.setattr(options, "_plans_ahead", plans_ahead)
    monkeypatch.setattr(options, "current_platform", SimpleNamespace(is_cpu=lambda: not gpu))
    with pytest.raises(EngineError, match="enough"):
        options.engine_config(str(llama), "float32", EngineLimits(), BLOCK_TOKENS, args)
    assert asked["async_scheduling"] is ahead


@pytest.mark.parametrize(
    ("tokens", "args", "graphs"),
    [
        (2048, {}, 1024),
        (512, {}, 512),
        (2048, {"max_cudagraph_capture_size": 64}, 64),
        (2048, {"cudagraph_capture_sizes": [1, 2]}, None),
        (2048, {"compilation_config": {"mode": 0}}, None),
    ],
)
def test_steps_with_prompts_are_cuda_graphs_too(
    llama: Path, asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch,
    tokens: int, args: Any, graphs: int | None,
) -> None:  # fmt: skip
    monkeypatch.setattr(options, "current_platform", SimpleNamespace(is_cpu=lambda: False))
    limits = EngineLimits(max_step_tokens=tokens)
    with pytest.raises(EngineError, match="enough"):
        options.engine_config(str(llama), "float32", limits, BLOCK_TOKENS, args)
    assert asked["max_cudagraph_capture_size"] == graphs


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        ({"async_scheduling": "yes"}, "async_scheduling must be true or false, not 'yes'"),
        ({"pipeline_parallel_size": 0}, "pipeline_parallel_size must be 1 or more, not 0"),
        ({"speculative_config": NGRAMS, "async_scheduling": True},
         "speculative decoding and asynchronous scheduling exclude each other"),
        ({"speculative_config": NGRAMS, "pipeline_parallel_size": 2},
         "speculative decoding and pipeline stages exclude each other"),
    ],
)  # fmt: skip
def test_steps_in_flight_that_cannot_be(llama: Path, args: dict[str, Any], reason: str) -> None:
    with pytest.raises(EngineError, match=reason):
        VllmEngine(llama, engine_args=args)


IN_RAY = {"distributed_executor_backend": "ray", "pipeline_parallel_size": 2}


@pytest.mark.parametrize(
    ("key", "newer", "reason"),
    [
        ("", True, "vLLM has no Ray on the platform cpu: only mp is allowed"),
        ("GPU", False, "it needs vLLM's RayExecutorV2: vllm 0.32, without VLLM_USE_RAY"),
        ("GPU", True, r"it needs the package ray on each machine: pip install 'timely_llm\[ray\]'"),
    ],
)
def test_workers_that_ray_cannot_start(
    llama: Path, monkeypatch: pytest.MonkeyPatch, key: str, newer: bool, reason: str
) -> None:
    platform = SimpleNamespace(ray_device_key=key, device_name="cpu", is_cpu=lambda: True)
    monkeypatch.setattr(options, "current_platform", platform)
    monkeypatch.setattr(options, "find_spec", lambda name: None)
    monkeypatch.setenv("VLLM_USE_RAY_V2_EXECUTOR_BACKEND", str(int(newer)))
    with pytest.raises(EngineError, match=f"executor_backend=ray is not possible: {reason}"):
        VllmEngine(llama, engine_args=IN_RAY)
