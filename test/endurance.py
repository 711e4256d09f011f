"""Tests of what learns or accumulates: a short form in every run, a million steps on demand."""

import pytest

SHORT = 30_000
"""Enough for errors that grow: a covariance that was updated as a matrix broke after 7,500."""

steps = pytest.mark.parametrize(
    "steps",
    [
        pytest.param(SHORT, id="short"),
        pytest.param(1_000_000, id="million", marks=[pytest.mark.long, pytest.mark.timeout(3600)]),
    ],
)
"""Runs a test with a number of steps; `make test-long` runs the million."""
