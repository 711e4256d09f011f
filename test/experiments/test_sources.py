from pathlib import Path
from typing import Any

import pytest

from test.experiments.workloads import job, trace
from test.traces.lrtrace_files import arms, drones, write
from timely_llm.experiments.contract import ExperimentError
from timely_llm.experiments.recorded.replay_script import request_of, script
from timely_llm.experiments.registry import experiment
from timely_llm.experiments.sources import composed, given, shipped_skill_sets
from timely_llm.traces.files import write_trace
from timely_llm.traces.imported.lrtrace import read_lrtrace
from timely_llm.traces.model import Conversation, Trace, TraceError


def test_each_seed_has_its_own_arrivals_of_the_same_recipe() -> None:
    one, other = composed("wid1", 0), composed("wid1", 1)
    assert one == composed("wid1", 0)
    assert one.name == other.name == "wid1"
    assert one.source.startswith("preset wid1, seed 0")
    assert [j.arrival_s for j in one.jobs] != [j.arrival_s for j in other.jobs]
    assert {j.task for j in one.jobs} <= {str(task) for task in range(1, 9)}
    assert one.jobs[-1].arrival_s <= 261.0
    assert len(one.agents) <= 25


def test_a_workload_of_an_hour_begins_like_a_short_one() -> None:
    usual, long = composed("wid1", 0), composed("wid1", 0, 60.0)
    assert 3500.0 < long.jobs[-1].arrival_s <= 3601.0
    assert [job.arrival_s for job in long.jobs[:20]] == [job.arrival_s for job in usual.jobs[:20]]
    with pytest.raises(
        ExperimentError, match=r"0.1 minutes of wid1 have \d+ jobs, and the first 10"
    ):
        composed("wid1", 0, 0.1)


def test_robots_that_come_with_the_package_are_known() -> None:
    assert {"drone", "arm"} <= shipped_skill_sets().keys()


def test_an_unknown_preset_is_a_mistake() -> None:
    with pytest.raises(ExperimentError, match="unknown preset 'wid9': choose one of wid1"):
        composed("wid9", 0)


def test_a_trace_must_have_something_that_counts(tmp_path: Path) -> None:
    for name, content, complaint in (
        ("empty", trace(), "is empty: an experiment needs requests"),
        ("few", trace(*(job(f"j{i}") for i in range(10))), "has 10 jobs, and the first 10 do not"),
    ):
        file = tmp_path / f"{name}.jsonl"
        write_trace(content, file)
        with pytest.raises(ExperimentError, match=complaint):
            given(file)
    enough = trace(*(job(f"j{i}") for i in range(11)))
    write_trace(enough, tmp_path / "enough.jsonl")
    assert given(tmp_path / "enough.jsonl").jobs == enough.jobs
    with pytest.raises(TraceError):
        given(tmp_path / "none.jsonl")


def test_conversations_alone_are_enough(tmp_path: Path) -> None:
    talks = Trace("talks", "", (), (Conversation("t", 0.0, "person", 10, 10),))
    for path in (tmp_path / "talks.jsonl", tmp_path / "talks"):
        write_trace(talks, path)
        assert given(path).conversations == talks.conversations


@pytest.mark.parametrize(
    ("name", "entries", "robot"),
    [("timelyllm-drone", drones(15), "drone"), ("timelyllm-arm", arms(15), "arm")],
)
def test_published_traces_are_served_with_their_own_robots(
    tmp_path: Path, name: str, entries: list[dict[str, Any]], robot: str
) -> None:
    trace = read_lrtrace(write(tmp_path, entries))
    file = tmp_path / "lr.jsonl"
    write_trace(trace, file)
    assert {job.skill_set for job in given(file).jobs} == {robot}
    chosen = experiment(name)
    options = chosen.options(trace=file, policies=("timely",), loads=(1,), seeds=1, jobs=1)
    run = chosen.run(options, lambda done, total: None)
    assert run.setup["robots"] == {"drone": "5 drone", "arm": "15 arm"}[robot]
    tasks = {str(entry["trace_id"]) for entry in entries[10:]}  # the first 10 do not count
    rows = run.task_rows or run.rows
    assert {row["task"] for row in rows} - {"all"} == tasks
    assert all(row["share_served"] == 1.0 for row in rows)
    segments = {len(job.segment_tokens) for job in trace.jobs}
    assert max(segments) == (13 if robot == "arm" else 4)


def test_a_trace_that_was_not_imported_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="imported first, by `timely-llm trace import`"):
        given(write(tmp_path, drones()))


def test_imported_arms_are_asked_as_arms_of_a_running_server(tmp_path: Path) -> None:
    trace = read_lrtrace(write(tmp_path, arms(6)))
    asked = script(trace, shipped_skill_sets(), load=2, speed=1.0, limit=100)
    assert {job.skill_set for job in asked.trace.jobs} == {"arm"}
    assert len(asked.trace.agents) == 12
    assert not asked.left_out
    request = request_of(asked.trace.jobs[0])
    assert (request.skill_set, request.task) == ("arm", "Scene: [cup], Task: [A] Move the cup.")


def test_arms_have_an_experiment_with_a_real_engine() -> None:
    options = experiment("timelyllm-arm").options(engine="transformers", seconds=6.0)
    assert (options.engine, options.loads, options.seeds) == ("transformers", (1,), 1)
    assert "timely" in options.policies
