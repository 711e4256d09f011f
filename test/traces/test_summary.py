from __future__ import annotations

import dataclasses
import json

from test.traces.workloads import SMALL
from timely_llm.core.time_utility import TimeUtility
from timely_llm.traces.model import Trace
from timely_llm.traces.summary import bursts, summary


def test_a_summary_says_what_is_in_a_trace() -> None:
    found = json.loads(json.dumps(summary(SMALL), allow_nan=False))
    assert (found["jobs"], found["conversations"], found["agents"]) == (2, 1, 3)
    assert (found["robots"], found["people"]) == ({"drone": 2}, 1)
    assert (found["bursts"], found["largest_burst"]) == (1, 2)
    assert (found["first_s"], found["last_s"]) == (0.05, 0.101)
    cat, dog = found["tasks"]
    assert (cat["task"], cat["segments"], cat["tokens"], cat["urgent"]) == ("1", 3, 13, 0)
    assert (dog["execution_s"], dog["urgent"]) == (None, 1)
    assert [(u["beta"], u["zero_s"], u["jobs"]) for u in found["time_utilities"]] == [
        (1.0, 1.5, 1),
        (2.0, 0.5, 1),
    ]
    assert found["talks"]["output_tokens"] == {"least": 400, "median": 400, "most": 400}
    assert found["talks"]["with_deadline"] == 1


def test_an_empty_trace_and_a_worth_that_never_falls_have_a_summary() -> None:
    found = summary(Trace("nothing"))
    assert (found["span_s"], found["tasks"], found["talks"]) == (0.0, [], None)
    patient = dataclasses.replace(SMALL.jobs[0], time_utility=TimeUtility(alpha=0.0))
    assert summary(Trace("", "", (patient,)))["time_utilities"][0]["zero_s"] is None


def test_a_burst_ends_where_nothing_comes_for_a_while() -> None:
    times = (1.0, 1.001, 1.002, 1.1, 1.109)
    jobs = [
        dataclasses.replace(SMALL.jobs[0], id=str(n), arrival_s=time)
        for n, time in enumerate(times)
    ]
    assert [len(burst) for burst in bursts(jobs)] == [3, 2]
