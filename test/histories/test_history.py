"""A seed is one history, and its invariants hold."""

from __future__ import annotations

import random
import time
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from timely_llm.core.request import PlanRequest
from timely_llm.core.segment import Segment
from timely_llm.dispatch.relay import Relay
from timely_llm.histories.checks import BrokenError, Checks
from timely_llm.histories.dispatcher import DispatcherFate
from timely_llm.histories.faults import (
    KINDS,
    LASTS_S,
    OF_JOURNALS,
    OF_SERVERS,
    InjectedFault,
    draw,
    faults_s,
    most_faults,
)
from timely_llm.histories.history import (
    FaultHistory,
    HistoryOutcome,
    is_alone,
    most_events,
    simulate,
)
from timely_llm.histories.host import Host
from timely_llm.histories.network import ClientNetwork
from timely_llm.histories.schedule import Schedule
from timely_llm.histories.shrinking import shrink
from timely_llm.robots.client.taking_up import TakingUp
from timely_llm.serving.limits import RequestGate

SHORT_S = 25.0
"""Time of a short history, seconds."""


def test_the_same_seed_is_the_same_history() -> None:
    for seed, alone in ((0, True), (1, False)):
        faults = draw(seed, lasts_s=SHORT_S)
        first, again = simulate(seed, faults, SHORT_S), simulate(seed, faults, SHORT_S)
        assert first == again
        assert first.alone is alone
    other = simulate(2, draw(2, lasts_s=SHORT_S), SHORT_S)
    assert first.digest != other.digest
    assert first.requests > 5


def test_no_history_depends_on_the_time_of_day(monkeypatch: pytest.MonkeyPatch) -> None:
    def read() -> float:
        raise AssertionError("a history reads the time of day")

    monkeypatch.setattr(time, "time", read)
    outcome = simulate(0, [InjectedFault(0, "server dies", 5.0, 0, 0.2)], SHORT_S)
    assert not outcome.broken, outcome.detail


def test_histories_of_new_seeds_break_no_invariant(first_seed: int) -> None:
    print(f"timely-llm simulate --first-seed {first_seed} --seeds 4")
    for seed in range(first_seed, first_seed + 4):
        outcome = simulate(seed, draw(seed))
        assert not outcome.broken, f"seed {seed}: {outcome.broken}: {outcome.detail}"


def test_a_plan_goes_on_where_a_dispatcher_that_died_had_moved_it() -> None:
    hangs = InjectedFault(0, "engine hangs", 3.31, 10026, 0.603)
    dies = InjectedFault(1, "dispatcher dies", 6.67, 0, 0.515)
    outcome = simulate(9022, [hangs, dies], SHORT_S, alone=False)
    assert not outcome.broken
    assert outcome.fired == {"engine hangs": 1, "dispatcher dies": 1}


def test_a_kept_conversation_that_an_engine_loses_is_no_fault_of_the_server() -> None:
    loses = InjectedFault(3, "engine loses sequence", 18.64188050608646, 38902, 0.08)
    outcome = simulate(300036, [loses], SHORT_S, alone=False)
    assert not outcome.broken, outcome.detail
    assert outcome.fired == {"engine loses sequence": 1}


CROSSINGS: dict[str, tuple[int, list[InjectedFault]]] = {
    "a new dispatcher does not know the conversation of an id that is sent twice": (
        2028000570,
        [
            InjectedFault(1, "dispatcher dies", 17.884, 16003, 0.095),
            InjectedFault(2, "duplicate id", 19.286, 5992, 0.409),
        ],
    ),
    "a client takes the first of two results": (
        2028006355,
        [
            InjectedFault(0, "dispatcher dies", 4.9403135948123245, 20846, 0.530206220914671),
            InjectedFault(2, "dispatcher dies", 9.748173794443385, 35089, 0.6757808722482215),
            InjectedFault(4, "disk slow", 13.60946372787656, 1962, 0.881088999117337),
        ],
    ),
    "a message of a dispatcher that died does not outlive a partition": (
        2031000032,
        [
            InjectedFault(0, "partition", 5.486584628544383, 8, 0.9163705377987694),
            InjectedFault(1, "dispatcher dies", 8.538670917200804, 0, 0.3667500176946338),
            InjectedFault(4, "cancel", 9.410962077129172, 22, 0.5),
        ],
    ),
    "a new dispatcher finds an old run of an answer first": (
        2031000058,
        [
            InjectedFault(0, "partition", 0.49345771359766166, 4, 0.9967188132882356),
            InjectedFault(1, "dispatcher dies", 4.117194130823623, 0, 0.7642412934366863),
            InjectedFault(3, "cancel", 6.961994475715924, 28, 0.5),
            InjectedFault(5, "cancel", 5.900257881700025, 35, 0.5),
        ],
    ),
}
"""Messages that cross: the seed of a history, and its faults."""


@pytest.mark.parametrize("crossing", CROSSINGS)
def test_messages_that_cross_break_nothing(crossing: str) -> None:
    seed, faults = CROSSINGS[crossing]
    outcome = simulate(seed, faults, SHORT_S, alone=False)
    assert not outcome.broken, outcome.detail
    assert outcome.fired == Counter(fault.kind for fault in faults)


