"""Versions of vLLM, with and without it."""

from __future__ import annotations

import logging
import re
import tomllib
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest
from pydantic import BaseModel, field_validator

from timely_llm.core.errors import EngineError
from timely_llm.engines.registry import make_engine
from timely_llm.engines.vllm.version import (
    NEWEST_COMPARED,
    NEWEST_TESTED,
    OLDEST,
    check_version,
    installed_version,
    reason,
)


@pytest.mark.parametrize("version", ["0.25.1", "0.9.2.post2", "0.25.0+cpu"])
def test_too_old(version: str) -> None:
    with pytest.raises(EngineError, match=rf"needs vllm 0\.26 or newer, {version[:4]}"):
        check_version(version)


@pytest.mark.parametrize("version", ["0.26.0", "0.27.1+cpu", "0.32.0.post1"])
def test_known(version: str, caplog: pytest.LogCaptureFixture) -> None:
    check_version(version)
    assert not caplog.records


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("0.33.0", "known by its names and signatures only: the newest that the engine ran on is"),
        ("0.33.1+cpu", "known by its names and signatures only"),
        ("0.34.0", r"newer than the newest known, 0\.33: .*pip install 'vllm>=0\.26,<0\.34'"),
        ("1.0", r"newer than the newest known, 0\.33"),
    ],
)
def test_newer_than_tested(version: str, said: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        check_version(version)
    (record,) = caplog.records
    assert record.getMessage().startswith(f"vllm {version} is ")
    assert re.search(said, record.getMessage())


def test_the_extra_ends_where_nothing_is_known() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    (extra,) = project["project"]["optional-dependencies"]["vllm"]
    oldest = ".".join(map(str, OLDEST))
    major, minor = NEWEST_COMPARED
    assert NEWEST_TESTED <= NEWEST_COMPARED
    assert extra == f"vllm>={oldest},<{major}.{minor + 1}"


@pytest.mark.skipif(installed_version() is not None, reason="vLLM is installed")
def test_missing() -> None:
    with pytest.raises(EngineError, match=r"pip install 'timely_llm\[vllm\]'"):
        make_engine("vllm", model="models/tiny_planner")


def test_a_version_that_is_too_old_is_refused_before_it_is_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: "0.25.1")
    with pytest.raises(EngineError, match=r"needs vllm 0\.26 or newer, 0\.25\.1 is installed"):
        make_engine("vllm", model="models/tiny_planner")


class Options(BaseModel):
    """Options as vLLM has them."""

    heads: int

    @field_validator("heads")
    @classmethod
    def check(cls, heads: int) -> int:
        """Refuse odd numbers."""
        if heads % 2:
            raise ValueError("heads must be even.")
        return heads


@pytest.mark.parametrize(
    ("made", "line"),
    [
        (lambda: Options(heads=3), "heads must be even"),
        (lambda: Options.model_validate({"heads": "x"}), "Input should be a valid integer"),
        (lambda: int("x"), "invalid literal"),
        (lambda: [][0], "list index out of range"),
        (lambda: next(iter(())), "StopIteration"),
    ],
)
def test_an_error_of_vllm_is_one_line(made: Callable[[], object], line: str) -> None:
    with pytest.raises(Exception) as caught:
        made()
    assert reason(caught.value).startswith(line)
    assert "\n" not in reason(caught.value)
