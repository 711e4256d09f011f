"""Several servers in virtual time, behind one dispatcher."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from timely_llm.conformance.policies.service import sizes
from timely_llm.dispatch.assign.registry import DISPATCHERS, make_dispatcher
from timely_llm.dispatch.contract import Assignment, ServerView, Waiting
from timely_llm.dispatch.front.front import Front
from timely_llm.experiments.catalog.mixed import with_talks
from timely_llm.experiments.sources import shipped_skill_sets
from timely_llm.experiments.virtual import workload
from timely_llm.experiments.virtual.clients import SimulationError
from timely_llm.experiments.virtual.crowd import crowd, groups, servers_of
from timely_llm.experiments.virtual.outcome import Run
from timely_llm.experiments.virtual.servers import SILENT_S, simulate_servers
from timely_llm.experiments.virtual.simulation import simulate
from timely_llm.policies.registry import make_policy
from timely_llm.traces.model import Trace

FAST, SLOW = "rtx4090-llama3-8b", "rtx4060ti-chatglm2-6b"
DIES_S = 20.0


class First:
    """Everything goes to the server that stands first by name."""

    gathers = False

    def assign(
        self, now: float, waiting: Sequence[Waiting], servers: Sequence[ServerView]
    ) -> Sequence[Assignment]:
        names = sorted(server.name for server in servers)
        return [Assignment(one.key, names[0]) for one in waiting if names]


def trace(number: int = 2, rate: float = 1.0) -> Trace:
    return with_talks(crowd(list(groups(number, 0, 0.7))), rate, 0)


def run(
    made: Trace, profiles: Sequence[str], rule: str = "most-worth", dies_s: float = math.inf,
    moves: bool = True,
) -> Run:  # fmt: skip
    works = workload.works(made, skill_sets=shipped_skill_sets())
    dispatcher = First() if rule == "first" else make_dispatcher(rule)
    servers = servers_of(profiles, 0.001, 0.2, dies_s)
    return simulate_servers(
        works, made.conversations, servers, lambda: make_policy("deadline"), dispatcher, moves
    )


def test_the_front_keeps_nothing_of_what_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    fronts: list[Front] = []
    make = Front.__init__

    def remember(front: Front, *args: Any) -> None:
        fronts.append(front)
        make(front, *args)

    monkeypatch.setattr(Front, "__init__", remember)
    run(trace(3), (FAST, SLOW, FAST), dies_s=DIES_S)
    held = sizes(fronts[0])
    assert not {
        place: number
        for place, number in held.items()
        if number and place.startswith(("Front.", "Ledger._sent", "_Record.sent"))
    }


@pytest.mark.parametrize("rule", DISPATCHERS)
def test_each_request_is_served_whole_and_once_also_when_a_server_dies(rule: str) -> None:
    made = run(trace(3), (FAST, SLOW, FAST), rule, DIES_S)
    assert all(one.finished for one in made.outcomes)
    assert all(len(one.segments) == len(one.work.parts) for one in made.outcomes)
    assert all(talk.finished for talk in made.conversations)
    assert all(
        len(talk.times_s) >= talk.conversation.output_tokens - 1 for talk in made.conversations
    )


def test_a_run_is_the_same_each_time() -> None:
    made = trace(3)
    assert run(made, (FAST, SLOW), dies_s=DIES_S) == run(made, (FAST, SLOW), dies_s=DIES_S)


def test_one_server_serves_as_without_a_dispatcher_but_for_its_hop() -> None:
    made = trace(1, rate=0.0)
    (settings,) = (one.settings for one in servers_of((FAST,), 0.001, 0.2))
    alone = simulate(made, make_policy("deadline"), settings, skill_sets=shipped_skill_sets())
    behind = run(made, (FAST,), "round-robin")
    hops = [
        b.response_s - a.response_s for a, b in zip(alone.outcomes, behind.outcomes, strict=True)
    ]
    assert sum(hops) / len(hops) == pytest.approx(0.001, abs=0.003)


def test_two_servers_take_a_burst_in_less_time_than_one() -> None:
    made = trace(4, rate=0.0)
    one, two = (run(made, (FAST,) * number, "round-robin") for number in (1, 2))
    slow, fast = (sum(o.response_s for o in each.outcomes) for each in (one, two))
    assert fast < 0.95 * slow


def test_requests_of_a_dead_server_go_on_where_their_robots_stand() -> None:
    made = trace(2, rate=0.0)
    dead = run(made, (FAST, FAST), "first", DIES_S)
    before = run(made, (FAST, FAST), "first")
    changed = [
        (old, new)
        for old, new in zip(before.outcomes, dead.outcomes, strict=True)
        if old.segments != new.segments
    ]
    assert changed
    for old, new in changed:
        kept = [one for one in old.segments if one.received_s < DIES_S]
        assert list(new.segments[: len(kept)]) == kept, "what came is not executed again"
        late = [one for one in new.segments[len(kept) :] if new.work.arrival_s < DIES_S]
        assert all(one.received_s > DIES_S + SILENT_S for one in late)


def test_an_answer_goes_on_after_its_last_token() -> None:
    made = run(trace(1, rate=2.0), (FAST, FAST), "first", DIES_S)
    gaps = [talk.largest_gap_s for talk in made.conversations]
    assert max(gaps) > SILENT_S, "some were cut off"
    assert all(list(talk.times_s) == sorted(talk.times_s) for talk in made.conversations)


@pytest.mark.extended
def test_requests_that_have_not_begun_leave_a_long_queue() -> None:
    made = replace(trace(12, rate=0.0), conversations=())
    stay, move = (run(made, (SLOW, FAST), "first", moves=moves) for moves in (False, True))
    waits = [sum(one.response_s for one in each.outcomes) for each in (stay, move)]
    assert waits[1] < 0.9 * waits[0]


def test_without_a_server_the_run_says_what_is_left() -> None:
    with pytest.raises(SimulationError, match="requests are left, and nothing will ever happen"):
        run(trace(1), (FAST,), dies_s=DIES_S)
