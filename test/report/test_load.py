import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from test.experiments.recorded_bags import Bag
from test.report.runs import simulated
from timely_llm.core.errors import TimelyError
from timely_llm.experiments.recorded.score import score
from timely_llm.experiments.results.document import write_run
from timely_llm.report.load import load

SPAN = {"agent": "a", "request": 0, "kind": "waiting", "start_s": 0.0, "end_s": 1.0}
TIMELINE = {"name": "t", "requests": ["r"], "urgent": [False], "spans": [SPAN]}


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_run(simulated(), tmp_path / "run.json")
    run = load(tmp_path / "run.json")
    assert run.document == simulated()
    assert [one.title for one in run.timelines] == [one.name for one in simulated().timelines]
    assert run.at is not None and abs(datetime.now(UTC) - run.at) < timedelta(minutes=10)


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"rows": []}, "has no rows: there is nothing to report"),
        ({"rows": [{"utility": float("nan")}]}, "must be a finite number"),
        ({"rows": [{"utility": -float("inf")}]}, "must be a finite number"),
        ({"rows": [{"utility": 10**400}]}, "rows: row 0: utility must be a finite number, or null"),
        ({"papers": [{"title": "p", "rows": [{"u": float("inf")}]}]}, "p: row 0: u must be"),
        ({"rows": [{"utility": [1]}]}, "is no run: rows.0.utility"),
        ({"timelines": [TIMELINE | {"urgent": []}]}, "urgent must have 1 values"),
        ({"timelines": [TIMELINE | {"spans": [SPAN | {"request": 1}]}]}, "request 1 is none of"),
        ({"timelines": [TIMELINE | {"spans": [SPAN | {"request": -1}]}]}, "request -1 is none of"),
        ({"timelines": [TIMELINE | {"spans": [SPAN | {"end_s": -1.0}]}]}, "must not end before"),
        (
            {"timelines": [TIMELINE | {"steps": [{"start_s": 0.0, "duration_s": -1.0,
                                                  "requests": []}]}]},
            "must not take less than 0 s",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_reported_is_named_in_one_sentence(
    tmp_path: Path, changed: dict[str, Any], complaint: str
) -> None:
    file = tmp_path / "run.json"
    file.write_text(json.dumps({"experiment": "e", "rows": [{"utility": 1.0}]} | changed))
    with pytest.raises(TimelyError, match=r"run\.json") as error:
        load(file)
    assert complaint in str(error.value)
    assert "\n" not in str(error.value)


def test_a_recording_is_scored_first(tmp_path: Path) -> None:
    with Bag(tmp_path / "day") as bag:
        bag.plan(0.0, "a")
    for path in (tmp_path / "day", tmp_path / "day" / "day.mcap"):
        run = load(path)
        assert run.document == score(path)
        assert run.document.rows[0]["response_s"] == pytest.approx(0.5)
        assert run.is_one and run.timelines[0].bars


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"experiment": 1}', "\x00", "[" * 9999])
def test_what_is_no_run_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(TimelyError, match=r"run\.json is no (run|JSON)"):
        load(tmp_path / "run.json")
