from __future__ import annotations

from pathlib import Path

import pytest

from test.cli.command import error_line, run_command
from timely_llm.identity.keys import read_keys


def test_a_key_is_made_once_for_its_owner_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "keys"
    words = ("drone 1", "--folder", folder)
    assert run_command("keys new", monkeypatch, *words) == 0
    assert "keep it secret" in capsys.readouterr().out
    assert list(read_keys(folder)) == ["drone 1"]
    assert (folder / "drone 1.key").stat().st_mode & 0o777 == 0o600
    assert run_command("keys new", monkeypatch, *words) == 1
    assert "already: delete it first" in error_line(capsys)
