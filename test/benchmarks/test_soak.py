"""What a soak says about a run, from what server and robots wrote."""

import json
from pathlib import Path
from typing import Any

from test.core.events.lines import whole
from timely_llm.benchmarks.soak import Sample, faults, growth, outcomes


def write(path: Path, *events: dict[str, Any]) -> None:
    path.write_text("".join(json.dumps(whole(event)) + "\n" for event in events))


def segment(kind: str, name: str, index: int, epoch: int = 0) -> dict[str, Any]:
    return {"event": kind, "id": name, "epoch": epoch, "index": index}


def done(name: str, outcome: str, response_s: float) -> dict[str, Any]:
    return {"event": "done", "id": name, "outcome": outcome, "response_s": response_s}


def ask(name: str, agent: str) -> dict[str, Any]:
    return {"event": "ask", "id": name, "agent": agent}


def test_losses_starvation_and_errors_are_counted(tmp_path: Path) -> None:
    write(
        tmp_path / "server.jsonl",
        segment("segment", "a1", 0), segment("segment", "a1", 1), segment("segment", "a1", 1),
        {"event": "replan", "id": "a1"},
        segment("segment", "a1", 0, epoch=1), segment("segment", "a1", 1, epoch=1),
        segment("segment", "b1", 0),
        segment("segment", "d1", 0), segment("segment", "d1", 1),
    )  # fmt: skip
    write(
        tmp_path / "fleet.jsonl",
        ask("a1", "a"), ask("b1", "b"), ask("c1", "c"),
        segment("receive", "a1", 0), segment("receive", "a1", 0, epoch=1),
        segment("receive", "b1", 0),
        done("a1", "finished", 0.5), done("b1", "error", -1.0),
        ask("d1", "d"), segment("receive", "d1", 0), {"event": "returned", "id": "d1", "epoch": 0},
        done("d1", "finished", 0.5),
    )  # fmt: skip
    assert outcomes(tmp_path) == {
        "requests": 4, "finished": 2, "canceled": 0, "errors": 1, "without_end": 1, "replans": 1,
        "robots_never_served": 2, "response_p50_s": 0.5, "response_max_s": 0.5,
        "segments_published": 7, "segments_not_needed": 1, "segments_lost": 1,
    }  # fmt: skip


def samples(mb_per_s: float = 0.0, handles: int = 40) -> list[Sample]:
    return [
        Sample(float(at_s), 200.0 + mb_per_s * at_s, 20, handles if at_s >= 200 else 40)
        for at_s in range(300)
    ]


PASSED = {"without_end": 0, "robots_never_served": 0, "segments_lost": 0}


def test_a_flat_run_passes() -> None:
    row = growth(samples())
    assert row["server_mb"] == 200.0 and row["server_mb_growth"] == 0.0
    assert faults(PASSED | row) == []


def test_growth_is_a_fault() -> None:
    assert faults(PASSED | growth(samples(mb_per_s=0.1))) == [
        "the server's megabytes grew by 20, allowed is 8"
    ]
    assert faults(PASSED | growth(samples(handles=50))) == [
        "the server's handles grew by 10, allowed is 4"
    ]


def test_a_lost_request_robot_or_segment_is_a_fault() -> None:
    counted = {"without_end": 1, "robots_never_served": 2, "segments_lost": 3}
    assert faults(counted | growth(samples())) == [
        "requests without an end: 1",
        "robots that were never served: 2",
        "segments that robots needed and did not receive: 3",
    ]
