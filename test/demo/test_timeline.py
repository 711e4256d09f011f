from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from matplotlib.axes import Axes

from test.core.events.lines import Line
from test.demo.plausible import events
from test.demo.plausible_talks import talk_events
from test.demo.test_summary import history
from test.demo.two_servers import BACK_S, KILLED_S, run_until
from timely_llm.core.events.history import History
from timely_llm.demo.timeline import BURST_S, busiest, timeline
from timely_llm.report.palette import LIGHT
from timely_llm.report.png import WIDTH_PX, server_hue, write_timeline


def draw(run: History, title: str, path: Path, window: tuple[float, float] | None = None) -> None:
    whole = timeline(run, title)
    write_timeline(whole.shown(*window) if window else whole, path)


def size_px(png: Path) -> tuple[int, int]:
    data = png.read_bytes()
    assert data.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", data[16:24])
    return width, height


def logs(robots: int = 3, duration_s: float = 8.0) -> tuple[list[Line], list[Line]]:
    """Return a plausible event_log and fleet log."""
    made = events(robots, duration_s)
    return (
        [event for file, event in made if file == "server"],
        [event for file, event in made if file == "fleet"],
    )


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is written into the axes."""
    texts: list[str] = []
    text = Axes.text

    def noted(self: Axes, x: float, y: float, s: str, *args: Any, **kwargs: Any) -> Any:
        texts.append(s)
        return text(self, x, y, s, *args, **kwargs)

    monkeypatch.setattr(Axes, "text", noted)
    return texts


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


def test_two_logs_give_a_picture_with_labelled_calls(tmp_path: Path, written: list[str]) -> None:
    event_log, fleet = logs()
    run = history(*event_log, *fleet)
    window = busiest(run, 4.0)
    assert window[1] - window[0] == pytest.approx(4.0)
    draw(run, "burst", tmp_path / "burst.png", window)
    assert size_px(tmp_path / "burst.png")[0] == WIDTH_PX
    assert set(written) & {line["call"] for line in fleet if line["event"] == "call"}
    assert "no requests" not in written


def test_empty_logs_give_a_picture_that_says_so(tmp_path: Path, written: list[str]) -> None:
    assert busiest(history(), 5.0) == (0.0, 5.0)
    draw(history(), "empty", tmp_path / "empty.png")
    assert size_px(tmp_path / "empty.png")[0] == WIDTH_PX
    assert written == ["no requests"]


def test_people_have_rows_with_what_they_asked(tmp_path: Path, written: list[str]) -> None:
    made = [*events(3, 8.0), *talk_events(2, 8.0)]
    run = history(*(event for _, event in made))
    draw(history(*(event for _, event in events(3, 8.0))), "robots", tmp_path / "robots.png")
    assert "Tell me about the moon." not in written
    draw(run, "both", tmp_path / "both.png")
    draw(run, "both", tmp_path / "burst.png", busiest(run))
    assert "Tell me about the moon." in written
    assert size_px(tmp_path / "both.png")[1] > size_px(tmp_path / "robots.png")[1]


def test_people_alone_can_be_drawn(tmp_path: Path, written: list[str]) -> None:
    draw(history(*(event for _, event in talk_events(2, 8.0))), "people", tmp_path / "people.png")
    assert "no requests" not in written


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("shorter", ["event_log", "fleet", "both"])
def test_logs_that_stop_in_the_middle_can_be_drawn(
    tmp_path: Path, share: float, shorter: str
) -> None:
    event_log, fleet = logs()
    if shorter != "fleet":
        event_log = event_log[: int(share * len(event_log))]
    if shorter != "event_log":
        fleet = fleet[: int(share * len(fleet))]
    run = history(*event_log, *fleet)
    draw(run, "cut", tmp_path / "cut.png", busiest(run, 3.0))
    draw(run, "cut", tmp_path / "cut.png")
    assert size_px(tmp_path / "cut.png")[0] == WIDTH_PX


def test_the_work_of_each_of_several_servers_has_its_own_strip_and_colour(
    tmp_path: Path, written: list[str]
) -> None:
    run = run_until()
    whole = timeline(run, "two servers")
    assert whole.outages == {"s1": (), "s2": ((KILLED_S - 1.0, BACK_S - 1.0),)}
    bars = [(bar.server, round(bar.start_s, 2)) for bar in whole.bars if bar.kind == "generating"]
    assert sorted(bars) == [("s1", 0.11), ("s1", 3.1), ("s2", 0.1)]
    assert not [bar for bar in whole.bars if bar.kind == "suspended"], "s1 computes its KV anew"
    draw(run, "two servers", tmp_path / "two.png")
    one = run_until(2.0)
    one.servers.clear()
    draw(one, "one server", tmp_path / "one.png")
    assert size_px(tmp_path / "two.png")[1] > size_px(tmp_path / "one.png")[1]
    assert "lost" in written
    colors = [server_hue(whole, name, LIGHT) for name in ("s1", "s2")]
    assert colors == list(LIGHT.servers[:2])
    assert server_hue(timeline(one, "one"), "", LIGHT) is None
