"""A demo with a cloud of its own, which is killed midway: every answer goes on at the edge."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from test.system.conftest import Start
from test.system.test_demo_conversations import children, of_kind

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc"),
]

WAIT_S = 120.0


@pytest.mark.extended
@pytest.mark.parametrize("servers", [1, 2])
def test_a_demo_outlives_the_loss_of_its_cloud_and_says_so(
    start: Start, tmp_path: Path, servers: int
) -> None:
    numbers = tmp_path / "numbers.json"
    run = start(
        "scripts/timely-llm", "demo", "--cloud", "stand-in", "--engine", "simulated", "--robots",
        "1", "--people", "2", "--duration", "30", "--plain", "--output", str(tmp_path), "--json",
        str(numbers), "--servers", str(servers),
    )  # fmt: skip
    assert run.wait(WAIT_S) == 0, run.output
    assert children(tmp_path) == {}
    assert "The cloud was cut off at" in run.output
    found = json.loads(numbers.read_text())
    assert found["errors"] == 0
    help_of = found["help"]["answers"]
    answered = [
        event
        for event in of_kind(tmp_path / "talkers-deadline.jsonl", "answered")
        if event["outcome"] == "answered"
    ]
    assert help_of["helped"] + help_of["alone"] == len(answered) > 0
    assert found["help"]["cut_s"] is not None
    plans = found["help"]["plans"]
    assert plans["helped"] + plans["alone"] > 0
    assert all(event.get("helped") or event["fallback"] for event in answered)
    # "Broke off within its answer" while it writes; "cannot be reached" afterwards.
    assert any(why.startswith("the cloud at 127.0.0.1:") for why in help_of["reasons"])
    page = tmp_path / "page.html"
    report = start("scripts/timely-llm", "report", str(tmp_path), "--output", str(page))
    assert report.wait(WAIT_S) == 0, report.output
    assert "person_0" in page.read_text()
