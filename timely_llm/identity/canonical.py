"""The canonical bytes of a message: different fields never have the same bytes."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import TypeAlias

SignedValue: TypeAlias = (
    "bool | int | float | str | bytes | Sequence[SignedValue] | Mapping[str, SignedValue]"
)


def canonical(value: SignedValue) -> bytes:
    """Return the bytes of a value: its type, its length and its content.

    Args:
        value: mappings are taken in the order of their keys. -0.0 and 0.0 are different.

    Raises:
        TypeError: a value has another type.
    """
    parts: list[bytes] = []
    _append(parts, value)
    return b"".join(parts)


def _append(parts: list[bytes], value: SignedValue) -> None:
    if isinstance(value, bool):
        parts.append(b"t" if value else b"f")
    elif isinstance(value, int):
        _append_text(parts, b"i", b"%d" % value)
    elif isinstance(value, float):
        parts.append(b"d" + struct.pack(">d", value))
    elif isinstance(value, str):
        _append_text(parts, b"s", value.encode("utf-8", "surrogatepass"))
    elif isinstance(value, bytes):
        _append_text(parts, b"b", value)
    elif isinstance(value, Mapping):
        parts.append(b"m" + struct.pack(">Q", len(value)))
        for name in sorted(value):
            _append(parts, name)
            _append(parts, value[name])
    elif isinstance(value, Sequence):
        parts.append(b"l" + struct.pack(">Q", len(value)))
        for one in value:
            _append(parts, one)
    else:
        raise TypeError(f"a {type(value).__name__} cannot be signed")


def _append_text(parts: list[bytes], tag: bytes, content: bytes) -> None:
    parts.append(tag + struct.pack(">Q", len(content)))
    parts.append(content)
