"""Which files of a model vLLM may read; runs without vLLM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from timely_llm.core.errors import EngineError, ModelError
from timely_llm.engines.registry import parse_engine_args
from timely_llm.engines.vllm.loading import check_loading


@pytest.mark.parametrize("value", ["true", "1", '"false"', "null"])
def test_code_of_a_model_cannot_be_switched_on(value: str) -> None:
    with pytest.raises(EngineError, match="trust_remote_code cannot be switched on"):
        check_loading("a/model", parse_engine_args([f"trust_remote_code={value}"]))


@pytest.mark.parametrize("value", ["auto", "pt", "bitsandbytes", "npcache", ["pt"], None])
def test_formats_that_read_pickles_are_refused(value: Any) -> None:
    with pytest.raises(EngineError, match="load_format must be one of safetensors, dummy"):
        check_loading("a/model", {"load_format": value})


def test_a_folder_needs_safetensors_unless_its_weights_are_random(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(ModelError, match=r"pytorch_model\.bin is a pickle, which can run code"):
        check_loading(str(tmp_path), {})
    check_loading(str(tmp_path), {"load_format": "dummy", "trust_remote_code": False})
    (tmp_path / "model.safetensors").write_bytes(b"")
    check_loading(str(tmp_path), {})
    check_loading("a/model", {})
