"""Attention of a packed step: many sequences in one row of tokens, each over its own KV.

Values that do not depend on the layer (positions of sequences, masks) are computed once a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from transformers import AttentionInterface

from timely_llm.engines.transformers.kv_pool import KvPool, PrefixKv, RowsKv

NAME = "timely_llm_packed"


@dataclass(frozen=True)
class AttentionCall:
    """One layer's call for attention, for a row of N tokens.

    Attributes:
        query: [heads, N, dim].
        key: [kv heads, N, dim].
        value: [kv heads, N, value dim].
        window: tokens that a token attends to, itself included; None: all.
        softcap: scores are limited to (-softcap, softcap); None: no limit.
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
    """Computes the attention of all layers in one forward pass."""

    def attend(self, call: AttentionCall) -> Tensor:
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
    """Pass a layer's call on to its step; the library transformers calls this function."""
    if packed is None:
        raise TypeError(f"{type(module).__name__} does not pass on the arguments of attention")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    call = AttentionCall(module, query[0], key[0], value[0], scale, sliding_window, softcap, others)
    return packed.attend(call)[None], None


AttentionInterface.register(NAME, packed_attention)


_SHORTEST_GROUP = 64


class DecodeGroup:
    """Sequences that compute one token each and share a prefix, or have none.

    The KV of the prefix is read once for all of them; their own KV is gathered and padded.
    """

    def __init__(
        self,
        places: list[int],
        slots: list[np.ndarray],
        lengths: np.ndarray,
        prefix: PrefixKv | None,
        device: str,
        kept: RowsKv | None = None,
    ) -> None:
        self._kept = kept
        width = int(lengths.max())
        self._slots = slots
        self._prefix = prefix
        self._shared = prefix.tokens if prefix else 0
        self._rows, self._width = len(slots), width
        first, together = places[0], places == list(range(places[0], places[0] + len(places)))
        self._index = None if together else torch.tensor(places, device=device)
        self._span = slice(first, first + len(places))
        self._lengths = torch.from_numpy(lengths).to(device)
        self._padded = bool((lengths < width).any())
        self._hidden: dict[int | None, Tensor | None] = {}

    def attend(self, call: AttentionCall, pool: KvPool) -> Tensor:
        """Return [rows, heads, value dim]."""
        kv_heads, dim = call.key.shape[0], call.key.shape[2]
        query = call.query[:, self._span]
        if self._index is not None:
            query = call.query.index_select(1, self._index)
        query = query.view(kv_heads, -1, *query.shape[1:]).transpose(1, 2) * call.scale
        keys, values = self._gather(call, pool)
        scores = query @ keys.transpose(-1, -2)
        if self._prefix:
            flat = query.reshape(kv_heads, -1, dim)
            shared = flat @ self._prefix.keys[call.layer].transpose(-1, -2)
            scores = torch.cat((shared.view(*scores.shape[:-1], -1), scores), dim=-1)
        weights = self._weights(scores, call)
        out = weights[..., self._shared :] @ values
        if self._prefix:
            flat = weights[..., : self._shared].reshape(kv_heads, -1, self._shared)
            out += (flat @ self._prefix.values[call.layer]).view(out.shape)
        return out.transpose(0, 1).flatten(1, 2)

    @cached_property
    def _table(self) -> Tensor:
        """Slots of all rows' tokens, row by row, padded."""
        table = np.empty((self._rows, self._width), dtype=np.int64)
        for row, own in zip(table, self._slots, strict=True):
            row[: len(own)] = own
            row[len(own) :] = own[0]  # masked, but it must be a valid slot
        return torch.from_numpy(table.reshape(-1)).to(self._lengths.device)

    def _gather(self, call: AttentionCall, pool: KvPool) -> tuple[Tensor, Tensor]:
        """Return the rows' own keys and values, [kv heads, rows, width, dim]."""
        layer, kept = call.layer, self._kept
        if kept is not None:
            if layer in kept.keys:
                kept.add(layer, call.key, call.value)
            else:
                kept.begin(layer, *pool.gather(layer, self._table))
            return kept.keys[layer][:, :, : self._width], kept.values[layer][:, :, : self._width]
        keys, values = pool.gather(layer, self._table)
        shape = (keys.shape[0], self._rows, self._width, -1)
        return keys.view(shape), values.view(shape)

    def put(self, out: Tensor, attended: Tensor) -> None:
        """Write the result of `attend` into a row of tokens, [tokens, heads, value dim]."""
        if self._index is None:
            out[self._span] = attended
        else:
            out.index_copy_(0, self._index, attended)

    def _weights(self, scores: Tensor, call: AttentionCall) -> Tensor:
        if call.softcap is not None:
            scores = torch.tanh(scores / call.softcap) * call.softcap
        hidden = self._mask(call.window)
        if hidden is not None:
            scores = scores.masked_fill(hidden, -torch.inf)
        return torch.softmax(scores, dim=-1, dtype=torch.float32).to(scores.dtype)

    def _mask(self, window: int | None) -> Tensor | None:
        """Return the tokens that each row does not attend to, [rows, 1, shared + width]."""
        if window not in self._hidden:
            columns = torch.arange(self._shared + self._width, device=self._lengths.device)
            stops = (self._lengths + self._shared)[:, None]
            hidden = columns >= stops
            if window is not None:
                hidden |= columns < stops - window
            needed = self._padded if window is None else bool(hidden.any())
            self._hidden[window] = hidden[:, None] if needed else None
        return self._hidden[window]


