"""`timely-llm ask` without a server."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from test.robots.client.scripted_server import ScriptedServer
from test.skills.plans import DRONE
from timely_llm.cli import ask as command
from timely_llm.core.errors import RequestError
from timely_llm.core.request import ErrorCode, PlanResult, ReportState
from timely_llm.core.segment import Segment

SEGMENT = Segment("r", "a", 0, "mu(50);", predicted_s=2.61)
RESULT = PlanResult("r", "a", ErrorCode.NONE, "", "mu(50);", 1, 0.12, 0.12, 1.0, 9, 5, 0)


@pytest.mark.parametrize(
    ("task", "scene", "urgent", "words"),
    [
        ("Go up.", "", False, "Scene: []\nTask: [A] Go up."),
        ("A dog!", "dog, chair", True, "Scene: [dog, chair]\nTask: [E] A dog!"),
        ("Scene: [x]\nTask: [Q] What?", "y", True, "Scene: [x]\nTask: [Q] What?"),
    ],
)
def test_a_task_is_put_into_the_models_words(
    task: str, scene: str, urgent: bool, words: str
) -> None:
    assert command.worded(task, scene, urgent) == words


def test_an_empty_task_is_refused() -> None:
    with pytest.raises(RequestError, match="the task is empty"):
        command.worded("  ", "", False)


def test_a_line_shows_when_a_segment_came_and_how_long_it_takes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = command.Lines()
    lines.segment(SEGMENT, 0.123)
    lines.result(RESULT)
    first, last = capsys.readouterr().out.splitlines()
    assert first == "   0.12 s  mu(50);  2.6 s"
    assert last == "complete: 1 segment, the first after 0.12 s, 5 tokens"


def test_a_line_shows_that_a_plan_was_written_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    lines = command.Lines()
    lines.segment(replace(SEGMENT, given=True), 0.123)
    lines.result(replace(RESULT, given=True, generated_tokens=0))
    first, last = capsys.readouterr().out.splitlines()
    assert first == "   0.12 s  mu(50);  2.6 s  written by hand"
    assert last == "complete: 1 segment, the first after 0.12 s, a plan written by hand"


def test_json_has_the_fields_of_the_messages(capsys: pytest.CaptureFixture[str]) -> None:
    lines = command.JsonLines()
    lines.segment(SEGMENT, 0.123)
    lines.result(RESULT)
    first, last = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["after_s"], first["text"], first["epoch"]) == (0.123, "mu(50);", 0)
    assert (last["result"]["error_code"], last["result"]["plan"]) == (0, "mu(50);")


def test_every_option_is_described() -> None:
    shown = CliRunner().invoke(command.ask, ["--help"]).output
    for option in ("--skill-set", "--scene", "--urgent", "--pretend", "--json", "--domain"):
        assert option in shown


@pytest.mark.parametrize(("pretend", "seconds"), [(False, [0.0, 0.0]), (True, [0.001, 0.001])])
def test_segments_that_were_not_executed_are_reported_as_skipped(
    pretend: bool, seconds: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    server = ScriptedServer(DRONE, ["?iv('cat'){tp();}"])
    command.follow(server.start(), command.Lines(), 1.0, pretend, "True")
    finished = [r for r in server.reports if r.state is ReportState.FINISHED]
    assert [report.duration_s for report in finished] == pytest.approx(seconds)
    assert (ReportState.STARTED in [r.state for r in server.reports]) is pretend
