"""Settings of all tests."""

import faulthandler
import os
import random
import signal
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from test.real import LEAKED, LOST, is_real

# A busy machine is slow: no test fails for that. With CI in the environment, Hypothesis takes the
# same examples in each run.
settings.register_profile("untimed", settings(), deadline=None, max_examples=50)
# For `--hypothesis-profile=thorough`.
settings.register_profile("thorough", settings(), deadline=None, max_examples=1000)
# For `make test-fast`: the option --hypothesis-profile overrides what is loaded here.
settings.register_profile("fast", settings(), deadline=None, max_examples=20)
settings.load_profile("untimed")

# The tests start hundreds of processes: each one would compile the whole package anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A process in the background of a script does not hear Ctrl-C, nor do its children.
signal.signal(signal.SIGINT, signal.default_int_handler)

ERRORS = pytest.StashKey[int]()
"""Descriptor of the error stream that is not captured."""


def pytest_configure(config: pytest.Config) -> None:
    """Keep the error stream as it is without capture."""
    with config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        config.stash[ERRORS] = os.dup(2)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of the short forms, and that of counted outcomes."""
    parser.addoption(
        "--short", action="store_true", help="of each parametrized test only the first parameters"
    )
    parser.addoption(
        "--outcomes", type=Path, help="file that gets the outcomes of each fault test, a line each"
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Share the tests among the workers in the order that they have."""
    from test.workers import FromBothEnds

    config.option.loadscopereorder = False
    return FromBothEnds(config, log)


@pytest.fixture
def first_seed() -> int:
    """Return a seed of chance, or the same one in each run where CI is in the environment."""
    return 0 if "CI" in os.environ else random.SystemRandom().randrange(2**30)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with those of real processes, and run them once more where they fail.

    The waits for processes and for ROS are bounded, and a machine can be busy for longer. The
    summary names what ran twice. The requests of both runs are counted, and a lost one fails the
    module at once. If asked, keep one test of each function.
    """
    items.sort(key=lambda item: not is_real(item.nodeid))
    if config.pluginmanager.hasplugin("rerunfailures"):
        for item in filter(lambda item: is_real(item.nodeid), items):
            item.add_marker(pytest.mark.flaky(reruns=1, rerun_except=[LOST, LEAKED]))
    if not config.getoption("--short"):
        return
    first: dict[str, pytest.Item] = {}
    for item in items:
        first.setdefault(item.nodeid.partition("[")[0], item)
    kept = set(first.values())
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def _bounded(item: pytest.Item) -> Generator[None, object, object]:
    """End this process, with a stack of each thread, where a phase takes thrice the timeout.

    The timeout is a signal. A wait in C does not end at one, and setup and teardown have none.
    """
    marker = item.get_closest_marker("timeout")
    timeout_s = float(marker.args[0] if marker else item.config.getini("timeout"))
    faulthandler.dump_traceback_later(3 * timeout_s, exit=True, file=item.config.stash[ERRORS])
    return (yield)


pytest_runtest_setup = _bounded
pytest_runtest_call = _bounded
pytest_runtest_teardown = _bounded


def pytest_sessionfinish() -> None:
    """What follows the last test has its own time."""
    faulthandler.cancel_dump_traceback_later()
