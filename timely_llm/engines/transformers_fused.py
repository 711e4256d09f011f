"""A forward pass in fewer and larger operations, for decoders that are built like Llama.

The library's modules spend more time between the operations of a small step than in them. What
they compute is done here with one projection instead of three, and one operation for a norm. No
weight is stored twice, and whoever loads a model compares both before this one is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from timely_llm.engines.transformers_interface import Attention, Call

_ALIKE = frozenset(f"{name}ForCausalLM" for name in ("Llama", "Mistral", "Qwen2", "Qwen3"))


@dataclass(frozen=True)
class _Layer:
    """One layer's weights, and what it asks of attention."""

    call: Call
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
    """Does what a model's `forward` does.

    Args:
        model: of the library transformers; the weights of its projections become views.
        calls: how each layer calls attention.

    Raises:
        TypeError: it is not built like Llama.
    """

    def __init__(self, model: Any, calls: Mapping[int, Call]) -> None:
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
        # The library turns the halves and negates one; here their sine is negated.
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


def _layer(module: Any, call: Call) -> _Layer:
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
    """Return one projection for several; their weights become views of its own."""
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
