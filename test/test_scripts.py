"""The executables of the package."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parents[1] / "scripts").iterdir())


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_process_that_imports_an_executable_does_not_run_it(script: Path) -> None:
    assert callable(runpy.run_path(str(script), run_name="__mp_main__")["main"])
