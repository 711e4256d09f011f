"""Bursts at Poisson times."""

from itertools import islice, takewhile

import numpy as np
import pytest

from timely_llm.robots.arrivals import bursts


def test_rate_size_and_share_are_those_asked_for() -> None:
    made = list(
        takewhile(lambda b: b.time_s < 4000, bursts(np.random.default_rng(0), 0.5, 8, 0.375))
    )
    assert len(made) == pytest.approx(2000, rel=0.1)
    sizes = [len(b.urgent) for b in made]
    assert min(sizes) == 1
    assert max(sizes) == 8
    share = np.mean([u for b in made for u in b.urgent])
    assert share == pytest.approx(0.375, abs=0.03)


def test_times_only_go_forward() -> None:
    times = [b.time_s for b in islice(bursts(np.random.default_rng(1), 2.0, 3, 0.5), 50)]
    assert times == sorted(times)
