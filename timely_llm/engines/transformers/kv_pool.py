"""KV of packed steps: a pool of slots for one token each, and the KV of pinned prefixes."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

_MOST_KEPT = 16_384
_SPARE = 64


@dataclass(frozen=True)
class LayerShape:
    """The KV of one token in one layer."""

    kv_heads: int
    key_dim: int
    value_dim: int


@dataclass(frozen=True)
class PrefixKv:
    """KV of a pinned prefix by layer, [kv heads, tokens, dim]; all sequences share one copy."""

    keys: dict[int, Tensor]
    values: dict[int, Tensor]
    tokens: int


class _WorkSpace:
    """Memory that each `select` overwrites."""

    def __init__(self, dtype: torch.dtype, device: str) -> None:
        self._memory = torch.empty(0, dtype=dtype, device=device)

    def select(self, source: Tensor, slots: Tensor) -> Tensor:
        """Return a copy of `source[:, slots]`."""
        size = source.shape[0] * len(slots) * source.shape[2]
        if len(self._memory) < size:
            self._memory = self._memory.new_empty(2 * size)
        copy = self._memory[:size].view(source.shape[0], len(slots), source.shape[2])
        return torch.index_select(source, 1, slots, out=copy)


@dataclass(eq=False)
class RowsKv:
    """Gathered KV of rows that decode together in successive steps: one token more each step.

    Attributes:
        sequences: keys of the rows.
        lengths: tokens of each row.
        version: version of the pool for which the rows are valid.
        capacity: tokens that fit into a row.
        keys, values: by layer, [kv heads, rows, capacity, dim].
    """

    sequences: list[str]
    lengths: np.ndarray
    version: int
    capacity: int = 0
    keys: dict[int, Tensor] = field(default_factory=dict)
    values: dict[int, Tensor] = field(default_factory=dict)
    _new: tuple[Tensor, Tensor] = field(init=False)
    """Rows and columns of the newest tokens."""

    def go_on(self, lengths: np.ndarray) -> None:
        """Make room for one more token of each row."""
        self.lengths = lengths
        self._new = torch.arange(len(lengths)), torch.from_numpy(lengths - 1)
        if lengths.max() > self.capacity:
            self.capacity = int(lengths.max()) + _SPARE
            self.keys.clear()
            self.values.clear()

    def begin(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """Store the gathered KV of a layer, [kv heads, rows * width, dim]."""
        for gathered, into in ((keys, self.keys), (values, self.values)):
            heads, _, dim = gathered.shape
            rows_of = gathered.view(heads, len(self.lengths), -1, dim)
            # Zeros, since masked values are still multiplied.
            into[layer] = gathered.new_zeros((heads, len(self.lengths), self.capacity, dim))
            into[layer][:, :, : rows_of.shape[2]] = rows_of

    def add(self, layer: int, key: Tensor, value: Tensor) -> None:
        """Add the KV of the new tokens, [kv heads, rows, dim]."""
        rows, places = self._new
        self.keys[layer][:, rows, places] = key
        self.values[layer][:, rows, places] = value


class KvPool:
    """KV by layer, [kv heads, slots, dim]; a slot holds one token.

    The lowest free slots are taken first, and an operating system allocates a page when it is first
    written. So on a CPU the pool needs memory for its peak use only.

    Args:
        shapes: shape of each layer's KV, by layer number.
        slots: tokens that can be stored.
        dtype: number type.
        device: device of the memory.
    """

    def __init__(
        self, shapes: dict[int, LayerShape], slots: int, dtype: torch.dtype, device: str
    ) -> None:
        self._keys = {
            layer: torch.empty((shape.kv_heads, slots, shape.key_dim), dtype=dtype, device=device)
            for layer, shape in shapes.items()
        }
        self._values = {
            layer: torch.empty((shape.kv_heads, slots, shape.value_dim), dtype=dtype, device=device)
            for layer, shape in shapes.items()
        }
        self._key_space, self._value_space = _WorkSpace(dtype, device), _WorkSpace(dtype, device)
        self._free = np.arange(slots, dtype=np.int64)[::-1].copy()
        self.free_slots = slots
        self._on_cpu = device == "cpu"
        self._rows: RowsKv | None = None
        self._version = 0

    def take(self, tokens: int) -> np.ndarray:
        """Take free slots; return their numbers."""
        if tokens > self.free_slots:
            raise IndexError(f"{tokens} slots wanted, {self.free_slots} are free")
        taken = self._free[self.free_slots - tokens : self.free_slots][::-1].copy()
        self.free_slots -= tokens
        return taken

    def give_back(self, slots: np.ndarray) -> None:
        """Free slots."""
        self._free[self.free_slots : self.free_slots + len(slots)] = slots[::-1]
        self.free_slots += len(slots)
        self._version += 1  # other sequences can take the slots now

    def rows(self, keys: list[str], lengths: np.ndarray) -> RowsKv | None:
        """Return the gathered KV of rows that are the same as in the last step; None: they differ.

        Gathered KV is a second copy, so it is kept only on a CPU and for few tokens.

        Args:
            keys: keys of the sequences.
            lengths: tokens of each sequence, its new token included.
        """
        kept = self._rows
        goes_on = (
            kept is not None
            and kept.version == self._version
            and kept.sequences == keys
            and np.array_equal(kept.lengths + 1, lengths)
        )
        if not self._on_cpu or len(keys) * lengths.max() > _MOST_KEPT:
            self._rows = None
            return None
        if kept is None or not goes_on:
            self._rows = RowsKv(keys, lengths, self._version)
            return None
        kept.go_on(lengths)
        return kept

    def store(self, layer: int, slots: Tensor, key: Tensor, value: Tensor) -> None:
        """Write the KV of new tokens, [kv heads, tokens, dim], into slots."""
        self._keys[layer].index_copy_(1, slots, key)
        self._values[layer].index_copy_(1, slots, value)

    def gather(self, layer: int, slots: Tensor) -> tuple[Tensor, Tensor]:
        """Return the keys and values in slots, [kv heads, slots, dim], valid until the next call.

        They lie in a work space, since new memory for each call would cost more than the copy.
        """
        keys, values = self._keys[layer], self._values[layer]
        return self._key_space.select(keys, slots), self._value_space.select(values, slots)

    def prefix(self, slots: np.ndarray) -> PrefixKv:
        """Return a copy of the KV in slots as that of a prefix."""
        index = torch.from_numpy(slots).to(next(iter(self._keys.values())).device)
        keys = {layer: pool.index_select(1, index) for layer, pool in self._keys.items()}
        values = {layer: pool.index_select(1, index) for layer, pool in self._values.items()}
        return PrefixKv(keys, values, len(slots))
