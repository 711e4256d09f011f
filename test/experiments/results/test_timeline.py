from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from test.experiments.workloads import job, trace
from timely_llm.core.events.log import MemoryEventLog
from timely_llm.core.events.schema import EndEvent
from timely_llm.core.time_utility import URGENT
from timely_llm.experiments.results.document import Span, TimelineDocument
from timely_llm.experiments.results.timeline import busiest_window, timeline
from timely_llm.experiments.virtual.outcome import Run
from timely_llm.experiments.virtual.simulation import SimulationSettings, simulate
from timely_llm.policies.contract import Policy
from timely_llm.policies.fcfs import Stream
from timely_llm.policies.timely import Timely
from timely_llm.traces.model import Conversation, Job, Trace

EXACT = SimulationSettings(prediction_error=0.0, skip=0)


def simulated(
    *jobs: Job, policy: Policy | None = None, settings: SimulationSettings = EXACT
) -> tuple[Run, MemoryEventLog]:
    event_log = MemoryEventLog()
    return simulate(trace(*jobs), policy or Stream(), settings, event_log=event_log), event_log


def spans(made: TimelineDocument, kind: str) -> list[Span]:
    return [span for span in made.spans if span.kind == kind]


def test_one_plan_waits_is_generated_and_executed() -> None:
    run, event_log = simulated(job("j", 5.0, tokens=(4, 3, 1), seconds=(2.0, 1.0)))
    made = timeline("one", run, event_log.events)
    (outcome,) = run.outcomes
    assert (made.name, made.requests, made.urgent) == ("one", ("j",), (False,))
    (waiting,) = spans(made, "waiting")
    assert waiting.start_s == 0.0
    assert waiting.end_s == pytest.approx(outcome.response_s, abs=1e-6)
    (generating,) = spans(made, "generating")
    assert generating.label == "8 steps"
    assert [step.requests for step in made.steps] == [(0,)] * 8
    assert generating.end_s == pytest.approx(made.steps[-1].start_s + made.steps[-1].duration_s)
    executing = spans(made, "executing")
    assert [span.end_s - span.start_s for span in executing] == pytest.approx([2.0, 1.0, 0.001])
    assert [span.label for span in executing] == ["mf", "mf", "->True;"]
    assert {span.agent for span in made.spans} == {"agent-j"}


def test_gaps_between_segments_are_waiting() -> None:
    run, event_log = simulated(job("j", tokens=(4, 9), seconds=(0.01,)))
    waits = spans(timeline("", run, event_log.events), "waiting")
    assert len(waits) == 2
    assert sum(span.end_s - span.start_s for span in waits) == pytest.approx(
        run.outcomes[0].waiting_s, abs=1e-5
    )


def test_an_interrupted_generation_is_several_spans() -> None:
    run, event_log = simulated(
        job("a", tokens=(4, 4, 1), seconds=(2.0, 1.0)), job("b", 0.5, utility=URGENT),
        policy=Timely(lead_s=0.2),
    )  # fmt: skip
    made = timeline("", run, event_log.events)
    mine = [span for span in spans(made, "generating") if made.requests[span.request] == "a"]
    assert len(mine) > 1
    steps = sum(int(span.label.split()[0]) for span in mine)
    assert steps == sum(made.requests.index("a") in step.requests for step in made.steps)
    assert made.urgent[made.requests.index("b")]


def test_a_dropped_request_waits_until_its_end() -> None:
    run, event_log = simulated(
        *(job(f"u{i}", utility=URGENT) for i in range(40)),
        policy=Timely(),
        settings=replace(EXACT, drop_late=True),
    )
    made = timeline("", run, event_log.events)
    ends_s = {e.id: e.t for e in event_log.events if isinstance(e, EndEvent)}
    never = [outcome for outcome in run.outcomes if not outcome.served]
    assert never
    for outcome in never:
        (span,) = (s for s in made.spans if made.requests[s.request] == outcome.work.id)
        assert (span.kind, span.start_s) == ("waiting", 0.0)
        assert span.end_s == pytest.approx(ends_s[outcome.work.id], abs=1e-6)


CROWD = simulated(*(job(f"j{i}", i / 3, seconds=(0.5, 0.2)) for i in range(12)), policy=Timely())


