"""A decoder of the library transformers, prepared for packed steps.

`PackedModel` runs the library's modules, or `FusedDecoder` for models that are built like Llama. In
a small step the library's modules spend more time between operations than in them. The fused
decoder has one projection instead of three, and one operation for a norm. It stores no weight
twice. The engine compares both before it uses the fused one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging

from timely_llm.core.errors import EngineError, ModelError
from timely_llm.engines.sequences import AdmittedSequence, SequenceState
from timely_llm.engines.tokenizer import check_weights, max_positions
from timely_llm.engines.transformers.attention import NAME, Attention, AttentionCall
from timely_llm.engines.transformers.kv_pool import LayerShape

_ALIKE = frozenset(f"{name}ForCausalLM" for name in ("Llama", "Mistral", "Qwen2", "Qwen3"))


@dataclass(frozen=True)
class _Layer:
    """Weights of one layer, and its call for attention."""

    call: AttentionCall
    heads: int
    kv_heads: int
    project: nn.Linear
    head_norm: Tensor | None
    out: nn.Linear
    before: nn.Module
    after: nn.Module
    gate_up: nn.Linear
    activate: nn.Module
    down: nn.Linear


class FusedDecoder:
    """Computes the same as a model's `forward`, in fewer and larger operations.

    Args:
        model: a model of the library transformers; the weights of its projections become views.
        calls: each layer's call for attention.

    Raises:
        TypeError: it is not built like Llama.
    """

    def __init__(self, model: Any, calls: Mapping[int, AttentionCall]) -> None:
        if type(model).__name__ not in _ALIKE:
            raise TypeError(f"{type(model).__name__} is not built like Llama")
        self._embed = model.get_input_embeddings()
        self._rotary = model.model.rotary_emb
        self._norm = model.model.norm
        self._head = model.get_output_embeddings()
        self._layers = [_layer(module, calls[n]) for n, module in enumerate(model.model.layers)]

    def forward(
        self, token_ids: Tensor, positions: Tensor, ends: Tensor, attention: Attention
    ) -> Tensor:
        """Run one row of tokens through the model; see `PackedModel.forward`."""
        hidden = self._embed(token_ids)
        cos, sin = self._rotary(hidden[None], positions[None])
        half = cos.shape[-1] // 2
        cos = cos[0, :, None]
        # The library swaps the halves and negates one of them; here the sine is negated instead.
        sin = torch.cat((-sin[0, :, None, :half], sin[0, :, None, half:]), dim=-1)
        for layer in self._layers:
            hidden = _attend(layer, hidden, cos, sin, attention)
            both = layer.gate_up(_norm(layer.after, hidden))
            gate, up = both.chunk(2, dim=-1)
            hidden = hidden + layer.down(layer.activate(gate).mul_(up))
        logits: Tensor = self._head(_norm(self._norm, hidden[ends]))
        return logits


def _attend(
    layer: _Layer, hidden: Tensor, cos: Tensor, sin: Tensor, attention: Attention
) -> Tensor:
    tokens, heads, kv_heads = len(hidden), layer.heads, layer.kv_heads
    mixed = layer.project(_norm(layer.before, hidden)).view(tokens, heads + 2 * kv_heads, -1)
    turned, value = mixed[:, : heads + kv_heads], mixed[:, heads + kv_heads :]
    if layer.head_norm is not None:
        epsilon = layer.call.module.q_norm.variance_epsilon
        turned = functional.rms_norm(turned, turned.shape[-1:], eps=epsilon) * layer.head_norm
    turned = torch.addcmul(turned * cos, turned.roll(cos.shape[-1] // 2, -1), sin).transpose(0, 1)
    call = replace(
        layer.call, query=turned[:heads], key=turned[heads:], value=value.transpose(0, 1)
    )
    attended: Tensor = layer.out(attention.attend(call).reshape(tokens, -1))
    return hidden + attended


def _layer(module: Any, call: AttentionCall) -> _Layer:
    attention, mlp = module.self_attn, module.mlp
    size = attention.head_dim
    head_norm = None
    heads, kv_heads = (attention.q_proj.out_features // size, attention.k_proj.out_features // size)
    if hasattr(attention, "q_norm"):
        norms = [attention.q_norm.weight] * heads + [attention.k_norm.weight] * kv_heads
        head_norm = torch.stack(norms).detach()
    return _Layer(
        call=call,
        heads=heads,
        kv_heads=kv_heads,
        project=_together([attention.q_proj, attention.k_proj, attention.v_proj]),
        head_norm=head_norm,
        out=attention.o_proj,
        before=module.input_layernorm,
        after=module.post_attention_layernorm,
        gate_up=_together([mlp.gate_proj, mlp.up_proj]),
        activate=mlp.act_fn,
        down=mlp.down_proj,
    )


def _together(linears: Sequence[nn.Linear]) -> nn.Linear:
    """Return one projection for several; their weights become views of its weights."""
    if any(type(linear) is not nn.Linear for linear in linears):
        raise TypeError("a projection is no plain one")
    one = nn.Linear(1, 1, bias=False, device="meta")
    for name in ("weight", "bias"):
        parts = [getattr(linear, name) for linear in linears]
        if any(part is None for part in parts):
            if name == "weight" or any(part is not None for part in parts):
                raise TypeError("only some projections have a bias")
            continue
        whole = nn.Parameter(torch.cat([part.detach() for part in parts]), requires_grad=False)
        setattr(one, name, whole)
        first = 0
        for linear, part in zip(linears, parts, strict=True):
            view = whole.data[first : first + len(part)]
            setattr(linear, name, nn.Parameter(view, requires_grad=False))
            first += len(part)
    return one


def _norm(norm: Any, hidden: Tensor) -> Tensor:
    return functional.rms_norm(hidden, hidden.shape[-1:], norm.weight, norm.variance_epsilon)


_TOLERANCE = {torch.float32: 0.01, torch.bfloat16: 0.2, torch.float16: 0.05}


def check_model(
    name: str, vocabulary: int, forward: Callable[[Sequence[AdmittedSequence]], Tensor]
) -> Tensor:
    """Check that a model can be served in packed steps.

    The check finds models that keep state of a sequence outside of the KV, or that count positions
    by themselves.

    Args:
        name: name of the model, for the error.
        vocabulary: tokens of its vocabulary.
        forward: computes parts and returns the logits of each part that finishes.

    Returns:
        The logits after a test sequence.

    Raises:
        ModelError: an answer depends on the other sequences of its step.
    """
    words = [7 * place % vocabulary for place in range(3, 15)]
    alone = SequenceState("alone", words, None, 0, 0, 0)
    split = SequenceState("split", words, None, 0, 0, 0)
    other = SequenceState("other", words[6:], None, 0, 0, 0)
    expected = forward([AdmittedSequence.of(alone, 0, len(words))])[0]
    forward([AdmittedSequence.of(other, 0, 4), AdmittedSequence.of(split, 0, 5)])
    forward([AdmittedSequence.of(split, 5, 6), AdmittedSequence.of(other, 4, 1)])
    found = forward([AdmittedSequence.of(other, 5, 1), AdmittedSequence.of(split, 11, 1)])[1]
    if not alike(found, expected):
        raise ModelError(
            f"the model {name!r} is not supported by the engine transformers: a sequence's answer"
            " depends on the others in its step"
        )
    return expected


def alike(found: Tensor, expected: Tensor) -> bool:
    """Return whether logits are equal up to the rounding of their number type."""
    difference = (found - expected).float().abs().mean() / expected.float().std()
    return bool(difference < _TOLERANCE[expected.dtype])


DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}

# Arguments of attention that are not supported: sinks, ALiBi, other biases.
_UNKNOWN = ("s_aux", "position_bias", "head_mask", "alibi")


def choose_device(device: str) -> str:
    """Return "cpu" or a CUDA device; "auto" is CUDA if there is one.

    Raises:
        EngineError: the device is unknown or missing.
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
    """The weights of a model, and a forward pass that takes its attention as an argument.

    Args:
        model: folder, or id on the Hugging Face hub.
        dtype: one of `DTYPES`.
        device: a result of `choose_device`.

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
        """Most tokens of a sequence that the model supports."""
        return max_positions(self._model.config.get_text_config())

    @property
    def vocabulary(self) -> int:
        """Tokens of the vocabulary."""
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
            ends: indexes of the row with logits in the result; at least one.
            attention: computes the attention of all layers.

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
        """Whether `forward` runs the fused decoder."""
        return self._fused is not None

    def fuse(self, fused: bool) -> None:
        """Choose the fused decoder, which only models like Llama have, or the library's modules."""
        if not fused:
            self._fused = None
        elif self._fused is None:
            with contextlib.suppress(AttributeError, TypeError):
                self._fused = FusedDecoder(self._model, self._calls)

    def _probe(self) -> dict[int, AttentionCall]:
        """Return each layer's call for attention, from a forward pass."""
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
    """Records the calls of the layers."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.calls: dict[int, AttentionCall] = {}

    def attend(self, call: AttentionCall) -> Tensor:
        """Record a call; return zeros."""
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
    check_weights(folder)
    logging.disable_progress_bar()  # type: ignore[no-untyped-call] # logs of nodes show no progress bars
    try:
        config = AutoConfig.from_pretrained(name, trust_remote_code=False)
        if config.is_encoder_decoder:
            raise ModelError(f"{name!r} is an encoder-decoder: only decoders can be served")
        model: Any = AutoModelForCausalLM.from_pretrained(
            name, dtype=dtype, attn_implementation=NAME, trust_remote_code=False,
            use_safetensors=True,
        )  # fmt: skip
        return model.eval().to(device)
    except ModelError:
        raise
    except Exception as error:  # a broken file or an unreachable hub can raise anything
        if NAME in str(error):
            raise _unsupported(name, "it does not use the attention interface") from error
        lines = str(error).strip().splitlines() or [type(error).__name__]
        where = "check its files" if folder.is_dir() else "check the id and the way to the hub"
        raise ModelError(f"cannot load the model {name!r}, {where}: {lines[0]}") from error


def _unsupported(name: str, reason: str) -> ModelError:
    return ModelError(f"the model {name!r} is not supported by the engine transformers: {reason}")
