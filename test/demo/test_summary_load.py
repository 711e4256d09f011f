import json
import re
from pathlib import Path

import pytest

from test.cli.test_main import run
from test.demo.plausible import events
from test.demo.plausible_talks import talk_events
from timely_llm.core.errors import TimelyError
from timely_llm.demo.summary import is_demo, load_demo
from timely_llm.report.page import render


def demo(folder: Path, policy: str = "timely") -> Path:
    """Write the event logs of a demo."""
    folder.mkdir(exist_ok=True)
    for file, event in (*events(4, 10.0), *talk_events(2, 10.0)):
        with (folder / f"{file}-{policy}.jsonl").open("a") as log:
            log.write(json.dumps(event) + "\n")
    return folder


def test_each_policy_of_a_demo_is_a_run(tmp_path: Path) -> None:
    folder = demo(demo(tmp_path / "demo"), "fcfs")
    assert is_demo(folder)
    assert not is_demo(tmp_path)
    runs = load_demo(folder)
    assert [one.document.rows[0]["policy"] for one in runs] == ["fcfs", "timely"]
    for one in runs:
        assert one.is_one and one.at is not None
        assert [lane.agent for lane in one.timelines[0].lanes] == [
            "robot_0", "robot_1", "robot_2", "robot_3", "person_0", "person_1",
        ]  # fmt: skip
        (row,) = one.document.rows
        assert row["share_first"] == row["share_served"]
        asked = row["requests"]
        assert isinstance(asked, int)
        assert row["share_finished"] == pytest.approx(one.completed / asked, abs=1e-4)
        assert {"share_first", "share_finished"} <= one.document.definitions.keys()
        assert row["requests"] == len(
            {mark.request for lane in one.timelines[0].lanes[:4] for mark in lane.marks}
            | {bar.request for lane in one.timelines[0].lanes[:4] for bar in lane.bars}
        )


def test_a_demo_with_reasons_says_below_its_timeline_why_requests_waited(tmp_path: Path) -> None:
    folder = demo(tmp_path / "demo")
    (silent,) = load_demo(folder)
    assert "Why requests waited" not in render([silent])
    asked = next(mark.request for lane in silent.timelines[0].lanes for mark in lane.marks)
    with (folder / "server-timely.jsonl").open("a") as log:
        for t, why in ((20.0, ["memory", 30]), (20.25, ["memory", 9]), (21.0, ["runs"])):
            log.write(json.dumps({"event": "plan", "t": t, "why": {asked: why}}) + "\n")
    (run,) = load_demo(folder)
    page = render([run])
    assert "Why requests waited" in page
    assert page.index("waited because") < page.index("<span>1.00</span>") < page.index(">memory<")


def test_the_page_of_a_demo_says_what_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, "report", str(demo(tmp_path / "demo"))) == 0
    assert capsys.readouterr().out == "Wrote report.html\n"
    page = Path("report.html").read_text()
    (said,) = re.findall(r'<p class="headline">([^<]*)', page)
    assert re.match(
        r"On \d+ \w+ \d{4} at \d\d:\d\d UTC, 4 robots asked for \d+ plans and 2 people asked \d+"
        r" questions within \d+ s under the policy timely; ",
        said,
    )
    assert len(page.encode()) < 600_000


def test_policies_of_a_demo_are_compared(tmp_path: Path) -> None:
    folder = demo(demo(tmp_path / "demo"), "fcfs")
    page = render(load_demo(folder), names=["fcfs", "timely"])
    assert "Comparison: demo" in page


@pytest.mark.parametrize(
    ("log", "complaint"),
    [
        ("", "has no requests of x: there is nothing to report"),
        ('{"event": "ask", "t": 1}\n', "has an event log that no demo wrote"),
        ('{"event": "ask", "t": 1}\n', "the event 'ask' at 1 s has no 'id'"),
        ("no JSON\n{}\n", 'must be a JSON object with "event" and "t"'),
    ],
)
def test_a_folder_that_is_no_demo_is_named(tmp_path: Path, log: str, complaint: str) -> None:
    (tmp_path / "server-x.jsonl").write_text(log)
    with pytest.raises(TimelyError, match=complaint):
        load_demo(tmp_path)
