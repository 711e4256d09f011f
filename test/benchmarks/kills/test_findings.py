"""Each check of a run with killed servers finds what must not happen, and nothing else."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from timely_llm.benchmarks.kills.findings import KNOWN, codes, faults, late_apart, table
from timely_llm.benchmarks.kills.lives import Logs
from timely_llm.core.events.probe_events import (
    AcceptedEvent,
    KillEvent,
    ProbeFailedEvent,
    ServingEvent,
)
from timely_llm.core.events.run_event import RunEvent
from timely_llm.core.events.schema import (
    AnsweredEvent,
    AskEvent,
    DoneEvent,
    EndEvent,
    FailEvent,
    HeardEvent,
    PlanRequestEvent,
    QuestionEvent,
    ReceiveEvent,
    SegmentEvent,
    StartEvent,
)
from timely_llm.core.request import ErrorCode

DIED = "the server /plan_server died or cannot be reached (no sign of life for 2 s)"


def ask(key: str, t: float = 1.0) -> AskEvent:
    return AskEvent(t, key, "robot", False, "go", 1.0, 1.0, 1.0)


def done(
    key: str, t: float = 9.0, outcome: str = "finished", code: int = 0, words: str = ""
) -> DoneEvent:
    return DoneEvent(t, key, "robot", outcome, False, code, words, 1.0, 0.0, 1.0, "", 1, 1, 1, 1, 0)


def answered(key: str, t: float = 9.0, code: int = 0, words: str = "") -> AnsweredEvent:
    outcome = "error" if code else "answered"
    return AnsweredEvent(
        t, key, "ann", outcome, code, words, 1.0, 0.1, 0.1, 2.0, True, 0, 0.0, 2, False, 0, 0
    )


def received(*places: tuple[int, int], key: str = "a", begin_s: float = 1.0) -> list[RunEvent]:
    """Segments at (epoch, index), a second apart."""
    return [
        ReceiveEvent(begin_s + place, key, index, epoch, False)
        for place, (epoch, index) in enumerate(places)
    ]


def heard(*indices: int, key: str = "q", begin_s: float = 1.0) -> list[RunEvent]:
    return [HeardEvent(begin_s + place, key, index, "x") for place, index in enumerate(indices)]


def started(*places: tuple[int, int]) -> list[RunEvent]:
    events = [StartEvent(2.0, "a", index, epoch) for epoch, index in places]
    return [ask("a"), *events, done("a")]


KILLED = (
    KillEvent(0.0, "dispatcher", "started"),
    KillEvent(50.0, "dispatcher", "killed"),
    KillEvent(52.0, "dispatcher", "started"),
)
NOTHING = Logs([KillEvent(0.0, "dispatcher", "started")], [], [], [], {}, {})


def broken(**logs: Any) -> list[str]:
    return [fault.check for fault in faults(replace(NOTHING, **logs))]


def test_a_sound_run_has_no_faults() -> None:
    listener = [
        AcceptedEvent(1.0, "a"), *received((0, 0), (0, 1), (1, 0)), EndEvent(5.0, "a", "none", ""),
        AcceptedEvent(1.0, "q"), *heard(0, 1, key="q"), EndEvent(5.0, "q", "none", ""),
        ServingEvent(90.0, "dispatcher", ()),
    ]  # fmt: skip
    robots = started((0, 0), (0, 1), (1, 0))
    question = QuestionEvent(1.0, "q", "ann", "why", "text", "", 0)
    people = [question, *heard(0, 1), answered("q")]
    assert not broken(listener=listener, robots=robots, people=people, said={"s1-1": ["ready"]})


@pytest.mark.parametrize(
    ("check", "logs"),
    [
        ("each request ends once", {"robots": [ask("a")]}),
        ("each request ends once", {"robots": [ask("a"), done("a"), done("a")]}),
        ("each request ends once", {"people": [
            QuestionEvent(1.0, "q", "ann", "why", "text", "", 0)]}),
        ("requests end in bounded time", {"robots": [ask("a"), done("a", 200.0)]}),
        ("an error says why", {"robots": [ask("a"), done("a", 9.0, "error", 1)]}),
        ("an error says why", {"robots": [ask("a"), done("a", 9.0, "error")]}),
        ("clients know soon that their dispatcher died", {"robots": [
            ask("a"), done("a", 9.0, "error", ErrorCode.SHUTTING_DOWN, DIED)]}),
        ("no segment is executed twice", {"robots": started((0, 0), (0, 0))}),
        ("no plan is executed after a newer one", {"robots": started((1, 0), (0, 1))}),
        ("robots can read their segments", {"robots": [
            ask("a"), FailEvent(2.0, "a", 0, 0, "it differs from what came before"), done("a")]}),
        ("no older epoch comes after a newer one", {"listener": received((1, 0), (0, 1))}),
        ("segments come in order", {"listener": received((0, 0), (0, 2))}),
        ("segments come in order", {"listener": received((0, 0), (0, 1), (0, 1))}),
        ("segments come in order", {"listener": received((0, 0), (1, 1))}),
        ("tokens come in order", {"listener": heard(0, 2)}),
        ("tokens come in order", {"listener": heard(0, 0)}),
        ("people get tokens in order", {"people": [
            QuestionEvent(0.0, "q", "ann", "why", "text", "", 0), *heard(0, 2, 3), answered("q")]}),
        ("each accepted request has a result", {"listener": [AcceptedEvent(1.0, "a")]}),
        ("each request has one result", {"listener": [
            AcceptedEvent(1.0, "a"), *[EndEvent(2.0, "a", "none", "")] * 2]}),
        ("nothing is served at the end", {"listener": [ServingEvent(9.0, "s1", ("a",))]}),
        ("a result has what was published", {"listener": [ProbeFailedEvent(9.0, "a ended")]}),
        ("no process dies by itself", {"kills": [KillEvent(9.0, "s1", "died", "it was ended")]}),
        ("no process logs a fault", {"said": {"s1-1": ["Traceback (most recent call last):"]}}),
    ],
)  # fmt: skip
def test_what_must_not_happen_is_found(check: str, logs: dict[str, Sequence[Any]]) -> None:
    assert broken(**logs) == [check]


def test_a_run_that_a_frozen_server_kept_may_end_again_under_a_new_dispatcher() -> None:
    killed_s = next(one.t for one in KILLED if one.kind == "killed")
    before = [AcceptedEvent(1.0, "a"), EndEvent(2.0, "a", "none", "")]
    for code, after_s, found in (
        ("client_silent", 20.0, []), ("none", 20.0, ["each request has one result"]),
        ("client_silent", 2.0 - killed_s, ["each request has one result"]),
    ):  # fmt: skip
        again = EndEvent(killed_s + after_s, "a", code, "")
        assert broken(kills=KILLED, listener=[*before, again]) == found


def test_a_client_may_lose_a_dispatcher_that_was_killed_and_knows_it_within_3_s() -> None:
    killed_s = next(one.t for one in KILLED if one.kind == "killed")
    for after_s, found in ((3.0, []), (3.4, []), (3.6, [KNOWN])):
        lost = done("a", killed_s + after_s, "error", ErrorCode.SHUTTING_DOWN, DIED)
        assert broken(kills=KILLED, robots=[ask("a", 49.0), lost]) == found


def test_a_request_to_a_dead_dispatcher_is_known_to_be_lost_3_s_after_it_was_sent() -> None:
    killed_s = next(one.t for one in KILLED if one.kind == "killed")
    for sent_s, after_s, found in (
        (1.0, 3.4, []), (1.0, 3.6, [KNOWN]), (3.4, 3.4, []), (3.6, 1.0, [KNOWN]),
    ):  # fmt: skip
        asked_s = killed_s + sent_s
        lost = done("a", asked_s + after_s, "error", ErrorCode.SHUTTING_DOWN, DIED)
        assert broken(kills=KILLED, robots=[ask("a", asked_s), lost]) == found


def test_what_a_new_dispatcher_takes_over_may_begin_in_the_midst() -> None:
    listener = [
        AcceptedEvent(40.0, "a"), *received((0, 0), (0, 1), begin_s=41.0),
        *received((0, 4), (0, 5), begin_s=60.0), EndEvent(70.0, "a", "none", ""),
    ]  # fmt: skip
    logs = replace(NOTHING, kills=KILLED, listener=listener)
    assert not faults(logs)
    rows = {row["what"]: row["number"] for row in table(logs)}
    assert rows["requests that went on in the next life and ended"] == 1


def test_what_a_server_still_has_must_be_taken_over() -> None:
    words = "no dispatcher knows this request any more"
    robots = [ask("a", 40.0), done("a", 65.0, "error", ErrorCode.SHUTTING_DOWN, words)]
    asked = PlanRequestEvent(40.0, "a", "robot", "go", 1.0, 1.0, 1.0)
    servers: dict[str, list[RunEvent]] = {"s1-1": [asked]}
    started = [KillEvent(0.0, "s1", "started"), *KILLED]
    assert broken(kills=started, robots=robots, servers=servers) == [
        "what servers have is taken over"
    ]
    for end in ("killed", "stopped"):
        kills = [*started, KillEvent(60.0, "s1", end)]
        assert not broken(kills=kills, robots=robots, servers=servers)
    servers["s1-1"].append(EndEvent(49.0, "a", "canceled", ""))
    assert not broken(kills=started, robots=robots, servers=servers), "its robot had all of it"


def test_what_came_late_is_a_fault_unless_processes_waited_for_a_processor() -> None:
    lost = done("a", 9.0, "error", ErrorCode.SHUTTING_DOWN, DIED)
    twice = started((0, 0), (0, 0))
    found = faults(replace(NOTHING, robots=[*twice, ask("b"), replace(lost, id="b")]))
    assert [one.check for one in found] == [KNOWN, "no segment is executed twice"]
    assert late_apart(found, starved=False) == (found, [])
    assert late_apart(found, starved=True) == (found[1:], found[:1])


def test_what_it_repeats_is_found() -> None:
    listener = [*received((0, 0), (0, 1), begin_s=41.0), *received((0, 1), begin_s=60.0)]
    assert broken(kills=KILLED, listener=listener) == ["segments come in order"]


def test_a_result_may_be_missing_only_of_a_dispatcher_that_was_killed() -> None:
    kills = [*KILLED]
    assert not broken(kills=kills, listener=[AcceptedEvent(49.0, "a")])
    assert broken(kills=kills, listener=[AcceptedEvent(60.0, "a")]) == [
        "each accepted request has a result"
    ]


def test_outcomes_are_counted() -> None:
    def had(key: str, made: bool) -> list[RunEvent]:
        request = PlanRequestEvent(1.0, key, "robot", "go", 1.0, 1.0, 1.0)
        segment = SegmentEvent(2.0, key, 0, 0, "go();", 1.0, False, False, 3.0)
        return [request, segment] if made else [request]

    servers = {
        "s1-1": [*had("whole", True), *had("moved", False), *had("continued", True)],
        "s2-1": [*had("moved", True), *had("continued", True)],
    }
    robots = [
        done("whole"), done("moved"), done("continued"),
        done("refused", 9.0, "error", ErrorCode.EXPIRED, "nothing in 30.1 s for 'robot_1'"),
        done("lost", 53.0, "error", ErrorCode.SHUTTING_DOWN, DIED),
    ]  # fmt: skip
    logs = replace(NOTHING, kills=KILLED, robots=robots, servers=servers)
    rows = {row["what"]: row["number"] for row in table(logs)}
    assert rows["dispatcher killed"] == 1
    for outcome in (
        "served whole", "served whole, after another server had it", "ended with EXPIRED",
        "continued at another server or in its next life", "lost with the process that was asked",
    ):  # fmt: skip
        assert rows[f"plans {outcome}"] == 1
    assert codes(logs) == [("EXPIRED: nothing in * s for *", 1)]
