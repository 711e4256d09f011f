"""KV of a packed step: slots of one token each that any sequence can use, and pinned prefixes."""

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
    """A pinned prefix's KV, by layer [kv heads, tokens, dim]; one copy for all who share it."""

    keys: dict[int, Tensor]
    values: dict[int, Tensor]
    tokens: int


class _WorkSpace:
    """Memory that is written again and again."""

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
    """Gathered KV of rows that decode on and on together: a step adds one token to each.

    Attributes:
        sequences: whose rows they are.
        lengths: tokens of each row.
        version: of the pool, when that was so.
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
    """Rows and places of the newest tokens."""

    def go_on(self, lengths: np.ndarray) -> None:
        """Make room for one more token of each row."""
        self.lengths = lengths
        self._new = torch.arange(len(lengths)), torch.from_numpy(lengths - 1)
        if lengths.max() > self.capacity:
            self.capacity = int(lengths.max()) + _SPARE
            self.keys.clear()
            self.values.clear()

    def begin(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """Keep what was gathered of a layer, [kv heads, rows * width, dim]."""
        for gathered, into in ((keys, self.keys), (values, self.values)):
            heads, _, dim = gathered.shape
            rows_of = gathered.view(heads, len(self.lengths), -1, dim)
            # Zeros, since what is masked is still multiplied.
            into[layer] = gathered.new_zeros((heads, len(self.lengths), self.capacity, dim))
            into[layer][:, :, : rows_of.shape[2]] = rows_of

    def add(self, layer: int, key: Tensor, value: Tensor) -> None:
        """Add the KV of the new tokens, [kv heads, rows, dim]."""
        rows, places = self._new
        self.keys[layer][:, rows, places] = key
        self.values[layer][:, rows, places] = value


class KvPool:
    """KV by layer, [kv heads, slots, dim]; a slot holds one token.

    Slots are handed out lowest first, and an operating system gives memory to pages only when
    they are written, so that on a CPU the pool takes what was ever in use at a time.

    Args:
        shapes: of each layer that keeps KV, by its number.
        slots: tokens that can be stored.
        dtype: number type.
        device: where.
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
        """Return the numbers of free slots, now taken."""
        if tokens > self.free_slots:
            raise IndexError(f"{tokens} slots wanted, {self.free_slots} are free")
        taken = self._free[self.free_slots - tokens : self.free_slots][::-1].copy()
        self.free_slots -= tokens
        return taken

    def give_back(self, slots: np.ndarray) -> None:
        """Free slots."""
        self._free[self.free_slots : self.free_slots + len(slots)] = slots[::-1]
        self.free_slots += len(slots)
        self._version += 1  # from now on another sequence may have them

    def rows(self, keys: list[str], lengths: np.ndarray) -> RowsKv | None:
        """Return the KV kept of rows that go on as in the last step; None if they do not.

        Only on a CPU, and for few tokens: they are there a second time.

        Args:
            keys: of the sequences.
            lengths: tokens of each, with its new one.
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
        """Return the keys and values in slots, [kv heads, slots, dim], until the next call.

        Fresh memory for every call would cost more than the copying: they lie in a work space.
        """
        keys, values = self._keys[layer], self._values[layer]
        return self._key_space.select(keys, slots), self._value_space.select(values, slots)

    def prefix(self, slots: np.ndarray) -> PrefixKv:
        """Return a copy of slots as a prefix."""
        index = torch.from_numpy(slots).to(next(iter(self._keys.values())).device)
        keys = {layer: pool.index_select(1, index) for layer, pool in self._keys.items()}
        values = {layer: pool.index_select(1, index) for layer, pool in self._values.items()}
        return PrefixKv(keys, values, len(slots))
