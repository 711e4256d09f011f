"""What must not happen when a server with a recovery journal is killed, and its pauses."""

from __future__ import annotations

from dataclasses import replace

from timely_llm.benchmarks.kills.findings import faults, table
from timely_llm.benchmarks.kills.lives import Lives, Logs
from timely_llm.core.events.probe_events import AcceptedEvent, KillEvent
from timely_llm.core.events.run_event import RunEvent
from timely_llm.core.events.schema import (
    AskEvent,
    DoneEvent,
    EndEvent,
    ReadyEvent,
    ReceiveEvent,
    StartEvent,
)

KILLS = [
    KillEvent(0.0, "server", "started"),
    KillEvent(10.0, "server", "killed"),
    KillEvent(12.0, "server", "started"),
]
READY: dict[str, list[RunEvent]] = {"server-1": [ReadyEvent(1.0)], "server-2": [ReadyEvent(13.0)]}
ASKED = AskEvent(5.0, "a", "robot", False, "go", 1.0, 1.0, 1.0)
DONE = DoneEvent(20.0, "a", "robot", "finished", False, 0, "", 1.0, 0.0, 1.0, "", 1, 1, 1, 1, 0)
END = EndEvent(20.0, "a", "none", "")


def begun(t: float, index: int = 0) -> StartEvent:
    return StartEvent(t, "a", index, 0)


def got(t: float, index: int = 0) -> ReceiveEvent:
    return ReceiveEvent(t, "a", index, 0, False)


def logs(*listener: RunEvent, robots: tuple[RunEvent, ...] = ()) -> Logs:
    accepted = AcceptedEvent(5.0, "a")
    own = sorted([ASKED, *robots, DONE], key=lambda one: one.t)
    return Logs(KILLS, [accepted, *listener], own, [], READY, {})


def broken(made: Logs) -> list[str]:
    return [one.check for one in faults(made)]


def test_known_segments_may_come_again_in_the_next_life() -> None:
    sound = logs(
        got(6.0), got(7.0, 1), got(13.5), got(13.6, 1), got(14.0, 2), END,
        robots=(begun(9.5), begun(14.1, 1)),
    )  # fmt: skip
    assert broken(sound) == []
    assert Lives(KILLS).journal


def test_a_segment_that_was_reported_begun_must_not_come_again() -> None:
    repeated = logs(got(6.0), got(13.5), END, robots=(begun(6.1),))
    assert broken(repeated) == ["no segment comes again that was reported begun"]
    away = logs(got(6.0), got(13.5), END, robots=(begun(11.0),))
    assert broken(away) == []


def test_an_accepted_request_ends_at_a_listener_or_in_an_event_log() -> None:
    assert broken(logs(got(6.0))) == ["each accepted request ends"]
    in_a_log = replace(logs(got(6.0)), servers={**READY, "server-2": [ReadyEvent(13.0), END]})
    assert broken(in_a_log) == []


def test_a_pause_is_the_time_from_readiness_to_the_first_segment_at_the_robot() -> None:
    rows = {row["what"]: row["number"] for row in table(logs(END, robots=(got(6.0), got(14.5))))}
    assert rows["start of the process, median, s"] == 1.0
    assert rows["plans that went on in a later life"] == 1
    assert rows["their pause beside the start, median, s"] == 1.5
    assert rows["their longest pause, s"] == 1.5


def test_a_dispatchers_run_has_none_of_these_rows() -> None:
    dispatcher = [replace(one, process="dispatcher") for one in KILLS]
    rows = {row["what"] for row in table(replace(logs(END), kills=dispatcher))}
    assert not any("pause" in row for row in rows)
