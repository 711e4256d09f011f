"""Versions of vLLM, with and without it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib import metadata

import pytest
from pydantic import BaseModel, field_validator

from timely_llm.core.errors import EngineError
from timely_llm.engines.registry import make_engine
from timely_llm.engines.vllm_version import check_version, installed_version, reason


@pytest.mark.parametrize("version", ["0.25.1", "0.9.2.post2", "0.25.0+cpu"])
def test_too_old(version: str) -> None:
    with pytest.raises(EngineError, match=rf"needs vllm 0\.26 or newer, {version[:4]}"):
        check_version(version)


@pytest.mark.parametrize("version", ["0.26.0", "0.27.1+cpu", "0.32.0.post1"])
def test_known(version: str, caplog: pytest.LogCaptureFixture) -> None:
    check_version(version)
    assert not caplog.records


@pytest.mark.parametrize("version", ["0.33.0", "1.0"])
def test_newer_than_tested(version: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        check_version(version)
    assert version in caplog.text


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
    ("made", "told"),
    [
        (lambda: Options(heads=3), "heads must be even"),
        (lambda: Options.model_validate({"heads": "x"}), "Input should be a valid integer"),
        (lambda: int("x"), "invalid literal"),
        (lambda: [][0], "list index out of range"),
        (lambda: next(iter(())), "StopIteration"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(made: Callable[[], object], told: str) -> None:
    with pytest.raises(Exception) as caught:
        made()
    assert reason(caught.value).startswith(told)
    assert "\n" not in reason(caught.value)
