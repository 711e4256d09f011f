from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from test.cli.command import run_command
from test.core.events.lines import Line
from test.demo.plausible_talks import answered, chunk, person, question, stream
from test.demo.test_summary import history
from timely_llm.demo.cloud import DemoHistory
from timely_llm.demo.help_rows import HelpSummary, cut_sentence, help_line, help_table
from timely_llm.demo.live_view import LiveView
from timely_llm.demo.report import as_json, print_report
from timely_llm.demo.settings import OWN_CLOUD, DemoSettings
from timely_llm.demo.summary import load_demo
from timely_llm.demo.timeline import timeline

SETTINGS = DemoSettings(robots=0, conversations=2, cloud=OWN_CLOUD, duration_s=20.0, domain=7)
GONE = "the cloud at host cannot be reached: refused; it was asked 3 times"


def heard(t: float, request_id: str, index: int, text: str, part: int = 0) -> Line:
    return {
        "event": "heard", "t": t, "id": request_id, "index": index, "text": text, "part": part,
    }  # fmt: skip


def asks(t: float, request_id: str, agent: str) -> Line:
    return {**question(t, request_id, agent), "mode": "progressive"}


def step(t: float, *ids: str) -> Line:
    return {"event": "step", "t": t, "s": 0.1, "ids": list(ids)}


def lines(**changes: Any) -> list[Line]:
    """Return the events of two people: ann is helped, then the cloud is cut off, and bob is not."""
    return [
        person("ann", 0), person("bob", 1),
        asks(1.0, "ann-1", "ann"), stream(1.0, "ann-1", "ann"),
        step(1.0, "ann-1"), step(1.2, "ann-1~1-abc"),
        chunk(1.1, "ann-1", 0, "the edge's own count ", 9.0),
        heard(1.1, "ann-1", 0, "one two three "), heard(1.3, "ann-1", 1, "four five six ", 1),
        {"event": "end", "t": 1.2, "id": "ann-1", "code": "canceled", "message": ""},
        answered(2.0, "ann-1", "ann", helped=True, cloud_tokens=40, cloud_s=1.5, ttft_s=0.1),
        asks(6.0, "bob-1", "bob"), stream(6.0, "bob-1", "bob"),
        heard(6.2, "bob-1", 0, "seven eight "),
        answered(7.0, "bob-1", "bob", fallback=GONE, ttft_s=0.2, **changes),
    ]  # fmt: skip


def run(**changes: Any) -> DemoHistory:
    """Return the history of these events, with the cut."""
    made = history(*lines(**changes))
    made.cloud_cut_s = 5.0
    return made


