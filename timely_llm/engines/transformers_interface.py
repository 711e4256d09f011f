"""How transformers' models reach this package's attention.

transformers calls `packed_attention` in each layer of any model that uses its attention interface.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor
from transformers import AttentionInterface

NAME = "timely_llm_packed"


@dataclass(frozen=True)
class Call:
    """One layer's call for attention; a single row of N tokens.

    Attributes:
        query: [heads, N, dim].
        key: [kv heads, N, dim].
        value: [kv heads, N, value dim].
        window: tokens a token can see, itself included; None for all.
        softcap: scores are squeezed into (-softcap, softcap); None for not.
    """

    module: Any
    query: Tensor
    key: Tensor
    value: Tensor
    scale: float
    window: int | None
    softcap: float | None
    others: dict[str, Any]

    @property
    def layer(self) -> int:
        """The layer's number."""
        return int(self.module.layer_idx)


class Attention(Protocol):
    """Answers the calls of all layers in one forward pass."""

    def attend(self, call: Call) -> Tensor:
        """Return [N, heads, value dim]."""
        ...


def packed_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    packed: Attention | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Hand a layer's call to the step it belongs to; what transformers calls."""
    if packed is None:
        raise TypeError(f"{type(module).__name__} does not hand on the attention's arguments")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    call = Call(module, query[0], key[0], value[0], scale, sliding_window, softcap, others)
    return packed.attend(call)[None], None


AttentionInterface.register(NAME, packed_attention)