@given(start_s=st.floats(-1, 8), length_s=st.floats(0.01, 8))
@example(start_s=4.17e-15, length_s=1.0)
@settings(deadline=None)
def test_a_window_shows_what_happened_in_it_and_nothing_else(
    start_s: float, length_s: float
) -> None:
    run, event_log = CROWD
    window = start_s, start_s + length_s
    made = timeline("", run, event_log.events, window)
    whole = timeline("", run, event_log.events)
    assert all(window[0] - 1e-6 <= s.start_s < s.end_s <= window[1] + 1e-6 for s in made.spans)
    assert {span.request for span in made.spans} == set(range(len(made.requests)))
    inside = [s for s in whole.steps if s.start_s + s.duration_s > window[0]]
    inside = [s for s in inside if s.start_s < window[1]]
    assert [s.start_s for s in made.steps] == [s.start_s for s in inside]
    for cut, step in zip(made.steps, inside, strict=True):
        who = {whole.requests[one] for one in step.requests}
        assert {made.requests[one] for one in cut.requests} == who


def test_spans_of_a_kind_do_not_overlap() -> None:
    made = timeline("", CROWD[0], CROWD[1].events)
    found = defaultdict(list)
    for span in made.spans:
        found[span.request, span.kind].append(span)
    for group in found.values():
        assert all(a.end_s <= b.start_s + 1e-6 for a, b in pairwise(group))


def test_the_busiest_window_begins_where_most_arrive() -> None:
    arrivals = (0.0, 5.0, 5.5, 6.0, 20.0, 20.1, 20.2)
    run, _ = simulated(*(job(f"j{i}", 3.0 + at) for i, at in enumerate(arrivals)))
    assert busiest_window(run, 1.5) == (5.0, 6.5)
    assert busiest_window(run, 100.0) == (0.0, 100.0)


def test_nothing_happens_in_an_empty_run() -> None:
    run = simulate(trace(), Stream(), EXACT)
    assert timeline("none", run, []) == TimelineDocument(name="none")
    assert busiest_window(run, 5.0) == (0.0, 5.0)


def test_people_stand_beside_robots() -> None:
    talks = (
        Conversation("t", 5.5, "ann", 20, 12, tpot_s=0.1),
        Conversation("m", 6.0, "machine", 20, 8, deadline_s=1.5),
    )
    event_log = MemoryEventLog()
    whole = Trace("both", "", (job("j", 5.0),), talks)
    run = simulate(whole, Stream(), EXACT, event_log=event_log)
    made = timeline("", run, event_log.events)
    assert (made.requests, made.urgent) == (("j", "t", "m"), (False, False, True))
    heard, machine = run.conversations
    mine = [span for span in made.spans if made.requests[span.request] == "t"]
    (waiting,) = (s for s in mine if s.kind == "waiting")
    assert (waiting.agent, waiting.start_s) == ("ann", 0.5)
    assert waiting.end_s == pytest.approx(heard.times_s[0] - 5.0, abs=1e-6)
    (listening,) = (s for s in mine if s.kind == "listening")
    # Eight words in 11 tokens and the one that ends them, at 5 words a second.
    assert listening.label == "12 tokens"
    assert listening.end_s - listening.start_s == pytest.approx(8 / 5, abs=0.01)
    steps = sum(int(s.label.split()[0]) for s in mine if s.kind == "generating")
    assert steps == sum(1 in step.requests for step in made.steps) == 12
    theirs = [(s.kind, s.end_s) for s in made.spans if made.requests[s.request] == "m"]
    whole_s = machine.times_s[-1] - 5.0
    assert [end_s for kind, end_s in theirs if kind == "waiting"] == [pytest.approx(whole_s, 1e-5)]
    assert {kind for kind, _ in theirs} == {"generating", "waiting"}
    assert busiest_window(run, 1.0) == (0.0, 1.0)


def test_a_stalled_listener_waits_where_no_word_is_left() -> None:
    slow = replace(EXACT, profile=replace(EXACT.profile, base_s=0.5))
    event_log = MemoryEventLog()
    talk = Conversation("t", 0.0, "ann", 20, 12, tpot_s=0.1)
    run = simulate(Trace("one", "", (), (talk,)), Stream(), slow, event_log=event_log)
    made = timeline("", run, event_log.events)
    stalls = [s for s in made.spans if s.label == "no words left"]
    stalled_s = sum(s.end_s - s.start_s for s in stalls)
    assert stalled_s == pytest.approx(run.conversations[0].stalled_s, abs=1e-4)
    assert stalls and all(s.kind == "waiting" for s in stalls)
