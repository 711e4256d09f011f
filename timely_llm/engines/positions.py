"""The longest sequence that a model was made for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from timely_llm.core.errors import ModelError, first_line


def max_positions(config: Any) -> int:
    """Return the tokens of the longest sequence that a text model was made for."""
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") == "longrope":
        # Beyond it all positions turn otherwise, those in the KV too.
        return int(rope["original_max_position_embeddings"])
    return int(getattr(config, "max_position_embeddings", None) or 1 << 20)


def most_positions(model: str | Path) -> int:
    """Return the longest sequence that a model was made for, in tokens.

    Raises:
        ModelError: it cannot be read.
    """
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(str(model), trust_remote_code=False)
    except Exception as error:  # whatever a broken file or a hub out of reach leads to
        raise ModelError(f"cannot read the model {str(model)!r}: {first_line(error)}") from error
    return max_positions(config.get_text_config())
