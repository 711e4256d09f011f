"""The reasons of step plans in the event log of the serving loop."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from typing import Any, NoReturn

import pytest

from test.serving.scripted import DRONE, FIND, PROFILE, PublishingLoop, Recorder, Scene, request
from test.serving.test_limits import Halting
from test.serving.test_streams import ask
from timely_llm.core.clock import VirtualClock
from timely_llm.core.events.decisions import decisions_by_request
from timely_llm.core.events.log import MemoryEventLog
from timely_llm.core.events.schema import SegmentEvent, StepEvent, StepPlanEvent
from timely_llm.core.generation import Generation
from timely_llm.core.reason import Cause, Reason
from timely_llm.core.step import Capacity, SequenceProgress, StepPlan
from timely_llm.engines.sequences import EngineLimits
from timely_llm.engines.simulated import PROFILES, SimulatedEngine
from timely_llm.policies.contract import Policy
from timely_llm.policies.fcfs import Stream
from timely_llm.policies.registry import POLICIES, make_policy
from timely_llm.policies.step_time import StepTime


def serve(
    policy: Policy, *, explain: bool, in_flight: int = 1
) -> tuple[PublishingLoop, MemoryEventLog]:
    """Serve three requests to their end; return the loop and its event log."""
    clock, log = VirtualClock(), MemoryEventLog()
    engine = SimulatedEngine(
        PROFILES["rtx4090-llama3-8b"], lambda key, prompt: FIND, clock, EngineLimits(), in_flight
    )
    loop = PublishingLoop(engine, policy, Recorder(), clock, event_log=log, explain=explain)
    loop.register(DRONE)
    for name in "abc":
        loop.admit(request(name))
    for _ in range(1000):
        turn = loop.turn()
        if not loop.generations:
            break
        if not turn.stepped:
            clock.advance(max(turn.wake_s - clock.now(), 0.0))
    assert not loop.generations
    return loop, log


@pytest.mark.parametrize("in_flight", [1, 2])
@pytest.mark.parametrize("name", POLICIES)
def test_reasons_reach_the_event_log_and_change_nothing_else(name: str, in_flight: int) -> None:
    _, silent = serve(make_policy(name), explain=False, in_flight=in_flight)
    _, log = serve(make_policy(name), explain=True, in_flight=in_flight)
    assert not any(isinstance(event, StepPlanEvent) for event in silent.events)
    assert [e for e in log.events if not isinstance(e, StepPlanEvent)] == silent.events
    spans = decisions_by_request(log.events)
    assert sorted(spans) == ["a", "b", "c"]
    for mine in spans.values():
        assert any(span.cause.joined for span in mine)


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_that_is_not_asked_makes_no_reason(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*args: object) -> NoReturn:
        raise AssertionError("a reason was made")

    holders = [
        module
        for path, module in sys.modules.items()
        if path.startswith("timely_llm.policies") and hasattr(module, "Reason")
    ]
    assert len(holders) > 8
    for module in holders:
        monkeypatch.setattr(module, "Reason", refused)
    serve(make_policy(name), explain=False)
    with pytest.raises(AssertionError, match="a reason was made"):
        serve(make_policy(name), explain=True)


def test_what_joined_is_what_the_engine_computed() -> None:
    _, log = serve(make_policy("timely"), explain=True)
    joined: list[str] = []
    for event in log.events:
        if isinstance(event, StepPlanEvent):
            joined = [key for key, reason in event.why if reason.cause.joined]
        elif isinstance(event, StepEvent):
            assert sorted(event.ids) == sorted(joined)


class Counting(SimulatedEngine):
    """Remembers which sequences were in each step."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.submitted: list[list[str]] = []

    def submit(self, plan: StepPlan) -> Mapping[str, SequenceProgress]:
        self.submitted.append(sorted(plan.keys))
        return super().submit(plan)


def counted(
    policy: Policy, says: str, in_flight: int, limits: EngineLimits
) -> tuple[PublishingLoop, Counting, MemoryEventLog]:
    """Return a loop that explains, its engine with several steps in flight, and its event log."""
    clock, log = VirtualClock(), MemoryEventLog()
    engine = Counting(PROFILE, lambda key, prompt: says, clock, limits, in_flight, True)
    loop = PublishingLoop(engine, policy, Recorder(), clock, event_log=log, explain=True)
    loop.register(DRONE)
    return loop, engine, log


def joined(log: MemoryEventLog) -> list[list[str]]:
    """Return the sequences that joined by each plan that has some."""
    plans = [event.why for event in log.events if isinstance(event, StepPlanEvent)]
    keys = [sorted(key for key, reason in why if reason.cause.joined) for why in plans]
    return [one for one in keys if one]


def test_a_plan_that_gave_way_to_a_deferred_segment_says_of_no_request_that_it_joined() -> None:
    policy = Halting()
    loop, engine, log = counted(policy, 6 * "tp();" + "->True;", 12, EngineLimits())
    loop.admit(request("a", closed_loop=False))
    while not any(isinstance(event, SegmentEvent) for event in log.events):
        loop.turn()
    policy.halted = True
    while loop.turn().stepped:
        pass
    assert loop.generations[0].deferred_ids
    policy.halted = False
    while loop.generations:
        loop.turn()
    assert joined(log) == engine.submitted


def test_a_plan_that_gave_way_to_a_step_in_flight_says_of_no_request_that_it_joined() -> None:
    limits = EngineLimits(kv_tokens=Scene({}).prefix_tokens + 60)
    loop, engine, log = counted(Stream(), "x" * 80, 2, limits)
    for key in "rs":
        loop.admit(ask(key, conversation=key))
    while loop.generations:
        loop.turn()
    assert loop.stats.evictions > 0
    assert joined(log) == engine.submitted


def test_a_draining_server_explains_its_plans_too() -> None:
    clock, log = VirtualClock(), MemoryEventLog()
    engine = SimulatedEngine(
        PROFILES["rtx4090-llama3-8b"], lambda key, prompt: FIND, clock, EngineLimits()
    )
    loop = PublishingLoop(
        engine, make_policy("timely"), Recorder(), clock, event_log=log, explain=True
    )
    loop.register(DRONE)
    loop.admit(request("a"))
    loop.drain(True)
    loop.turn()
    (plan,) = [event for event in log.events if isinstance(event, StepPlanEvent)]
    assert plan.why == (("a", Reason(Cause.ARRIVAL, 0.0)),)


def test_a_policy_that_gives_no_reasons_is_served_all_the_same() -> None:
    class Mine:
        whole_plans = False

        def plan(
            self,
            now: float,
            generations: Collection[Generation],
            step_time: StepTime,
            capacity: Capacity,
        ) -> StepPlan:
            return StepPlan(tuple((g.key, g.to_compute) for g in generations))

    _, log = serve(Mine(), explain=True)
    assert not any(isinstance(event, StepPlanEvent) for event in log.events)


def test_the_engine_never_gets_reasons() -> None:
    class Watched(SimulatedEngine):
        def submit(self, plan: StepPlan) -> Mapping[str, SequenceProgress]:
            assert plan.reasons == ()
            return super().submit(plan)

    def engine(*args: Any) -> SimulatedEngine:
        return Watched(*args)

    policy = make_policy("timely")
    policy.explain = True  # type: ignore[attr-defined]
    scene = Scene({"r": FIND}, policy, engine=engine)
    scene.loop.admit(request("r"))
    scene.run()
