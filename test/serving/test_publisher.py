"""The events of a loop: in order, before the next step begins, and none is lost."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from test.serving.scripted import DRONE, FIND, PROFILE, Recorder, Scene, request
from test.serving.test_limits import Halting
from timely_llm.core.clock import VirtualClock
from timely_llm.core.events.log import MemoryEventLog
from timely_llm.core.events.run_event import RunEvent
from timely_llm.core.events.schema import (
    ChunkEvent,
    EndEvent,
    PlanRequestEvent,
    SegmentEvent,
    StepEvent,
    StreamEvent,
)
from timely_llm.core.request import ChatMessage, ErrorCode, StreamChunk, StreamRequest
from timely_llm.core.segment import Segment
from timely_llm.engines.sequences import EngineLimits
from timely_llm.engines.simulated import SimulatedEngine
from timely_llm.policies.contract import Policy
from timely_llm.policies.registry import POLICIES, make_policy
from timely_llm.policies.timely import Timely
from timely_llm.serving.loop import Loop
from timely_llm.serving.publisher import EventPublisher

PLAN = "tc(180);mf(120);->True;"


class Bare:
    """A loop without a publisher; answers all requests with the same text."""

    def __init__(self, policy: Policy | None = None, in_flight: int = 1, says: str = PLAN) -> None:
        self.clock = VirtualClock()
        self.engine = SimulatedEngine(
            PROFILE, lambda key, prompt: says, self.clock, EngineLimits(), in_flight, in_flight > 1
        )
        self.loop = Loop(self.engine, policy or Timely(), self.clock)
        self.loop.register(DRONE)
        self.loop.take_events()

    def turns(self) -> list[Sequence[RunEvent]]:
        """Turn until all requests have ended; return the events of each turn."""
        turns = []
        for _ in range(2000):
            turn = self.loop.turn()
            turns.append(turn.events)
            if not self.loop.generations:
                return turns
            if not turn.stepped and turn.wake_s < math.inf:
                self.clock.advance(max(turn.wake_s - self.clock.now(), 0.0))
        raise AssertionError("requests did not end")


def talk(name: str, conversation: str = "") -> StreamRequest:
    said = (ChatMessage("user", "What is new?"),)
    return StreamRequest(name, f"agent-{name}", said, conversation=conversation)


def test_a_call_leaves_its_events_for_the_next_turn() -> None:
    bare = Bare()
    bare.loop.admit(request("a"))
    bare.loop.admit(talk("b"))
    bare.loop.cancel("a", ErrorCode.CANCELED, "changed its mind")
    turn = bare.loop.turn()
    assert [type(event) for event in turn.events] == [PlanRequestEvent, StreamEvent, EndEvent]
    assert (turn.stepped, turn.wake_s) == (False, bare.clock.now())
    assert bare.loop.take_events() == []


def test_events_are_taken_at_once_if_asked_for() -> None:
    bare = Bare()
    bare.loop.admit(request("a"))
    assert [type(event) for event in bare.loop.take_events()] == [PlanRequestEvent]
    assert bare.loop.turn().stepped


@settings(max_examples=25, deadline=None)
@given(
    name=st.sampled_from(sorted(POLICIES)),
    in_flight=st.sampled_from([1, 2, 3, 9]),
    plans=st.integers(0, 3),
    says=st.sampled_from([PLAN, 6 * "tp();" + "->True;"]),
)
@example(name="timely", in_flight=9, plans=2, says=6 * "tp();" + "->True;")
def test_what_a_step_completed_is_returned_before_the_next_one_begins(
    name: str, in_flight: int, plans: int, says: str
) -> None:
    bare = Bare(make_policy(name), in_flight, says)
    for number in range(plans):
        bare.loop.admit(request(f"p{number}", closed_loop=False))
    bare.loop.admit(talk("t"))
    for events in bare.turns():
        kinds = [type(event) for event in events]
        assert kinds.count(StepEvent) <= 1
        if StepEvent in kinds:  # nothing that is published waited for this step
            before = set(kinds[: kinds.index(StepEvent)])
            assert not before & {SegmentEvent, ChunkEvent, EndEvent}
            step = events[kinds.index(StepEvent)]
            assert isinstance(step, StepEvent)
            for event in events:
                if isinstance(event, SegmentEvent | ChunkEvent):
                    assert event.t >= step.t + step.s - 1e-6


def test_a_deferred_segment_is_returned_before_the_next_step_begins() -> None:
    policy = Halting()
    bare = Bare(policy, in_flight=12, says=6 * "tp();" + "->True;")
    bare.loop.admit(request("a", closed_loop=False))
    while not any(isinstance(event, SegmentEvent) for event in bare.loop.turn().events):
        pass
    policy.halted = True
    while bare.loop.turn().stepped:
        pass
    (generation,) = bare.loop.generations
    assert len(generation.deferred_ids) == 11, "tokens with more than a segment"
    policy.halted = False
    before_s, turn = bare.clock.now(), bare.loop.turn()
    assert [type(event) for event in turn.events] == [SegmentEvent] * 2
    assert (bare.clock.now(), generation.pending_tokens) == (before_s, 0)


def test_a_given_plan_is_returned_before_a_step_of_others() -> None:
    bare = Bare()
    bare.loop.admit(request("slow"))
    bare.loop.take_events()
    bare.loop.admit(request("given", given_plan=PLAN, closed_loop=False))
    bare.loop.take_events()
    before_s = bare.clock.now()
    turn = bare.loop.turn()
    assert [event.id for event in turn.events if isinstance(event, SegmentEvent)] == ["given"]
    assert bare.clock.now() == before_s


def test_a_turn_that_raises_loses_no_event(monkeypatch: pytest.MonkeyPatch) -> None:
    bare = Bare(says="the cat is here")
    bare.loop.admit(talk("a"))
    bare.loop.admit(talk("b"))
    bare.loop.turn()
    step_time, error = bare.loop.step_time, RuntimeError("no")
    whole = type(bare.loop._stepper)._suspend_idle

    def breaks(stepper: object) -> None:
        monkeypatch.setattr(type(bare.loop._stepper), "_suspend_idle", whole)
        bare.loop.cancel("b", ErrorCode.CANCELED, "")
        raise error

    monkeypatch.setattr(type(bare.loop._stepper), "_suspend_idle", breaks)
    with pytest.raises(RuntimeError):
        bare.loop.turn()
    left = bare.loop.turn().events
    assert [event.id for event in left if isinstance(event, EndEvent)] == ["b"]
    assert bare.loop.step_time is step_time


class Refusing(Recorder):
    """A sink that does not take what belongs to one request."""

    def __init__(self, request_id: str, index: int = 0) -> None:
        super().__init__()
        self.request_id = request_id
        self.index = index

    def segment(self, segment: Segment) -> None:
        self._check(segment)
        super().segment(segment)

    def chunk(self, chunk: StreamChunk) -> None:
        self._check(chunk)
        super().chunk(chunk)

    def _check(self, made: Segment | StreamChunk) -> None:
        if made.request_id == self.request_id and made.index >= self.index:
            raise OSError("no space left on device")


@pytest.mark.parametrize("index", [0, 1])
def test_a_segment_that_the_sink_refuses_ends_its_plan_once_and_no_other(index: int) -> None:
    scene = Scene({"a": PLAN, "b": PLAN})
    log, sink = MemoryEventLog(), Refusing("a", index)
    scene.loop.publisher = EventPublisher(scene.loop, sink, log)
    for name in ("a", "b"):
        scene.loop.admit(request(name, closed_loop=False))
    scene.run()
    assert sink.results["a"].error_code is ErrorCode.ENGINE_FAILED
    assert sink.results["a"].error_msg == (
        "its tokens could not be delivered: OSError: no space left on device"
    )
    assert sink.results["b"].error_code is ErrorCode.NONE
    assert "".join(sink.texts("b")) == PLAN
    mine = [event for event in log.events if getattr(event, "id", "") == "a"]
    assert [type(event) for event in mine] == [
        PlanRequestEvent, *[SegmentEvent] * index, EndEvent,
    ]  # fmt: skip
    assert scene.loop.free_kv_tokens == scene.free_at_start


def test_a_final_segment_that_the_sink_refuses_is_an_error_although_the_plan_was_complete() -> None:
    scene = Scene({"a": PLAN})
    sink = Refusing("a")
    scene.loop.publisher = EventPublisher(scene.loop, sink)
    scene.loop.admit(request("a", given_plan="tc(180);->True;", closed_loop=False))
    scene.run()
    assert sink.segments == []
    assert sink.results["a"].error_msg.startswith("its segments could not be delivered: ")
    assert scene.loop.stats.failed == 1
    assert scene.loop.stats.ended == 0


def test_an_answer_that_the_sink_refuses_at_its_end_is_not_kept() -> None:
    scene = Scene({"a": "the cat"})
    sink = Refusing("a", 3)
    scene.loop.publisher = EventPublisher(scene.loop, sink)
    scene.loop.admit(talk("a", "c"))
    scene.run()
    assert sink.answers["a"].error_code is ErrorCode.ENGINE_FAILED
    assert not sink.answers["a"].slo_met
    assert scene.loop.kept_conversations == 0
    assert scene.loop.free_kv_tokens == scene.free_at_start


class Stopping(Recorder):
    """A sink that a request to exit stops while it publishes the first end."""

    def ended(self, result: object) -> None:
        super().ended(result)  # type: ignore[arg-type]
        if len(self.results) == 1:
            raise SystemExit


def test_events_that_an_exception_leaves_come_first_the_next_time() -> None:
    bare, sink, log = Bare(), Stopping(), MemoryEventLog()
    publisher = EventPublisher(bare.loop, sink, log)
    for name in ("a", "b"):
        bare.loop.admit(request(name))
    for name in ("a", "b"):
        bare.loop.cancel(name, ErrorCode.CANCELED, "")
    with pytest.raises(SystemExit):
        publisher.publish(bare.loop.take_events())
    assert list(sink.results) == ["a"]
    publisher.publish(())
    assert list(sink.results) == ["a", "b"]
    assert [event.id for event in log.events if isinstance(event, EndEvent)] == ["a", "b"]


class Waiting(MemoryEventLog):
    """An event log that writes down how many segments the sink had at each event."""

    def __init__(self, sink: Recorder) -> None:
        super().__init__()
        self.sink = sink
        self.segments: list[int] = []

    def write(self, event: RunEvent) -> None:
        super().write(event)
        self.segments.append(len(self.sink.segments))


def test_the_sink_has_the_segments_of_a_step_before_the_event_log_has_the_step() -> None:
    scene = Scene({"a": PLAN})
    log = Waiting(scene.sink)
    scene.loop.publisher = EventPublisher(scene.loop, scene.sink, log)
    scene.loop.admit(request("a", closed_loop=False))
    scene.run()
    first = next(i for i, event in enumerate(log.events) if isinstance(event, SegmentEvent))
    assert isinstance(log.events[first - 1], StepEvent)
    assert log.segments[first - 1] == 1


def test_counts_are_those_of_the_events() -> None:
    scene = Scene({"a": FIND, "b": PLAN, "t": "the cat"})
    log = MemoryEventLog()
    scene.loop.publisher = EventPublisher(scene.loop, scene.sink, log)
    scene.loop.admit(request("b", closed_loop=False))
    scene.loop.admit(talk("t"))
    scene.run()
    stats = scene.loop.stats
    counted = {
        StepEvent: stats.steps, SegmentEvent: stats.segments, ChunkEvent: stats.chunks,
        EndEvent: stats.ended,
    }  # fmt: skip
    assert counted == {kind: sum(isinstance(e, kind) for e in log.events) for kind in counted}
    assert stats.requests == 2
    assert len(scene.sink.steps) == stats.steps
