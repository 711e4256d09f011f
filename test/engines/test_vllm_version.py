"""Versions of vLLM, with and without it."""

from __future__ import annotations

import logging

import pytest

from timely_llm.core.errors import EngineError
from timely_llm.engines.registry import make_engine
from timely_llm.engines.vllm_version import check_version, installed_version


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
