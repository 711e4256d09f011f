from __future__ import annotations

import struct
from pathlib import Path

import pytest

from test.demo.plausible import events
from test.demo.test_summary import history
from timely_llm.demo.timeline import BURST_S, WIDTH_PX, busiest, draw


def size_px(png: Path) -> tuple[int, int]:
    data = png.read_bytes()
    assert data.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", data[16:24])
    return width, height


@pytest.mark.parametrize("robots", [1, 6])
def test_a_picture_is_as_wide_as_a_page_and_has_a_row_for_each_robot(
    tmp_path: Path, robots: int
) -> None:
    run = history(*(event for _, event in events(robots, 8.0)))
    for name, window in (("whole", None), ("burst", busiest(run))):
        draw(run, name, tmp_path / f"{name}.png", window)
        width, height = size_px(tmp_path / f"{name}.png")
        assert width == WIDTH_PX
        assert height > 60 * robots


def test_a_run_in_which_nothing_happened_can_be_drawn(tmp_path: Path) -> None:
    run = history({"event": "ready", "t": 5.0})
    draw(run, "nothing", tmp_path / "nothing.png", busiest(run))
    assert size_px(tmp_path / "nothing.png")[0] == WIDTH_PX


def test_the_busiest_window_holds_the_most_work() -> None:
    def steps(at_s: float, count: int) -> list[dict[str, object]]:
        return [
            {"event": "step", "t": at_s + 0.1 * k, "s": 0.1, "ids": ["a1"]} for k in range(count)
        ]

    asks = [
        {"event": "ask", "t": t, "id": f"a{t}", "agent": "a", "urgent": False, "task": "Go.",
         "ert_s": 1.0}
        for t in (100.0, 130.0, 160.0)
    ]  # fmt: skip
    run = history(*asks, *steps(100.0, 5), *steps(130.0, 40), *steps(160.0, 9))
    begin_s, end_s = busiest(run)
    assert begin_s < 30.0 < 34.0 < end_s
    assert end_s - begin_s == pytest.approx(BURST_S)
