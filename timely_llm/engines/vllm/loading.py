"""What vLLM may read of a model: weights in safetensors, and no code. Needs no vLLM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from timely_llm.core.errors import EngineSettingError
from timely_llm.core.text import quoted
from timely_llm.engines.tokenizer import check_weights

DUMMY = "dummy"
"""Load format of random weights: nothing is read."""
LOAD_FORMATS = (
    "safetensors", DUMMY, "fastsafetensors", "mistral", "runai_streamer", "sharded_state",
)  # fmt: skip
"""Load formats of vLLM that read no pickle; the first one is the default."""


def check_loading(model: str, engine_args: Mapping[str, Any]) -> None:
    """Check that a model is loaded without running code that comes with it.

    Args:
        model: folder, or id on the Hugging Face hub.
        engine_args: options of vLLM.

    Raises:
        EngineError: an option lets the model's code run, or reads pickles.
        ModelError: the folder has no safetensors.
    """
    if engine_args.get("trust_remote_code", False) is not False:
        raise EngineSettingError(
            "engine_args: trust_remote_code cannot be switched on: code that comes with a model"
            " never runs"
        )
    load_format = engine_args.get("load_format", LOAD_FORMATS[0])
    if load_format not in LOAD_FORMATS:
        raise EngineSettingError(
            f"engine_args: load_format must be one of {', '.join(LOAD_FORMATS)}, not"
            f" {quoted(str(load_format))}: others can read pickles, which can run code"
        )
    if load_format != DUMMY:
        check_weights(model)
