"""Runs commands of `timely-llm` in this process."""

from __future__ import annotations

import sys

import pytest

from timely_llm.cli import main


def run_command(command: str, monkeypatch: pytest.MonkeyPatch, *words: object) -> int | str | None:
    """Run `timely-llm COMMAND WORDS...` and return its exit status."""
    monkeypatch.setattr(sys, "argv", ["timely-llm", *command.split(), *map(str, words)])
    with pytest.raises(SystemExit) as end:
        main()
    return end.value.code


def error_line(capsys: pytest.CaptureFixture[str]) -> str:
    """Return the error that a command printed: one line, without a traceback."""
    errors = capsys.readouterr().err
    assert len(errors.splitlines()) == 1, errors
    return errors
