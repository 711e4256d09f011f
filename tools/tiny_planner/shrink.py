"""A smaller model out of a larger one, to go on training from: it is quicker than from scratch.

The residual stream is projected on the directions in which it is largest on some text
(Ashkboos et al. 2024), each layer keeps the units of its network that are largest there, and some
layers are left out.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from transformers import LlamaForCausalLM


@torch.no_grad()
def shrunk(
    model: LlamaForCausalLM, rows: torch.Tensor, hidden: int, inner: int, layers: int
) -> LlamaForCausalLM:
    """Return a model with fewer dimensions, units and layers.

    Args:
        model: a Llama with tied embeddings.
        rows: tokens of some text, padded at the right.
        hidden: size of the residual stream.
        inner: units of each layer's network.
        layers: layers that are kept: the first ones and the last.
    """
    kept_layers = [*range(layers - 1), model.config.num_hidden_layers - 1]
    states, units = _activations(model, rows)
    basis = _largest(states, hidden)
    config = copy.deepcopy(model.config)
    config.hidden_size, config.intermediate_size = hidden, inner
    config.num_hidden_layers = layers
    made = LlamaForCausalLM(config)
    small: Any = made
    scale = math.sqrt(model.config.hidden_size / hidden)  # of a norm's output
    full: Any = model.model
    small.model.embed_tokens.weight.copy_(full.embed_tokens.weight @ basis)
    small.model.norm.weight.fill_(full.norm.weight.mean().item() / scale)
    for target, number in zip(small.model.layers, kept_layers, strict=True):
        source = full.layers[number]
        kept = units[number].topk(inner).indices
        for norm in (target.input_layernorm, target.post_attention_layernorm):
            norm.weight.fill_(1.0 / scale)
        read = source.input_layernorm.weight[:, None] * basis
        for name in ("q_proj", "k_proj", "v_proj"):
            weight = getattr(source.self_attn, name).weight
            getattr(target.self_attn, name).weight.copy_(weight @ read)
        target.self_attn.o_proj.weight.copy_(basis.T @ source.self_attn.o_proj.weight)
        read = source.post_attention_layernorm.weight[:, None] * basis
        for name in ("gate_proj", "up_proj"):
            getattr(target.mlp, name).weight.copy_(getattr(source.mlp, name).weight[kept] @ read)
        target.mlp.down_proj.weight.copy_(basis.T @ source.mlp.down_proj.weight[:, kept])
    return made


def _activations(
    model: LlamaForCausalLM, rows: torch.Tensor
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Return the residual stream before each layer, and the mean size of each layer's units."""
    units: list[torch.Tensor] = []
    inside: Any = model.model
    hooks = [
        layer.mlp.down_proj.register_forward_pre_hook(
            lambda module, given: units.append(
                given[0].abs().flatten(0, 1).mean(0) * module.weight.norm(dim=0)
            )
        )
        for layer in inside.layers
    ]
    out = inside(rows, output_hidden_states=True)
    for hook in hooks:
        hook.remove()
    # The last state is behind the last norm.
    return torch.cat([state.flatten(0, 1) for state in out.hidden_states[:-1]]), units


def _largest(states: torch.Tensor, count: int) -> torch.Tensor:
    """Return the directions in which states are largest, as columns."""
    states = states / states.norm(dim=1, keepdim=True)
    values, vectors = torch.linalg.eigh(states.T @ states)
    found: torch.Tensor = vectors[:, values.argsort(descending=True)[:count]]
    return found
