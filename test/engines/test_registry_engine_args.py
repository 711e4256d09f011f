"""Options of vLLM's in parameters."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely_llm.core.errors import EngineError
from timely_llm.engines.registry import make_engine, parse_engine_args


@pytest.mark.parametrize(
    ("texts", "args"),
    [
        ([], {}),
        ([""], {}),
        (["tensor_parallel_size=2", "enforce_eager=false"],
         {"tensor_parallel_size": 2, "enforce_eager": False}),
        (["gpu_memory_utilization=0.5"], {"gpu_memory_utilization": 0.5}),
        (["distributed_executor_backend=ray"], {"distributed_executor_backend": "ray"}),
        (['hf_overrides={"a": "b=c"}'], {"hf_overrides": {"a": "b=c"}}),
        (["quantization="], {"quantization": ""}),
    ],
)  # fmt: skip
def test_options(texts: list[str], args: dict[str, Any]) -> None:
    assert parse_engine_args(texts) == args


@pytest.mark.parametrize("text", ["eager", "=1", "tensor-parallel-size=2", "a b=1"])
def test_no_option(text: str) -> None:
    with pytest.raises(EngineError, match=f"'{text}' is not name=value"):
        parse_engine_args([text])


def test_given_twice() -> None:
    with pytest.raises(EngineError, match="'a' is given twice"):
        parse_engine_args(["a=1", "a=2"])


@given(st.lists(st.text(max_size=9), max_size=4))
def test_any_text_is_taken_or_refused(texts: list[str]) -> None:
    with contextlib.suppress(EngineError):
        assert all(name.isidentifier() for name in parse_engine_args(texts))


@pytest.mark.parametrize("engine", ["simulated", "transformers"])
def test_simulated_and_transformers_have_no_options(engine: str) -> None:
    with pytest.raises(EngineError, match="options of vllm and of engines of your own, not of"):
        make_engine(engine, model="models/tiny_planner", engine_args={"a": 1})
