"""The command line of the tool."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.results.__main__ import main


def test_list_names_pages_and_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("drones: ")
    assert lines[1].startswith("    timely-llm experiment timelyllm-drone --seeds ")
    assert lines[-1].startswith("all: ")


def test_an_unknown_page_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("run", "write"):
        assert main([command, "floet"]) == 1
        error = capsys.readouterr().err
        assert error.startswith("results: there is no page 'floet': choose of drones, ")


def test_a_policy_that_no_page_has_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["run", "mixed", "--policies", "deadline,dead-line", "--folder", str(tmp_path)]
    assert main(words) == 1
    error = capsys.readouterr().err
    assert error == "results: no command of these pages has the policy dead-line\n"


def test_a_folder_that_cannot_be_made_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert main(["run", "--folder", str(tmp_path / "file")]) == 1
    assert capsys.readouterr().err == f"results: {tmp_path / 'file'}: File exists\n"


@pytest.mark.parametrize("seeds", ["0", "-1", "x", "1001"])
def test_numbers_are_checked(seeds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "--seeds", seeds])
    assert "must be a whole number of 1 to 1000" in capsys.readouterr().err
