"""The fingerprint of a model's folder: whether a model was changed under its name."""

from __future__ import annotations

import hashlib
from pathlib import Path

SAMPLE_BYTES = 1 << 16
"""Bytes read at the beginning, in the middle and at the end of a file with weights."""
WEIGHTS = (".safetensors", ".bin", ".pt", ".gguf")


def fingerprint(folder: Path) -> str:
    """Return a hash of the files of a folder, without those below it; empty: it is no folder.

    Configurations and tokenizers count wholly; of weights, their size and three samples.

    Raises:
        OSError: a file cannot be read.
    """
    if not folder.is_dir():
        return ""
    found = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if not path.is_file() or path.name.startswith("."):
            continue
        size = path.stat().st_size
        found.update(f"{path.name}\n{size}\n".encode())
        if path.suffix not in WEIGHTS:
            found.update(path.read_bytes())
            continue
        with path.open("rb") as file:
            for place in (0, (size - SAMPLE_BYTES) // 2, size - SAMPLE_BYTES):
                file.seek(max(place, 0))
                found.update(file.read(SAMPLE_BYTES))
    return found.hexdigest()