def test_a_client_that_died_cancels_nothing() -> None:
    dies = InjectedFault(3, "dispatcher dies", 3.07, 26488, 0.768)
    ends = InjectedFault(5, "person dies", 6.0, 50402, 0.682)
    cancels = InjectedFault(1, "cancel", 7.38, 7076, 0.786)
    outcome = simulate(2028001844, [cancels, dies, ends], SHORT_S, alone=False)
    assert not outcome.broken, outcome.detail
    assert outcome.fired == {"dispatcher dies": 1, "person dies": 1}


def test_a_cancel_without_a_dispatcher_reaches_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    canceled = []
    real = Relay.cancel

    def cancel(self: Any, key: str, **options: Any) -> Any:
        canceled.append(key)
        return real(self, key, **options)

    monkeypatch.setattr(Relay, "cancel", cancel)
    dies = InjectedFault(0, "dispatcher dies", 6.0, 0, 0.1)
    cancels = [InjectedFault(1 + n, "cancel", 6.1 + n / 100, n, 0.5) for n in range(5)]
    outcome = simulate(0, [dies, *cancels], SHORT_S, alone=False)
    assert not outcome.broken, outcome.detail
    assert outcome.fired == {"dispatcher dies": 1, "cancel": 5}
    assert canceled


@pytest.mark.parametrize("kind", ["dispatcher dies", "other release", "memory exhausted"])
def test_a_history_goes_on_after_faults_of_one_kind(kind: str) -> None:
    faults = [InjectedFault(n, kind, 3.0 + 5.0 * n, n, 0.1 + 0.2 * n) for n in range(4)]
    outcome = simulate(0, faults, SHORT_S, alone=False)
    assert not outcome.broken, outcome.detail
    assert outcome.fired == {kind: 4}


@pytest.mark.parametrize("kind", ["server dies", "other release", "engine ends"])
def test_a_server_alone_goes_on_after_faults_of_one_kind(kind: str) -> None:
    faults = [InjectedFault(n, kind, 3.0 + 5.0 * n, n, 0.1 + 0.2 * n) for n in range(4)]
    outcome = simulate(0, faults, SHORT_S, alone=True)
    assert not outcome.broken, outcome.detail
    assert outcome.alone
    assert outcome.fired == {kind: 4}


@pytest.mark.parametrize("alone", [True, False])
def test_clients_go_on_after_partitions_of_their_own(
    monkeypatch: pytest.MonkeyPatch, alone: bool
) -> None:
    taken = []
    real = TakingUp._take_up

    def take_up(self: Any, kept: Any) -> None:
        taken.append(kept.task.request_id)
        real(self, kept)

    monkeypatch.setattr(TakingUp, "_take_up", take_up)
    faults = [InjectedFault(n, "client apart", 3.0 + 2.0 * n, n, 0.1 * (n + 1)) for n in range(8)]
    outcome = simulate(2 if alone else 0, faults, SHORT_S, alone)
    assert not outcome.broken, outcome.detail
    assert outcome.fired == {"client apart": 8}
    assert taken


def test_a_server_alone_goes_on_with_its_plans_where_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    again = []
    real = Checks.segment

    def segment(self: Checks, segment: Segment) -> None:
        if segment.index and segment.request_id in resumed:
            again.append(segment)
        real(self, segment)

    def resuming(self: Checks, saved: Any, real: Any = Checks.resuming) -> None:
        resumed.update(saved)
        real(self, saved)

    resumed: set[str] = set()
    monkeypatch.setattr(Checks, "segment", segment)
    monkeypatch.setattr(Checks, "resuming", resuming)
    faults = [InjectedFault(n, "server dies", 4.0 + 4.0 * n, n, 0.1) for n in range(4)]
    outcome = simulate(1, faults, SHORT_S, alone=True)
    assert not outcome.broken, outcome.detail
    assert resumed and again


def test_a_partition_that_a_client_does_not_notice_holds_its_messages() -> None:
    schedule = Schedule()
    network = ClientNetwork(schedule, random.Random(0), lambda: 1)
    client = Parted()
    came: list[float] = []

    def send() -> None:
        network.send("reports", "robot_0", lambda: came.append(schedule.now))

    network.part(client, 2.0)
    send()
    while not came:
        schedule.next()
    assert came == [2.0] and not client.said
    network.part(client, 6.0)
    send()
    while "found" not in client.said:
        schedule.next()
    assert client.said == ["lost", "found"]
    assert len(came) == 1
    assert client.apart_s == 8.0


class Parted:
    """A client that notes what the network lets it notice."""

    def __init__(self) -> None:
        self.agent, self.apart_s = "robot_0", 0.0
        self.said: list[str] = []

    def server_lost(self) -> None:
        self.said.append("lost")

    def server_found(self) -> None:
        self.said.append("found")


def test_the_seed_says_whether_a_server_is_alone() -> None:
    share = sum(map(is_alone, range(1000))) / 1000
    assert 0.25 < share < 0.35