def written(draw: Any, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, height=40)
    draw(console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_summary_counts_answers_with_help_and_why_others_had_none() -> None:
    assert HelpSummary.of(run().questions) == HelpSummary(1, 0, 1, {GONE: 1}, 40, 1.5, 0.1, 0.2)
    assert HelpSummary.of([]) == HelpSummary(0, 0, 0, {}, 0, 0.0, None, None)
    found = as_json(SETTINGS, {"timely": run()})["help"]
    assert (found["answers"]["helped"], found["answers"]["alone"], found["cut_s"]) == (1, 1, 4.0)


def line(event: str, t: float, request_id: str, **values: Any) -> Line:
    return {"event": event, "t": t, "id": request_id, **values}


def ask(t: float, request_id: str, agent: str) -> Line:
    return line("ask", t, request_id, agent=agent, ert_s=1.0, mode="progressive")


def receive(t: float, request_id: str, index: int, text: str, predicted_s: float) -> Line:
    return line("receive", t, request_id, index=index, text=text, predicted_s=predicted_s)


def done(t: float, request_id: str, agent: str, **values: Any) -> Line:
    how = {"outcome": "finished", "response_s": 0.3}
    return line("done", t, request_id, agent=agent, **how, **values)


def robots_lines() -> list[Line]:
    """Return the events of two robots: hawk's plan is made with steps, owl's after the cut is not.

    The server logs what the edge makes for hawk: an opening, of which the last segment is never
    delivered, and a plan with the steps.
    """
    return [
        ask(1.0, "hawk-1", "hawk"), line("request", 1.0, "hawk-1", ert_s=1.0), step(1.1, "hawk-1"),
        line("segment", 1.2, "hawk-1", text="mf(50);"),
        line("segment", 1.3, "hawk-1", index=1, text="tc(90);"),
        receive(1.2, "hawk-1", 0, "mf(50);", 1.0),
        line("call", 1.3, "hawk-1", call="mf(50)", s=3.0),
        line("request", 1.4, "hawk-1~abc", ert_s=1.0), step(1.4, "hawk-1~abc"),
        line("segment", 1.5, "hawk-1~abc", text="mf(50);"),
        line("segment", 1.6, "hawk-1~abc", index=1, text="tp();"),
        {"event": "end", "t": 1.5, "id": "hawk-1", "code": "canceled", "message": ""},
        receive(1.6, "hawk-1", 1, "tp();", 0.5),
        done(4.0, "hawk-1", "hawk", helped=True, cloud_tokens=25, cloud_s=0.5),
        ask(6.0, "owl-1", "owl"), receive(6.1, "owl-1", 0, "mf(50);", 1.0),
        done(7.5, "owl-1", "owl", fallback=GONE),
    ]  # fmt: skip


def test_a_plan_with_help_is_what_its_robot_got() -> None:
    made = history(*robots_lines())
    hawk = made.requests["hawk-1"]
    assert [(one.text, one.at_s) for one in hawk.delivered] == [("mf(50);", 1.2), ("tp();", 1.6)]
    assert [one.due_s for one in hawk.delivered] == [pytest.approx(2.0), pytest.approx(4.3)]
    assert [request.agent for request, _ in made.published] == ["hawk", "hawk", "owl"]
    assert (hawk.steps, hawk.generated, hawk.end_s) == (2, True, 4.0)
    assert len(made.asked) == 2


def test_the_end_of_a_plans_opening_is_not_its_end() -> None:
    early = [line for line in robots_lines() if line["t"] < 1.6]
    assert not history(*early).requests["hawk-1"].generated


def test_a_report_counts_plans_with_help_beside_answers() -> None:
    both = history(*lines(), *robots_lines())
    both.cloud_cut_s = 5.0
    table = written(lambda console: console.print(help_table({"timely": both})))
    assert re.search(r"timely +answers +1 +0 +1 +40 +1\.5 +0\.10 +0\.20", table)
    assert re.search(r"\n +plans +1 +0 +1 +25 +0\.5 +0\.30 +0\.30", table)
    words = " ".join(written(
        lambda console: print_report(console, SETTINGS, {"timely": both}, [])
    ).split())  # fmt: skip
    assert "robots began 1 of 1 plan; 0 ended with an error" in words
    assert f"1 of the plans: {GONE}" in words
    assert "2 helped, 2 alone, 65 tokens" in help_line("", both, 9.0).plain


def test_an_answer_with_help_is_what_its_person_heard() -> None:
    ann = run().talks["ann-1"]
    assert "".join(piece.text for piece in ann.chunks) == "one two three four five six "
    assert ann.sources == [(1.1, 0), (2.1, 1)], "words of the part begin after the opening's"
    assert (ann.part, ann.steps, ann.generated) == (1, 2, True)


def test_the_end_of_the_opening_is_not_the_end_of_the_answer() -> None:
    made = history(
        stream(1.0, "ann-1", "ann"), chunk(1.1, "ann-1", 0, "early ", 9.0),
        asks(1.0, "ann-1", "ann"), heard(1.1, "ann-1", 0, "early "),
        {"event": "end", "t": 1.2, "id": "ann-1", "code": "canceled", "message": ""},
    )  # fmt: skip
    assert not made.talks["ann-1"].generated
    assert len(made.talks["ann-1"].chunks) == 1


def test_a_timeline_says_where_words_come_from() -> None:
    labels = {
        lane.agent: [bar.label for bar in lane.bars if bar.kind == "listening"]
        for lane in timeline(run(), "").lanes
    }
    assert labels == {"ann": ["opening", "part 1"], "bob": ["edge alone"]}


@pytest.mark.parametrize("width", [80, 120])
def test_the_live_view_has_sources_and_the_cut_and_fits(width: int) -> None:
    text = written(lambda screen: screen.print(LiveView(SETTINGS, "timely", screen).render(
        run(), 7.0)), width)  # fmt: skip
    (ann,) = [line for line in text.splitlines() if line.startswith(" ann")]
    (bob,) = [line for line in text.splitlines() if line.startswith(" bob")]
    assert "part 1" in ann
    assert "edge alone" in bob
    assert "cloud cut off 2 s ago 1 helped, 1 alone, 40 tokens" in text
    assert max(len(line) for line in text.splitlines()) <= width
    plain = replace(SETTINGS, cloud="")
    without = written(lambda screen: screen.print(LiveView(plain, "timely", screen).render(
        run(), 7.0)), width)  # fmt: skip
    assert "edge alone" not in without
    assert "cloud" not in without


def test_the_report_says_what_the_cut_did_and_why_there_was_no_help() -> None:
    text = written(lambda console: print_report(console, SETTINGS, {"timely": run()}, []))
    words = " ".join(text.split())
    assert "The cloud was cut off at 4.0 s. After it, the edge answered 1 of 1 question" in words
    assert f"1 of the answers: {GONE}" in words
    assert "a stand-in of this machine" in words
    assert cut_sentence(history()) == ""
    assert "cut" not in help_line("", history(), 1.0).plain


def test_commands_name_the_cloud_only_if_there_is_one(tmp_path: Path) -> None:
    from timely_llm.demo.files import Files

    files = Files.of(tmp_path, "deadline")
    own = SETTINGS.server_command("deadline", files, cloud_url="http://127.0.0.1:1/v1")
    assert 'cloud_url:="http://127.0.0.1:1/v1"' in own
    for command in (SETTINGS.talkers_command(files), SETTINGS.fleet_command(files)):
        assert 'mode:="progressive"' in command
    theirs = replace(SETTINGS, cloud="https://a.b", cloud_model="m", cloud_key_variable="KEY")
    command = theirs.server_command("deadline", files)
    assert {'cloud_url:="https://a.b"', 'cloud_model:="m"', 'cloud_key_variable:="KEY"'} <= {
        *command
    }
    none = replace(SETTINGS, cloud="")
    clients = [*none.talkers_command(files), *none.fleet_command(files)]
    words = [*none.server_command("deadline", files), *clients]
    assert not [word for word in words if word.startswith("cloud") or word.startswith("mode")]


def test_a_report_opens_the_folder_of_a_demo_with_a_cloud(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_server = ("step", "stream", "chunk", "end")
    for line in [
        *lines(),
        {"event": "end", "t": 7.0, "id": "bob-1", "code": "none", "message": ""},
    ]:
        file = "server" if line["event"] in at_server else "talkers"
        with (tmp_path / f"{file}-deadline.jsonl").open("a") as log:
            log.write(json.dumps(line) + "\n")
    page = tmp_path / "page.html"
    assert run_command("", monkeypatch, "report", str(tmp_path), "--output", str(page)) == 0
    (one,) = load_demo(tmp_path)
    assert [lane.agent for lane in one.timelines[0].lanes] == ["ann", "bob"]
    assert "bob" in page.read_text()
