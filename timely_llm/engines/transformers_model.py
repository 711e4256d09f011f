"""A decoder of the transformers library, made ready for packed steps."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging

from timely_llm.core.errors import EngineError, ModelError
from timely_llm.engines.positions import max_positions
from timely_llm.engines.transformers_fused import FusedDecoder
from timely_llm.engines.transformers_interface import NAME, Attention, Call
from timely_llm.engines.transformers_kv import LayerShape

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}

# What attention may be handed that ours does not know: sinks, ALiBi, other biases.
_UNKNOWN = ("s_aux", "position_bias", "head_mask", "alibi")


def choose_device(device: str) -> str:
    """Return "cpu" or a CUDA device; "auto" is CUDA where there is one.

    Raises:
        EngineError: the device is unknown or not there.
    """
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    kind = device.split(":")[0]
    if kind not in ("cpu", "cuda"):
        raise EngineError(f"unknown device {device!r}: choose auto, cpu or cuda")
    if kind == "cuda" and not torch.cuda.is_available():
        raise EngineError(
            "torch finds no CUDA device here: choose device cpu or auto, or install a driver and"
            " a torch built for CUDA"
        )
    return device


class PackedModel:
    """Weights, and a forward pass whose attention is handed in.

    Args:
        model: folder, or id on the Hugging Face hub.
        dtype: one of `DTYPES`.
        device: as `choose_device` returns it.

    Raises:
        ModelError: the model cannot be loaded, or its attention is not supported.
    """

    def __init__(self, model: str | Path, dtype: str, device: str) -> None:
        if dtype not in DTYPES:
            raise EngineError(f"unknown dtype {dtype!r}: choose one of {', '.join(DTYPES)}")
        self.name = str(model)
        self.device = device
        self.dtype = DTYPES[dtype]
        self._model = _load(self.name, self.dtype, device)
        self._fused: FusedDecoder | None = None
        self._calls = self._probe()
        self.shapes = {
            layer: LayerShape(call.key.shape[0], call.key.shape[2], call.value.shape[2])
            for layer, call in self._calls.items()
        }

    @property
    def max_positions(self) -> int:
        """Tokens of the longest sequence the model was made for."""
        return max_positions(self._model.config.get_text_config())

    @property
    def vocabulary(self) -> int:
        """How many tokens there are."""
        return int(self._model.config.get_text_config().vocab_size)

    def forward(
        self,
        token_ids: Sequence[int],
        positions: Sequence[int],
        ends: Sequence[int],
        attention: Attention,
    ) -> Tensor:
        """Run one row of tokens through the model.

        Args:
            token_ids: the tokens.
            positions: each token's position in its own sequence.
            ends: places in the row whose logits are wanted; at least one.
            attention: answers the layers' calls.

        Returns:
            Logits, [ends, vocabulary].
        """
        with torch.inference_mode():
            if self._fused is not None:
                row = torch.tensor([token_ids, positions], device=self.device)
                return self._fused.forward(
                    row[0], row[1], torch.tensor(ends, device=self.device), attention
                )
            output = self._model(
                input_ids=torch.tensor([token_ids], device=self.device),
                position_ids=torch.tensor([positions], device=self.device),
                logits_to_keep=torch.tensor(ends, device=self.device),
                use_cache=False,
                packed=attention,
            )
        logits: Tensor = output.logits[0]
        return logits

    @property
    def fused(self) -> bool:
        """Whether `forward` makes do with fewer operations than the library's."""
        return self._fused is not None

    def fuse(self, fused: bool) -> None:
        """Choose whether it does; it never does for models that are not built for it."""
        if not fused:
            self._fused = None
        elif self._fused is None:
            with contextlib.suppress(AttributeError, TypeError):
                self._fused = FusedDecoder(self._model, self._calls)

    def _probe(self) -> dict[int, Call]:
        """Find out how the layers call attention, by asking them."""
        config = self._model.config.get_text_config()
        probe = _Probe(self.name)
        kinds = set(getattr(config, "layer_types", None) or ())
        if kinds - {"full_attention", "sliding_attention"}:
            raise _unsupported(self.name, f"it has layers of {', '.join(sorted(kinds))}")
        if not getattr(self._model, "_supports_attention_backend", False):
            raise _unsupported(self.name, "it does not use the attention interface")
        try:
            self.forward([0, 0], [0, 1], [1], probe)
        except (TypeError, ValueError) as error:
            raise _unsupported(self.name, str(error)) from error
        if sorted(probe.calls) != list(range(config.num_hidden_layers)):
            raise _unsupported(self.name, "not all of its layers are attention layers")
        return probe.calls


class _Probe:
    """Notes what the layers call with."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.calls: dict[int, Call] = {}

    def attend(self, call: Call) -> Tensor:
        """Answer with zeros."""
        asked = [name for name in _UNKNOWN if call.others.get(name) is not None]
        if asked:
            raise _unsupported(self._name, f"its attention uses {', '.join(asked)}")
        if call.others.get("is_causal") is False or not getattr(call.module, "is_causal", True):
            raise _unsupported(self._name, "its attention looks ahead")
        if call.layer in self.calls:
            raise _unsupported(self._name, f"layer {call.layer} attends more than once")
        self.calls[call.layer] = call
        heads, tokens, _ = call.query.shape
        return call.query.new_zeros((tokens, heads, call.value.shape[2]))


def _load(name: str, dtype: torch.dtype, device: str) -> Any:
    folder = Path(name)
    if not folder.is_dir() and (
        folder.is_absolute() or name.startswith(".") or name.count("/") != 1
    ):
        raise ModelError(f"there is no model folder {name!r}: give a folder or an id of the hub")
    if folder.is_dir() and not (folder / "config.json").is_file():
        raise ModelError(f"{name!r} is no model folder: it has no config.json")
    logging.disable_progress_bar()  # type: ignore[no-untyped-call] # a node's log is no terminal
    try:
        config = AutoConfig.from_pretrained(name, trust_remote_code=False)
        if config.is_encoder_decoder:
            raise ModelError(f"{name!r} is an encoder-decoder: only decoders can be served")
        model: Any = AutoModelForCausalLM.from_pretrained(
            name, dtype=dtype, attn_implementation=NAME, trust_remote_code=False
        )
        return model.eval().to(device)
    except ModelError:
        raise
    except Exception as error:  # whatever a broken file or a hub out of reach leads to
        if NAME in str(error):
            raise _unsupported(name, "it does not use the attention interface") from error
        lines = str(error).strip().splitlines() or [type(error).__name__]
        where = "check its files" if folder.is_dir() else "check the id and the way to the hub"
        raise ModelError(f"cannot load the model {name!r}, {where}: {lines[0]}") from error


def _unsupported(name: str, reason: str) -> ModelError:
    return ModelError(f"the model {name!r} is not supported by the engine transformers: {reason}")
