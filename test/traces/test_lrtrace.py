from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from timely_llm.core.time_utility import NORMAL, URGENT
from timely_llm.traces.lrtrace import read_lrtrace
from timely_llm.traces.model import SkillTime, TraceError
from timely_llm.traces.summary import bursts

PUBLISHED = Path(__file__).parents[3] / "shared" / "data" / "lrtrace_drone_high.json"

TASKS = [
    {"trace_id": 0, "task_input": "Find it.", "tuf": [1, 1, 1.5]},
    {"trace_id": 6, "task_input": "Watch out!", "tuf": [2, 0.2, 0.5]},
]
JOB = {
    "job_id": 0, "trigger_time": 33.5, "agent_id": 7, "trace_id": 0,
    "exe_time_detail": [["s(", 3.7132], ["g(", 2]],
}  # fmt: skip


def write(folder: Path, jobs: Any, tasks: Any = TASKS) -> Path:
    (folder / "lr.json").write_text(json.dumps({"source": "them", "tasks": tasks, "jobs": jobs}))
    return folder / "lr.json"


def test_jobs_have_what_the_published_trace_says(tmp_path: Path) -> None:
    late = {**JOB, "job_id": 1, "trace_id": 6, "trigger_time": 40, "tuf": [2, 0.2, 0.5]}
    trace = read_lrtrace(write(tmp_path, [late, JOB]))
    first, second = trace.jobs
    assert (trace.name, trace.source) == ("lr", "them")
    assert (first.id, first.arrival_s, first.agent, first.task) == ("0", 33.5, "drone_7", "0")
    assert first.skill_times == (SkillTime("s", 3.7132), SkillTime("g", 2.0))
    assert (first.text, first.segment_tokens) == ("Find it.", (7, 4, 2))
    assert (first.time_utility, second.time_utility) == (NORMAL, URGENT)
    assert second.segment_tokens == (4, 1)


@pytest.mark.skipif(not PUBLISHED.exists(), reason="the published trace is not here")
def test_the_published_trace_has_its_counts() -> None:
    trace = read_lrtrace(PUBLISHED)
    events = bursts(trace.jobs)
    assert (len(trace.jobs), len(trace.agents), len(events)) == (532, 42, 63)
    assert (min(map(len, events)), max(map(len, events))) == (1, 16)
    assert (trace.jobs[0].arrival_s, trace.jobs[-1].arrival_s) == pytest.approx(
        (33.945, 302.948), abs=1e-3
    )
    assert sum(job.urgent for job in trace.jobs) == 211
    assert all(job.segment_tokens and job.skill_times for job in trace.jobs)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"trace_id": 9}, "job 0 is of the task 9, which lacks"),
        ({"trigger_time": -1}, "job 0: 0: arrival_s must be 0 to"),
        ({"trigger_time": "soon"}, r"is no LRTrace: at jobs\.0\.trigger_time: Input should be"),
        ({"tuf": [1, 1, 1]}, "job 0: time utility: zero time 1.0 must come after ert 1.0"),
        ({"exe_time_detail": [["s(", -1]]}, "job 0: s: seconds must be 0 to 86400"),
        ({"exe_time_detail": [["(", 1]]}, "job 0: the name of a skill must have 1 to"),
    ],
)
def test_what_is_no_such_trace_gets_one_sentence(
    tmp_path: Path, change: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(TraceError, match=complaint) as error:
        read_lrtrace(write(tmp_path, [JOB | change]))
    assert "\n" not in str(error.value)


def test_what_is_no_json_gets_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"jobs": [')
    with pytest.raises(TraceError, match="is no LRTrace: at top level: Invalid JSON"):
        read_lrtrace(tmp_path / "a.json")
    with pytest.raises(TraceError, match="No such file"):
        read_lrtrace(tmp_path / "b.json")
