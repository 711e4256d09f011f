"""A demo of several servers: one is killed midway and started again, and no request is lost."""

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
def test_a_demo_of_three_servers_outlives_the_death_of_one(start: Start, tmp_path: Path) -> None:
    numbers = tmp_path / "numbers.json"
    run = start(
        "scripts/timely-llm", "demo", "--servers", "3", "--robots", "3", "--duration", "8",
        "--events-per-s", "2", "--plain", "--output", str(tmp_path), "--json", str(numbers),
    )  # fmt: skip
    assert run.wait(WAIT_S) == 0, run.output
    assert children(tmp_path) == {}
    found = json.loads(numbers.read_text())
    assert found["errors"] == 0
    assert 0 < found["served"] <= found["requests"]
    (outage,) = found["outages"]
    assert outage["server"] in {"s1", "s2", "s3"}, "the one with the most requests at that moment"
    assert outage["without_end"] == 0
    assert 0 < outage["gone_s"] < outage["back_s"]
    robots = tmp_path / "fleet-deadline.jsonl"
    begun = [(e["id"], e["epoch"], e["index"]) for e in of_kind(robots, "start")]
    assert len(begun) == len(set(begun)) > 0, "no segment is executed twice"
    assert sorted(e["id"] for e in of_kind(robots, "ask")) == sorted(
        e["id"] for e in of_kind(robots, "done")
    )
