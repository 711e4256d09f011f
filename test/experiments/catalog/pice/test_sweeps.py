"""Experiments that change one number: load, queue, bandwidth, options."""

from __future__ import annotations

from typing import Any

import pytest

from test.experiments.catalog.pice.short import short
from timely_llm.core.errors import ConfigurationError


@pytest.mark.parametrize(
    ("name", "given", "values"),
    [
        ("pice-load", {"rates": (0.2, 1.0)}, {"rpm": {12.0, 60.0}}),
        ("pice-queue", {"sizes": (1, 9)}, {"queue": {1, 9}}),
        ("pice-bandwidth", {"bandwidths": (1.0, 50.0)}, {"mbit": {1.0, 50.0}}),
        ("pice-options", {}, {"policy": {"pice:batch=1"}}),
    ],
)
def test_each_value_has_a_row(
    name: str, given: dict[str, Any], values: dict[str, set[object]]
) -> None:
    made = short(name, policies=("pice:batch=1",), **given)
    for key, wanted in values.items():
        assert {row[key] for row in made.rows} == wanted


def test_a_slow_link_takes_longer() -> None:
    made = short("pice-bandwidth", policies=("cloud-only",), bandwidths=(1.0, 1000.0))
    slow, fast = (row["latency_s"] for row in made.rows)
    assert float(str(slow)) > float(str(fast))


def test_a_method_without_a_queue_is_refused_in_one_sentence() -> None:
    with pytest.raises(ConfigurationError, match="is no option of cloud-only: it has none"):
        short("pice-queue", policies=("cloud-only",))
