from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from test.core.events.lines import Line
from test.demo.plausible import events
from test.demo.plausible_talks import answered, chunk, person, question, stream, talk_events
from test.demo.test_summary import ask, done, history
from test.demo.two_servers import run_until
from timely_llm.demo.live_view import LiveView
from timely_llm.demo.progress import ProgressLines
from timely_llm.demo.report import as_json, print_report
from timely_llm.demo.settings import DemoSettings

NOW_S = 6.0
SETTINGS = DemoSettings(robots=8, duration_s=20.0, pace="rtx4090-llama3-8b", domain=7)
WITH_PEOPLE = replace(SETTINGS, conversations=4)
BOTH = history(*(event for _, event in (*events(8, 20.0), *talk_events(4)) if event["t"] <= NOW_S))
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
    assert ("last 10 s" in text) == ("▒" in text) == (width >= 140), "what each robot just did"
    assert max(len(line) for line in text.splitlines()) <= width


@pytest.mark.parametrize("width", [80, 140])
def test_the_live_view_has_a_row_for_each_person_and_fits(width: int) -> None:
    screen = console(width)
    screen.print(LiveView(WITH_PEOPLE, "timely", screen).render(BOTH, NOW_S))
    text = written(screen)
    for i in range(4):
        [row] = [line for line in text.splitlines() if line.startswith(f" person_{i}")]
        assert ("voice", "text")[i % 2] in row
    answered = sum(talk.answered for talk in BOTH.questions)
    assert f"{answered}/{len(BOTH.questions)} answered" in text
    assert ("TTFT" in text) == (width == 140)
    assert max(len(line) for line in text.splitlines()) <= width


def test_people_hear_the_end_of_what_came_and_have_credit_for_some_seconds() -> None:
    run = history(
        person("ann", 0), question(1.0, "ann-1", "ann"), stream(1.0, "ann-1", "ann"),
        chunk(1.5, "ann-1", 0, "word " * 50 + "and the last ones", 4.0),
    )  # fmt: skip
    screen = console(80)
    screen.print(LiveView(WITH_PEOPLE, "timely", screen).render(run, 1.6))
    [row] = [line for line in written(screen).splitlines() if line.startswith(" ann")]
    assert re.search(r"….*and the last ones .*\+3\.9 s", row)
    assert row.split()[-2:] == ["1/1", "0"]


def test_a_person_waits_for_the_first_word_hears_stalls_and_pauses() -> None:
    talk = [person("ann", 0), question(1.0, "ann-1", "ann"), stream(1.0, "ann-1", "ann")]
    word = chunk(1.5, "ann-1", 0, "Well", 0.3)

    def row(now_s: float, *events: Line) -> str:
        screen = console(80)
        screen.print(LiveView(WITH_PEOPLE, "timely", screen).render(history(*events), now_s))
        return next(line for line in written(screen).splitlines() if line.startswith(" ann"))

    assert "has not asked yet" in row(0.5, talk[0])
    assert "asks: Tell me" in row(1.1, *talk)
    assert "0/1" in row(2.5, *talk)
    assert "-1.2 s" in row(3.0, *talk, word)
    assert "pauses" in row(3.0, *talk, {**word, "final": True}, answered(1.5, "ann-1", "ann"))


def test_a_small_terminal_shows_people_who_hear_something_first() -> None:
    run = history(
        *(person(f"p{i}", i) for i in range(30)),
        question(1.0, "p29-1", "p29"),
    )
    screen = console(height=24)
    screen.print(LiveView(WITH_PEOPLE, "timely", screen).render(run, 1.1))
    assert "p29" in written(screen)
    assert len(written(screen).splitlines()) <= 25


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
    assert "questions" not in line


def test_progress_lines_count_both_lanes() -> None:
    screen = console()
    with ProgressLines(WITH_PEOPLE, "timely", screen) as lines:
        lines.update(BOTH, NOW_S)
    answered = sum(talk.answered for talk in BOTH.questions)
    assert f"{len(BOTH.questions)} questions, {answered} answered" in written(screen)


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
    assert "fcfs: first 0.00, finished 0.00" in text
    assert "a1: out of memory (ENGINE_FAILED)" in text
    assert "demo/timeline.png" in text
    assert max(len(line) for line in text.splitlines()) <= 80


def test_people_have_a_table_that_fits() -> None:
    screen = console(80)
    print_report(screen, WITH_PEOPLE, {"timely+slice": BOTH, "fcfs": BOTH}, [])
    text = written(screen)
    assert text.count("voice") == text.count("text") == 2
    assert "8 robots and 4 people asked for 20 s" in text
    assert "SLO met" in text and "stalls" in text
    assert max(len(line) for line in text.splitlines()) <= 80


def test_json_is_flat_for_one_policy_and_by_policy_for_several() -> None:
    one = as_json(SETTINGS, {"timely": RUN})
    assert set(one) == {
        "policy", "robots", "people", "duration_s", "bursts_per_s", "seed", "robot",
        "failure_share", "engine", "model", "pace", "lead_s", "requests", "served", "finished",
        "share_first", "share_finished", "share_served", "segments", "recomputed_tokens",
        "response_s", "waiting_s", "utility", "errors", "error_messages", "conversations",
    }  # fmt: skip
    assert (one["policy"], one["model"]) == ("timely", "tiny_planner")
    both = as_json(SETTINGS, {"fcfs": RUN, "timely": RUN})
    assert both == {"fcfs": {**one, "policy": "fcfs"}, "timely": one}


SEVERAL = replace(SETTINGS, servers=2, engine="simulated")


@pytest.mark.parametrize("width", [80, 120])
def test_the_live_view_says_which_server_works_for_which_robot(width: int) -> None:
    screen = console(width)
    screen.print(LiveView(SEVERAL, "timely", screen).render(run_until(1.2), 1.2))
    text = written(screen)
    assert "2 servers behind a dispatcher" in text
    rows = {line.split()[0]: line.split() for line in text.splitlines() if line.split()}
    assert "s2" in rows["a"] and "s1" in rows["b"]
    assert rows["s1"][-1] == "b" and rows["s2"][-1] == "a"
    assert max(map(len, text.splitlines())) <= width


def test_progress_lines_say_what_each_server_has() -> None:
    screen = console()
    with ProgressLines(SEVERAL, "timely", screen) as lines:
        lines.update(run_until(4.2), 4.2)
    assert written(screen).rstrip().endswith(", s1 1, s2 lost")


def test_a_report_says_what_a_killed_server_did_to_its_requests() -> None:
    screen = console(80)
    print_report(screen, SEVERAL, {"timely": run_until()}, [])
    text = written(screen)
    assert "1 went on at other servers: nothing was lost." in " ".join(text.split())
    (row,) = [line.split() for line in text.splitlines() if "h100-llama3-8b" in line]
    assert row[:4] == ["s2", "h100-llama3-8b", "1", "2"]
    made = as_json(SEVERAL, {"timely": run_until()})
    assert made["outages"][0]["elsewhere"] == 1
    assert made["servers"]["s2"] == "h100-llama3-8b"
