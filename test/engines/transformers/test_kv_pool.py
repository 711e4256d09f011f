"""Slots, and the KV kept of rows that go on together."""

import numpy as np
import torch

from timely_llm.engines.transformers.kv_pool import KvPool, LayerShape, RowsKv

SHAPE = LayerShape(kv_heads=2, key_dim=3, value_dim=4)


def pool() -> KvPool:
    return KvPool({0: SHAPE}, 64, torch.float32, "cpu")


def write(made: KvPool, slots: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    """Store KV that names its slots."""
    names = torch.from_numpy(slots).float()[None, :, None]
    key, value = names.expand(2, -1, 3), -names.expand(2, -1, 4)
    made.store(0, torch.from_numpy(slots), key, value)
    return key, value


def grow(
    made: KvPool, rows: list[np.ndarray], names: str = "ab"
) -> tuple[list[np.ndarray], RowsKv | None]:
    """Let each row have one more token; return the rows and what is kept of them."""
    rows = [np.concatenate((row, made.take(1))) for row in rows]
    newest = np.array([row[-1] for row in rows])
    key, value = write(made, newest)
    kept = made.rows(list(names), np.array([len(row) for row in rows]))
    if kept is not None and 0 in kept.keys:
        kept.add(0, key, value)
    elif kept is not None:
        width = max(map(len, rows))
        table = np.array([np.concatenate((r, np.repeat(r[:1], width - len(r)))) for r in rows])
        kept.begin(0, *made.gather(0, torch.from_numpy(table.reshape(-1))))
    return rows, kept


def begin(made: KvPool, *lengths: int) -> list[np.ndarray]:
    rows = [made.take(length) for length in lengths]
    for row in rows:
        write(made, row)
    return rows


def test_rows_that_go_on_together_are_gathered_once_and_then_extended() -> None:
    made = pool()
    rows = begin(made, 3, 5)
    rows, kept = grow(made, rows)
    assert kept is None  # they may be together only once
    for _ in range(4):
        rows, kept = grow(made, rows)
        assert kept is not None
        for place, row in enumerate(rows):
            assert kept.keys[0][0, place, : len(row), 0].tolist() == row.tolist()
            assert kept.values[0][1, place, : len(row), 0].tolist() == (-row).tolist()


def test_other_rows_or_freed_slots_begin_anew() -> None:
    made = pool()
    rows, other = begin(made, 3, 5), begin(made, 2)
    rows, _ = grow(made, rows)
    other, kept = grow(made, other, "c")
    assert kept is None
    rows, kept = grow(made, rows)
    assert kept is None  # others were in between
    rows, kept = grow(made, rows)
    assert kept is not None
    made.give_back(other[0])
    rows, kept = grow(made, rows)
    assert kept is None  # another sequence may have the slots of one of them
