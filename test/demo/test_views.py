from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from test.demo.plausible import events
from test.demo.test_summary import ask, done, history
from timely_llm.demo.live_view import LiveView
from timely_llm.demo.progress import ProgressLines
from timely_llm.demo.report import as_json, print_report
from timely_llm.demo.settings import Settings

NOW_S = 6.0
SETTINGS = Settings(robots=8, duration_s=20.0, pace="rtx4090-llama3-8b", domain=7)
RUN = history(*(event for _, event in events(8, 20.0) if event["t"] <= NOW_S))


def console(width: int = 120, height: int = 40) -> Console:
    return Console(file=io.StringIO(), width=width, height=height)


def written(screen: Console) -> str:
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue()


@pytest.mark.parametrize("width", [80, 120, 200])
def test_the_live_view_has_a_row_for_each_robot_and_fits(width: int) -> None:
    screen = console(width)
    screen.print(LiveView(SETTINGS, "timely", screen).render(RUN, NOW_S))
    text = written(screen)
    assert all(f"robot_{i}" in text for i in range(8))
    assert "timely" in text
    assert "segments published" in text
    assert "executes" in text
    assert max(len(line) for line in text.splitlines()) <= width


def test_a_small_terminal_shows_busy_robots_first() -> None:
    run = history(
        *({"event": "robot", "t": 0.0, "agent": f"r{i}"} for i in range(30)),
        {**ask(0.0, "x", True), "agent": "r29"},
    )
    screen = console(height=20)
    screen.print(LiveView(SETTINGS, "timely", screen).render(run, 1.0))
    assert "r29" in written(screen)
    assert "and 24 more" in written(screen)


def test_progress_lines_say_how_far_it_is() -> None:
    screen = console()
    with ProgressLines(SETTINGS, "timely", screen) as lines:
        lines.update(RUN, NOW_S)
        lines.update(RUN, NOW_S)
    (line,) = written(screen).splitlines()
    assert line.startswith("timely: ")
    assert f"{len(RUN.asked)} requests, {RUN.served} served" in line


def test_policies_stand_one_below_the_other_in_one_table() -> None:
    failed = history(
        ask(0.0, "a1", True),
        done(1.0, "a1", -1.0, outcome="error", error_code=8, error_msg="out of memory"),
    )
    screen = console(80)
    print_report(screen, SETTINGS, {"fcfs": failed, "timely": RUN}, [Path("demo/timeline.png")])
    text = written(screen)
    assert text.index("fcfs") < text.index("timely")
    assert text.count("urgent") >= 2
    assert "fcfs: share served 0.00" in text
    assert "a1: out of memory (ENGINE_FAILED)" in text
    assert "demo/timeline.png" in text
    assert max(len(line) for line in text.splitlines()) <= 80


def test_json_is_flat_for_one_policy_and_by_policy_for_several() -> None:
    one = json.loads(as_json(SETTINGS, {"timely": RUN}))
    assert set(one) == {
        "policy", "robots", "duration_s", "bursts_per_s", "seed", "robot", "failure_share",
        "engine", "model", "pace", "lead_s", "requests", "served", "share_served", "segments",
        "recomputed_tokens", "response_s", "waiting_s", "utility", "errors", "error_messages",
    }  # fmt: skip
    assert (one["policy"], one["model"]) == ("timely", "tiny_planner")
    both = json.loads(as_json(SETTINGS, {"fcfs": RUN, "timely": RUN}))
    assert both == {"fcfs": {**one, "policy": "fcfs"}, "timely": one}
