"""Inputs made from those of a corpus by small changes."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

MOST_BYTES = 20_000
"""Longest input; what is longer is cut."""
_PIECES: re.Pattern[bytes] = re.compile(rb"\w+|\s+|[^\w\s]")
_WORDS = (
    b"", b"0", b"-1", b"1e999", b"-0.0", b"nan", b"99999999999999999999", b"null", b"true", b"[]",
    b"{}", b'""', b"'", b'"', b"\\", b"\x00", b"\n", b"\r\n", b"\t", b"\xff\xfe", b"\xed\xa0\x80",
    b"\xe2\x80\xae", b"\xf0\x9f\x98\x80", b"%s", b"${x}", b"!!python/object:os.system", b"&a",
    b"*a", b"<<:", b"?", b"|", b">", b"---", b"(?:a+)+$", b"(((((", b")", b"[", b"]", b"{", b"}",
    b";", b"->", b"_1", b"NaN", b"Infinity", b"\\u0000", b"\\ud800",
)  # fmt: skip
_SIZES = (0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 2**63 - 1, 2**64 - 1)

Mutation = Callable[[random.Random, bytes, Sequence[bytes]], bytes]


def _flipped(chance: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    made = bytearray(data)
    for _ in range(chance.randint(1, 8)):
        if made:
            made[chance.randrange(len(made))] = chance.randrange(256)
    return bytes(made)


def _cut(chance: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    begin, end = sorted(chance.randint(0, len(data)) for _ in range(2))
    return data[:begin] + data[end:] if chance.random() < 0.5 else data[:end]


def _repeated(chance: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    begin = chance.randint(0, len(data))
    end = min(begin + chance.randint(1, 64), len(data))
    times = chance.choice((1, 2, 10, 300))
    return data[:end] + data[begin:end] * times + data[end:]


def _worded(chance: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    place = chance.randint(0, len(data))
    return data[:place] + chance.choice(_WORDS) + data[place:]


def _replaced(chance: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    pieces: list[bytes] = _PIECES.findall(data)
    if pieces:
        others: list[bytes] = _PIECES.findall(chance.choice(corpus)) or [b""]
        word = chance.choice(others) if chance.random() < 0.5 else chance.choice(_WORDS)
        pieces[chance.randrange(len(pieces))] = word
    return b"".join(pieces)


def _swapped(chance: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    lines = data.split(b"\n")
    one, other = chance.randrange(len(lines)), chance.randrange(len(lines))
    lines[one], lines[other] = lines[other], lines[one]
    return b"\n".join(lines)


def _spliced(chance: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    other = chance.choice(corpus)
    return data[: chance.randint(0, len(data))] + other[chance.randint(0, len(other)) :]


def _resized(chance: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    width = chance.choice((1, 2, 4, 8))
    number = chance.choice(_SIZES) & ((1 << 8 * width) - 1)
    place = chance.randint(0, max(len(data) - width, 0))
    return data[:place] + number.to_bytes(width, "little") + data[place + width :]


_MUTATIONS: tuple[Mutation, ...] = (
    _flipped, _cut, _repeated, _worded, _replaced, _replaced, _swapped, _spliced, _resized,
)  # fmt: skip


def mutated(chance: random.Random, corpus: Sequence[bytes]) -> bytes:
    """Return a new input.

    Args:
        chance: all randomness.
        corpus: the inputs to begin with.
    """
    data = chance.choice(corpus)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 5, 8))):
        data = chance.choice(_MUTATIONS)(chance, data, corpus)[:MOST_BYTES]
    return data
