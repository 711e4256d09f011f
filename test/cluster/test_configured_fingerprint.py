"""The fingerprint of a model's folder changes with its files."""

from pathlib import Path

import pytest

from timely_llm.cluster.configured import SAMPLE_BYTES, fingerprint


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("config.json", 3),
        ("tokenizer.json", 4 * SAMPLE_BYTES),
        ("model.safetensors", 0),
        ("model.safetensors", 5 * SAMPLE_BYTES),
        ("model.safetensors", 10 * SAMPLE_BYTES - 1),
    ],
)
def test_a_changed_byte_changes_the_fingerprint(name: str, place: int, tmp_path: Path) -> None:
    for one in ("config.json", "tokenizer.json", "model.safetensors"):
        (tmp_path / one).write_bytes(bytes(10 * SAMPLE_BYTES))
    (tmp_path / "folder").mkdir()
    first = fingerprint(tmp_path)
    assert fingerprint(tmp_path) == first
    changed = bytearray(10 * SAMPLE_BYTES)
    changed[place] = 1
    (tmp_path / name).write_bytes(changed)
    assert fingerprint(tmp_path) != first


def test_another_name_or_size_changes_the_fingerprint(tmp_path: Path) -> None:
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(b"abc")
    first = fingerprint(tmp_path)
    weights.write_bytes(b"abcd")
    assert fingerprint(tmp_path) != first
    weights.write_bytes(b"abc")
    weights.rename(tmp_path / "other.safetensors")
    assert fingerprint(tmp_path) != first


def test_what_is_no_folder_has_no_fingerprint(tmp_path: Path) -> None:
    assert fingerprint(tmp_path / "none") == ""
