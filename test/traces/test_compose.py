"""Workloads are composed as a recipe says, the same for the same seed."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from pydantic import ValidationError

from test.traces.test_tasks import LRTRACE, SKILL_SETS, STORIES
from timely_llm.traces.compose import PLANNING_S, compose
from timely_llm.traces.model import Trace, TraceError
from timely_llm.traces.recipes import Recipe, presets
from timely_llm.traces.summary import bursts

DRONES: dict[str, Any] = {"tasks": "1-8", "agents": {"drone": 25}, "duration_s": 1000.0}


def made(**values: Any) -> Trace:
    recipe = Recipe(**values)
    return compose(recipe, LRTRACE, SKILL_SETS, STORIES)


@pytest.mark.parametrize("name", presets())
def test_a_preset_is_the_same_for_the_same_seed(name: str) -> None:
    recipe = presets()[name]
    first, second, other = (
        compose(recipe.model_copy(update={"seed": s}), LRTRACE, SKILL_SETS, STORIES)
        for s in (1, 1, 2)
    )
    assert first == second
    assert other.jobs + other.conversations != first.jobs + first.conversations


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kinds", "agents", "most", "rate", "duration_s"),
    [
        ("wid1", range(1, 9), 25, 8, 0.25, 260),
        ("wid2", range(1, 9), 42, 16, 0.25, 300),
        ("wid3", range(9, 12), 40, 8, 0.1, 900),
    ],
)
def test_the_papers_workloads_are_as_in_table_3(
    name: str, kinds: range, agents: int, most: int, rate: float, duration_s: float
) -> None:
    traces = [
        compose(presets()[name].model_copy(update={"seed": s}), LRTRACE, SKILL_SETS)
        for s in range(8)
    ]
    for trace in traces:
        assert {job.task for job in trace.jobs} == {str(kind) for kind in kinds}
        assert len(trace.agents) <= agents
        assert trace.jobs[-1].arrival_s <= duration_s + most * 0.001
    events = sum(len(bursts(trace.jobs)) for trace in traces)
    assert events == pytest.approx(8 * rate * duration_s, rel=0.15)


def test_a_robot_is_asked_again_when_its_task_would_be_executed() -> None:
    for name in ("wid2", "wid3"):
        free: dict[str, float] = defaultdict(float)
        for job in compose(presets()[name], LRTRACE, SKILL_SETS).jobs:
            assert job.arrival_s >= free[job.agent]
            free[job.agent] = job.arrival_s + sum(t.seconds for t in job.skill_times) + PLANNING_S


def test_tasks_for_which_no_robot_is_free_are_left_out_and_counted() -> None:
    trace = made(**DRONES | {"agents": {"drone": 2}, "events_per_s": 1.0})
    assert trace.agents == {"drone_0", "drone_1"}
    assert "tasks left out since all were busy" in trace.source


def test_the_agent_that_was_free_for_the_longest_time_is_asked_first() -> None:
    trace = made(groups="{(1, 3), 2, 2, 2}", agents={"drone": 9}, events_per_s=0.01)
    assert [job.agent for job in trace.jobs] == [
        "drone_0", "drone_1", "drone_1", "drone_0", "drone_1",
    ]  # fmt: skip


def test_groups_come_together_and_after_another() -> None:
    trace = made(groups="{(1,2), 8, 9}", agents={"drone": 5, "arm": 5})
    assert [[job.task for job in event] for event in bursts(trace.jobs)] == [
        ["1", "2"],
        ["8"],
        ["9"],
    ]
    first, second, *_ = trace.jobs
    assert first.agent != second.agent
    again = made(groups="{(1,2), 8}", agents={"drone": 20}, events=5, events_per_s=0.1)
    assert [job.task for job in again.jobs] == ["1", "2", "8", "1", "2", "8", "1", "2"]


def test_groups_wait_until_robots_are_free() -> None:
    trace = made(groups="{(1, 5)}", agents={"drone": 2}, events=10, events_per_s=100.0)
    assert [job.task for job in trace.jobs] == ["1", "5"] * 10
    assert "left out" not in trace.source
    gaps = [
        b[0].arrival_s - a[0].arrival_s
        for a, b in zip(*[bursts(trace.jobs)[n:] for n in (0, 1)], strict=False)
    ]
    assert min(gaps) > PLANNING_S


@pytest.mark.parametrize("share", [0.0, 0.7, 1.0])
def test_the_urgent_share_is_as_asked(share: float) -> None:
    trace = made(**DRONES | {"urgent_share": share, "duration_s": 3000.0})
    urgent = sum(job.urgent for job in trace.jobs) / len(trace.jobs)
    assert urgent == pytest.approx(share, abs=0.04)


def test_durations_of_events_do_not_depend_on_what_is_asked() -> None:
    times = [
        [event[0].arrival_s for event in bursts(made(**DRONES, max_tasks=1, **more).jobs)]
        for more in ({}, {"urgent_share": 1.0})
    ]
    assert times[0] == times[1]


def test_people_talk_one_story_at_a_time() -> None:
    trace = made(talks_per_s=1.0, people=10, duration_s=300.0)
    assert len({talk.agent for talk in trace.conversations}) == 10
    assert "conversations left out since all were busy" in trace.source
    assert all(talk.text and talk.output_tokens >= 40 for talk in trace.conversations)


def test_a_mixed_workload_has_robots_and_people() -> None:
    trace = compose(presets()["mixed"], LRTRACE, SKILL_SETS, STORIES)
    assert {agent.split("_")[0] for agent in trace.agents} == {"drone", "arm", "person"}


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({}, "there are no requests: give tasks, groups or talks_per_s"),
        ({"tasks": "1", "groups": "{1}"}, "give one of them, not both"),
        ({"tasks": "1"}, "duration_s is needed"),
        ({"talks_per_s": 1.0, "people": 1}, "duration_s is needed"),
        ({"talks_per_s": 1.0, "duration_s": 9}, "talks_per_s needs people"),
        ({"groups": "{1}", "urgent_share": 0.5}, "urgent_share needs tasks to draw from"),
        ({"tasks": "1", "duration_s": 9, "events_per_s": 0}, "events_per_s must be above 0"),
        ({"tasks": "1", "duration_s": float("inf")}, "duration_s"),
    ],
)
def test_a_recipe_that_makes_no_workload_is_refused(values: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        Recipe(**values)


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        (DRONES | {"tasks": "1-12"}, "there is no task 12: choose of 1, 2"),
        (DRONES | {"tasks": "9"}, "9 at once: 1 agents of arm are needed, there are 0"),
        ({"groups": "{(1, 1)}", "agents": {"drone": 1}}, "2 agents of drone are needed"),
        (DRONES | {"tasks": "1-5", "urgent_share": 0.5}, "an urgent share needs tasks that are"),
        (DRONES | {"tasks": "1-8,"}, "'' is not a task"),
        (DRONES | {"events_per_s": 9999.0}, "this would be more than 200000 tasks"),
    ],
)
def test_what_cannot_be_composed_gets_one_sentence(values: dict[str, Any], complaint: str) -> None:
    with pytest.raises(TraceError, match=complaint):
        made(**values)