class PrefillChunk:
    """A sequence that computes several tokens: a prompt, a part of one, or tool output."""

    def __init__(
        self, first: int, tokens: int, slots: np.ndarray, prefix: PrefixKv | None, device: str
    ) -> None:
        self._span = slice(first, first + tokens)
        self._tokens = tokens
        self._prefix = prefix
        self._start = len(slots) - tokens + (prefix.tokens if prefix else 0)
        self._slots = torch.from_numpy(slots).to(device)
        self._seen: dict[int | None, Tensor] = {}

    def attend(self, call: AttentionCall, pool: KvPool) -> Tensor:
        """Return [tokens, heads, value dim]."""
        query = call.query[:, self._span]
        if self._start == 0:
            keys, values = call.key[:, self._span], call.value[:, self._span]
        else:
            keys, values = pool.gather(call.layer, self._slots)
            if self._prefix:
                keys = torch.cat((self._prefix.keys[call.layer], keys), dim=1)
                values = torch.cat((self._prefix.values[call.layer], values), dim=1)
        groups = query.shape[0] // keys.shape[0]
        if groups > 1:
            keys = keys.repeat_interleave(groups, dim=0)
            values = values.repeat_interleave(groups, dim=0)
        window = call.window if call.window and call.window < keys.shape[1] else None
        if call.softcap is not None:
            scores = query @ keys.transpose(-1, -2) * call.scale
            scores = torch.tanh(scores / call.softcap) * call.softcap
            scores = scores.masked_fill(~self._mask(window), -torch.inf)
            weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(scores.dtype)
            return (weights @ values).transpose(0, 1)
        causal = self._start == 0 and window is None
        out = functional.scaled_dot_product_attention(
            query[None],
            keys[None],
            values[None],
            attn_mask=None if causal else self._mask(window),
            is_causal=causal,
            scale=call.scale,
        )
        return out[0].transpose(0, 1)

    def put(self, out: Tensor, attended: Tensor) -> None:
        """Write the result of `attend` into a row of tokens, [tokens, heads, value dim]."""
        out[self._span] = attended

    def _mask(self, window: int | None) -> Tensor:
        """Return the tokens that each token attends to, [tokens, start + tokens]."""
        if window not in self._seen:
            size = (self._tokens, self._start + self._tokens)
            seen = torch.ones(size, dtype=torch.bool, device=self._slots.device).tril(self._start)
            if window is not None:
                seen = seen.triu(self._start - window + 1)
            self._seen[window] = seen
        return self._seen[window]


@dataclass(frozen=True)
class PackedSequence:
    """A sequence in a packed step.

    Attributes:
        key: key of the sequence.
        tokens: tokens that it computes.
        slots: slots of its own KV, those of the new tokens last.
        prefix: KV that it shares; None: none.
    """

    key: str
    tokens: int
    slots: np.ndarray
    prefix: PrefixKv | None


class PackedStep:
    """Computes the attention of all layers in the forward pass of one step.

    Args:
        members: the sequences, in the order of their tokens.
        pool: KV of the sequences.
        device: device of the pool.
    """

    def __init__(self, members: Sequence[PackedSequence], pool: KvPool, device: str) -> None:
        self._pool = pool
        new_slots = np.concatenate([member.slots[-member.tokens :] for member in members])
        self._new_slots = torch.from_numpy(new_slots).to(device)
        self._groups: list[DecodeGroup | PrefillChunk] = []
        together: dict[tuple[int, int], list[tuple[int, PackedSequence]]] = {}
        first = 0
        for member in members:
            if member.tokens == 1:
                # Rows of a group have similar lengths, so that padding is short.
                size = max(len(member.slots), _SHORTEST_GROUP).bit_length()
                together.setdefault((id(member.prefix), size), []).append((first, member))
            else:
                chunk = PrefillChunk(first, member.tokens, member.slots, member.prefix, device)
                self._groups.append(chunk)
            first += member.tokens
        for rows in together.values():
            places = [place for place, _ in rows]
            slots = [member.slots for _, member in rows]
            lengths = np.array([len(own) for own in slots])
            # Without a prefill, these may be the same rows as in the last step.
            alone = len(rows) == len(members)
            kept = pool.rows([member.key for _, member in rows], lengths) if alone else None
            self._groups.append(
                DecodeGroup(places, slots, lengths, rows[0][1].prefix, device, kept)
            )

    def attend(self, call: AttentionCall) -> Tensor:
        """Store the layer's new KV and return [tokens, heads, value dim]."""
        self._pool.store(call.layer, self._new_slots, call.key, call.value)
        if len(self._groups) == 1:  # one group has all tokens, in order
            return self._groups[0].attend(call, self._pool)
        heads, tokens = call.query.shape[:2]
        out = call.query.new_empty((tokens, heads, call.value.shape[-1]))
        for group in self._groups:
            group.put(out, group.attend(call, self._pool))
        return out
