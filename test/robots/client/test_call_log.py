"""A robot that is killed while it executes a plan makes no call a second time."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from test.robots.client.random_plans import GOOD, ROVER, Called, Fate, Maker
from test.robots.client.rover import Rover, reasons
from test.robots.client.scripted_server import ScriptedServer
from test.robots.client.test_random_executions import reference
from timely_llm.core.request import ErrorCode, ReportState
from timely_llm.core.segment import SkillCall
from timely_llm.robots.client.call_log import CallLog
from timely_llm.robots.client.pending import PlanClientError, ServerLost

ROVER_GO = SkillCall("go", (10,))
PLAN = "go(10);?sees('cat'){say('x');}2{go(20);go(30);}scan();go(40);->True;"


class Killed(BaseException):
    """The process ends here."""


class Steady(Fate):
    """All goes well."""

    def of(self, number: int, name: str) -> object:
        return GOOD[name][0]


class Lives:
    """A robot that is restarted; each start finds the log as it was when the robot was killed."""

    def __init__(self, folder: Path, plan: str, fate: Fate, again: bool = True) -> None:
        self._folder, self._plan, self._fate, self._again = folder, plan, fate, again
        self._lives = 0
        self.made: list[Called] = []
        self.server = ScriptedServer(ROVER, [plan, plan])

    def live(self, calls: int) -> Any:
        """Execute the plan and be killed after `calls` calls; return what was executed."""
        before, now = (self._folder / f"{self._lives + n}.calls" for n in (0, 1))
        self._lives += 1
        if before.exists():
            shutil.copy(before, now)
        log = CallLog(now, again=self._again)
        self.server = ScriptedServer(ROVER, [self._plan, self._plan])
        left = calls

        def skill(name: str) -> Any:
            def do(*arguments: Any) -> object:
                nonlocal left
                if not left:
                    shutil.copy(now, self._folder / "killed")
                    raise Killed
                left -= 1
                self.made.append((name, arguments))
                return self._fate.of(len(self.made) - 1, name)

            return do

        skills = {name: skill(name) for name in ROVER.skills}
        try:
            return self.server.start().execute(skills, timeout_s=5.0, log=log)
        except Killed:
            shutil.copy(self._folder / "killed", now)
            return None
        finally:
            log.close()


@pytest.mark.parametrize("part", range(4))
def test_all_lives_together_make_the_calls_of_the_reference(tmp_path: Path, part: int) -> None:
    killed = 0
    for seed in range(part, 120, 4):
        rng = random.Random(seed)
        plan = Maker(rng).plan()
        fate = Fate(tuple(rng.randrange(1000) for _ in range(97)))
        expected, value, failures = reference([plan], fate)
        if failures:
            continue
        folder = tmp_path / str(seed)
        folder.mkdir()
        lives = Lives(folder, Maker(rng).text(plan), fate)
        done = None
        while done is None:
            done = lives.live(rng.randrange(1 + max(len(expected), 1)))
            killed += done is None
        assert lives.made == expected, seed
        assert [(c.call.name, c.call.arguments) for c in done.calls] == expected
        assert done.value == value
    assert killed > 15


def lives_of(tmp_path: Path, again: bool) -> Lives:
    lives = Lives(tmp_path, PLAN, Steady(()), again)
    assert lives.live(2) is None  # killed in say('x')
    return lives


def test_an_interrupted_call_fails_and_the_model_makes_a_new_plan(tmp_path: Path) -> None:
    lives = lives_of(tmp_path, again=False)
    done = lives.live(99)
    assert lives.made[:2] == [("go", (10,)), ("sees", ("cat",))]
    (reason,) = reasons(lives.server)
    assert reason.startswith("the robot was restarted while it executed ")
    assert done.epochs == 2
    assert [call.epoch for call in done.calls] == sorted(call.epoch for call in done.calls)


def test_segments_are_reported_with_their_durations_before_the_restart(tmp_path: Path) -> None:
    path = tmp_path / "calls"
    log = CallLog(path)
    log.begin("r")
    log.begun(ROVER_GO, 0, 0)
    log.made(None, "", 12.5)
    log.close()
    server = ScriptedServer(ROVER, ["go(10);->True;"])
    rover = Rover()
    done = server.start().execute(rover, timeout_s=5.0, log=CallLog(path))
    assert (rover.made, done.value) == ([], True)
    first = next(r for r in server.reports if r.state is ReportState.FINISHED)
    assert first.duration_s == pytest.approx(12.5, abs=1.0)
    assert CallLog(path).request_id == ""
    assert path.read_text() == ""


def test_a_lost_server_leaves_the_log_for_the_next_try() -> None:
    log, rover = CallLog(), Rover()
    server = ScriptedServer(ROVER, ["go(10);go(20);->True;"])
    task = server.start()
    rover.values["go"] = lambda: task.lose("the server died")
    with pytest.raises(ServerLost, match="the server died") as raised:
        task.execute(rover, timeout_s=5.0, log=log)
    assert raised.value.code is ErrorCode.SHUTTING_DOWN
    assert (rover.made, log.request_id) == (["go(10)"], "r")
    rover.values.clear()
    again = ScriptedServer(ROVER, ["go(10);go(20);->True;"])
    again.start().execute(rover, timeout_s=5.0, log=log)
    assert rover.made == ["go(10)", "go(20)"]
    assert log.request_id == ""


def test_the_calls_of_another_plan_are_not_taken_for_this_one(tmp_path: Path) -> None:
    log = CallLog(tmp_path / "calls")
    log.begin("r")
    log.begun(ROVER_GO, 0, 0)
    log.made(None, "", 1.0)
    server = ScriptedServer(ROVER, ["go(20);"])
    rover = Rover()
    with pytest.raises(PlanClientError, match=r"it has go\(10\) in segment 0, and the plan calls"):
        server.start().execute(rover, timeout_s=5.0, log=log)
    assert rover.made == []
    log.begin("s")
    assert (log.request_id, log.calls(0)) == ("s", [])


def test_a_line_that_was_cut_off_is_dropped_and_another_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "calls"
    log = CallLog(path)
    log.begin("r")
    log.begun(ROVER_GO, 0, 0)
    log.close()
    whole = path.read_text()
    path.write_text(whole + '{"event": "ma')
    cut = CallLog(path)
    assert [call.returned for call in cut.calls(0)] == [False]
    cut.made(None, "", 1.0)
    cut.close()
    assert [call.returned for call in CallLog(path).calls(0)] == [True]
    path.write_text("hello\n")
    with pytest.raises(PlanClientError, match="is no log of calls: line 1 is 'hello'"):
        CallLog(path)
    assert path.read_text() == "hello\n"
    with pytest.raises(PlanClientError, match="cannot use the log of calls"):
        CallLog(tmp_path)


def test_a_second_log_on_a_file_is_refused_until_the_first_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "calls"
    log = CallLog(path)
    log.begin("r")
    log.begun(ROVER_GO, 0, 0)
    stored = path.read_text()
    with pytest.raises(PlanClientError, match="another CallLog, of this or another process, uses"):
        CallLog(path)
    opened = f"from timely_llm.robots.client.call_log import CallLog; CallLog({str(path)!r})"
    other = subprocess.run(
        [sys.executable, "-c", opened], capture_output=True, text=True, check=False, timeout=60.0
    )
    assert "PlanClientError: cannot use the log of calls" in other.stderr
    assert path.read_text() == stored
    log.made(None, "", 1.0)
    log.close()
    again = CallLog(path)
    assert (again.request_id, [call.returned for call in again.calls(0)]) == ("r", [True])


def test_a_file_that_is_no_log_is_free_for_others_after_its_refusal(tmp_path: Path) -> None:
    path = tmp_path / "calls"
    path.write_text("hello\n")
    with pytest.raises(PlanClientError, match="is no log of calls") as refused:
        CallLog(path)
    path.write_text("")
    assert CallLog(path).request_id == "", refused