@pytest.mark.parametrize("kind", sorted(OF_JOURNALS))
def test_a_history_goes_on_when_its_journals_fail(kind: str) -> None:
    fired = 0
    for seed in range(8):
        faults = [InjectedFault(n, kind, 2.0 + n, n, n / 8) for n in range(8)]
        outcome = simulate(seed, faults, SHORT_S)
        assert not outcome.broken, f"seed {seed}: {outcome.broken}: {outcome.detail}"
        fired += outcome.fired[kind]
    assert fired >= (2 if kind == "disk full" else 8)  # a life has one full disk


@pytest.mark.parametrize("said", [False, True])
def test_a_client_may_give_up_only_what_no_server_had_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: bool
) -> None:
    history = FaultHistory(3, [], tmp_path, alone=False)
    request, host = PlanRequest("robot_0-1", "robot_0", "drone", "Look."), history.hosts[0]
    history.checks.accepted(request, 0.0)
    monkeypatch.setattr(Host, "serves", lambda self, key: self is host)
    monkeypatch.setattr(Relay, "servers", [host.name])
    fate = DispatcherFate(False, lives=[host.life] if said else [])
    monkeypatch.setattr(history.way, "ask_result", lambda asked, answered: answered(fate))
    with pytest.raises(BrokenError) if said else nullcontext():
        history.ask_result(request, lambda answer: history.lose(request, unknown=True))
    assert history.checks.stories["robot_0-1"].lost is not said


def test_a_broken_history_shrinks_to_the_faults_that_break_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(RequestGate, "_problem", lambda self, request: None)
    faults = [
        InjectedFault(0, "report doubled", 1.0, 0, 0.5),
        InjectedFault(1, "duplicate id", 12.0, 0, 0.5),
        InjectedFault(2, "robot restarts", 2.0, 1, 0.5),
    ]
    outcome = simulate(0, faults, SHORT_S, alone=False)
    assert outcome.broken == "an id is served once"
    assert [fault.number for fault in shrink(outcome, faults, lasts_s=SHORT_S)] == [1]


def test_a_long_list_of_faults_shrinks_by_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []

    def breaks(seed: int, faults: list[InjectedFault], *args: Any) -> HistoryOutcome:
        tries.append(faults)
        broken = {3, 17} <= {fault.number for fault in faults}
        return HistoryOutcome(seed, 0, Counter(), 0, "", "a rule" if broken else "")

    monkeypatch.setattr("timely_llm.histories.shrinking.simulate", breaks)
    faults = [InjectedFault(n, "cancel", float(n), 0, 0.5) for n in range(40)]
    outcome = HistoryOutcome(0, 0, Counter(), 0, "", "a rule", at_s=30.0)
    assert [fault.number for fault in shrink(outcome, faults)] == [3, 17]
    assert len(tries) < 30
    assert shrink(outcome, faults, lambda: False) == faults


def test_faults_keep_their_numbers_when_some_kinds_are_left_out() -> None:
    for seed in range(50):
        drawn = draw(seed)
        assert [fault.number for fault in drawn] == list(range(len(drawn)))
        assert 1 <= len(drawn) <= most_faults(LASTS_S)
        assert draw(seed, ["cancel"]) == [fault for fault in drawn if fault.kind == "cancel"]
    assert {fault.kind for seed in range(50) for fault in draw(seed)} == set(KINDS)


def test_a_history_lasts_two_minutes_and_has_faults_in_all_of_them() -> None:
    begin = sorted(fault.at_s for seed in range(50) for fault in draw(seed))
    parts = {int(4 * at_s / faults_s(LASTS_S)) for at_s in begin}
    assert parts == {0, 1, 2, 3}
    assert begin[-1] < LASTS_S
    outcome = simulate(0, [InjectedFault(0, "robot dies", 5.0, 0, 0.2)])
    assert 120.0 <= outcome.at_s < 180.0
    assert outcome.requests > 30  # clients ask until then


def test_one_of_ten_seeds_has_no_fault_of_servers() -> None:
    calm = sum(not any(one.kind in OF_SERVERS for one in draw(seed)) for seed in range(300))
    assert 20 < calm < 60


def test_another_client_comes_after_the_death_of_one() -> None:
    dies = [InjectedFault(n, "robot dies", 3.0 + 3.0 * n, n, 0.1) for n in range(6)]
    faults = [*dies, InjectedFault(6, "person dies", 4.0, 0, 0.1)]
    with TemporaryDirectory() as folder:
        history = FaultHistory(0, faults, Path(folder), SHORT_S)
        outcome = history.run()
    assert not outcome.broken, outcome.detail
    assert outcome.fired == {"robot dies": 6, "person dies": 1}
    agents = {one.request.agent for one in history.checks.stories.values()}
    assert len(agents) > 6


def test_a_history_of_an_hour_may_have_more_events_than_one_of_two_minutes() -> None:
    assert most_events(3600.0) == 30 * most_events(120.0)
    assert most_events(SHORT_S) == most_events(120.0)
