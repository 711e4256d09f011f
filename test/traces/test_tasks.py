"""The tasks and prompts that come with the package, and what is not one."""

from __future__ import annotations

import numpy as np
import pytest

from test.skills.plans import DRONE
from timely_llm.core.documents.read import load_document, read_document
from timely_llm.resources import resource
from timely_llm.skills.checkers import cut
from timely_llm.skills.minispec.checker import check_plan
from timely_llm.skills.skill_set import load_skill_set
from timely_llm.traces.model import TraceError
from timely_llm.traces.tasks import PromptSet, TraceTask, TraceTasks

ARM = load_skill_set(resource("config/skill_sets/arm.yaml"))
SKILL_SETS = {"drone": DRONE, "arm": ARM}
LRTRACE = load_document(
    resource("config/traces/lrtrace_tasks.yaml"), TraceTasks, "task set", TraceError
)
STORIES = load_document(
    resource("config/traces/story_prompts.yaml"), PromptSet, "prompts", TraceError
)
ONE = "tasks: {1: {title: a, skill_set: drone, text: Go., plan: '%s'}}"


def test_there_are_the_eleven_tasks_of_the_paper() -> None:
    LRTRACE.chosen(tuple(LRTRACE.tasks), SKILL_SETS)
    assert list(LRTRACE.tasks) == [str(number) for number in range(1, 12)]
    assert [name for name, task in LRTRACE.tasks.items() if task.urgent] == ["6", "7", "8"]
    assert [name for name, task in LRTRACE.tasks.items() if task.skill_set == "arm"] == [
        "9", "10", "11",
    ]  # fmt: skip


@pytest.mark.parametrize("name", LRTRACE.tasks)
def test_a_plan_has_a_segment_for_each_of_its_tokens(name: str) -> None:
    task = LRTRACE.tasks[name]
    assert len(check_plan(SKILL_SETS[task.skill_set], task.plan)) == len(task.segment_tokens)
    assert all(isinstance(piece, str) or len(piece.calls) <= 1
               for piece in cut(SKILL_SETS[task.skill_set], task.plan))  # fmt: skip
    if task.skill_set == "arm":
        assert 80 <= sum(task.segment_tokens) <= 120


def test_a_robot_executes_the_plan_in_the_task_s_world() -> None:
    rng = np.random.default_rng(0)
    executed = {
        name: task.execute(SKILL_SETS[task.skill_set], rng) for name, task in LRTRACE.tasks.items()
    }
    names = {name: [time.skill for time in times] for name, times in executed.items()}
    assert names["1"] == ["s", "g"]
    assert names["2"] == ["iv", "l", "iv", "l"]
    assert names["3"] == ["mu", "iv", "tp"]
    assert names["8"] == ["mu"]
    assert names["10"] == ["look", *["pick", "place"] * 8, "say"]
    assert executed["6"][1].seconds == pytest.approx(1.8144 + 0.0072 * 60)
    searches = {LRTRACE.tasks["1"].execute(DRONE, rng)[0].seconds for _ in range(100)}
    assert 5 <= len(searches) <= 8
    assert all(time.seconds > 0 for times in executed.values() for time in times)


def test_answers_have_bounded_lengths_around_what_is_typical() -> None:
    rng = np.random.default_rng(0)
    drawn = [STORIES.draw(rng) for _ in range(500)]
    assert {prompt for prompt, _ in drawn} == set(STORIES.prompts)
    assert all(STORIES.least_tokens <= tokens <= STORIES.most_tokens for _, tokens in drawn)
    ratio = np.median([tokens / prompt.tokens for prompt, tokens in drawn])
    assert ratio == pytest.approx(1.0, abs=0.1)
    assert STORIES.prompts[0].prompt_tokens == 19


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("tasks: {}", "line 1: tasks: must not be empty"),
        ("tasks: {a b: {}}", "line 1: tasks.a b: the key must match the pattern"),
        (ONE % "", "line 1: tasks.1.plan: must not be empty"),
        (
            "tasks: {1: {title: a, skill_set: drone, text: Go.}}",
            "line 1: tasks.1: the field 'plan' is missing",
        ),
        (ONE % "tp();" + "\nmore: 1", "line 2: unknown field 'more': "),
    ],
)
def test_a_task_set_that_is_not_valid_gets_one_sentence(text: str, complaint: str) -> None:
    with pytest.raises(TraceError, match=f"tasks: {complaint}"):
        read_document(text, TraceTasks, "tasks", TraceError)


@pytest.mark.parametrize(
    ("plan", "complaint"),
    [
        ("mf(9999);", "task 1: its plan is not valid for drone: .*10 to 500 cm"),
        ("fly", "task 1: its plan"),
    ],
)
def test_a_plan_that_cannot_be_executed_is_named(plan: str, complaint: str) -> None:
    tasks = read_document(ONE % plan, TraceTasks, "tasks", TraceError)
    with pytest.raises(TraceError, match=complaint):
        tasks.chosen(("1",), SKILL_SETS)


def test_tasks_and_skill_sets_that_lack_are_named() -> None:
    with pytest.raises(TraceError, match="there is no task 12: choose of 1, 2, 3"):
        LRTRACE.chosen(("1", "12"), SKILL_SETS)
    with pytest.raises(TraceError, match="task 9 needs the skill set arm, not given"):
        LRTRACE.chosen(("9",), {"drone": DRONE})
    prose = load_skill_set(resource("config/skill_sets/drone.yaml")).model_copy(
        update={"language": "sentence"}
    )
    task = TraceTask(title="a", skill_set="drone", text="Go.", plan="Hello.")
    with pytest.raises(TraceError, match="in the language minispec only, not sentence"):
        TraceTasks(tasks={"1": task}).chosen(("1",), {"drone": prose})
