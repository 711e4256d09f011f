"""Settings of all tests."""

import os
import random
import signal
from pathlib import Path

import pytest
from hypothesis import settings

# A busy machine is slow: no test fails for that. With CI in the environment, Hypothesis takes the
# same examples in each run.
settings.register_profile("untimed", settings(), deadline=None, max_examples=50)
# For `--hypothesis-profile=thorough`.
settings.register_profile("thorough", settings(), deadline=None, max_examples=1000)
# For `make test-fast`: the option --hypothesis-profile overrides what is loaded here.
settings.register_profile("fast", settings(), deadline=None, max_examples=20)
settings.load_profile("untimed")

# A process in the background of a script does not hear Ctrl-C, nor do its children.
signal.signal(signal.SIGINT, signal.default_int_handler)

REAL = [Path(__file__).parent / room for room in ("cluster", "launch", "ros", "system")]
"""Folders of tests with real processes, or with ROS."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of the short forms, and that of counted outcomes."""
    parser.addoption(
        "--short", action="store_true", help="of each parametrized test only the first parameters"
    )
    parser.addoption(
        "--outcomes", type=Path, help="file that gets the outcomes of each fault test, a line each"
    )


@pytest.fixture
def first_seed() -> int:
    """Return a seed of chance, or the same one in each run where CI is in the environment."""
    return 0 if "CI" in os.environ else random.SystemRandom().randrange(2**30)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run those of real processes once more where they fail; keep one of each function, if asked.

    The waits for processes and for ROS are bounded, and a machine can be busy for longer. The
    summary names what ran twice.
    """
    for item in items:
        if any(item.path.is_relative_to(folder) for folder in REAL):
            item.add_marker(pytest.mark.flaky(reruns=1))
    if not config.getoption("--short"):
        return
    first: dict[str, pytest.Item] = {}
    for item in items:
        first.setdefault(item.nodeid.partition("[")[0], item)
    kept = set(first.values())
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]
