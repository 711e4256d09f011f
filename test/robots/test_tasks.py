"""What a simulated fleet is asked."""

from itertools import islice, takewhile
from pathlib import Path

import numpy as np
import pytest

from timely_llm.core.segment import SkillCall
from timely_llm.core.time_utility import NORMAL, URGENT
from timely_llm.resources import resource
from timely_llm.robots.tasks import TaskSetError, bursts, load_task_set, placeholders
from timely_llm.skills.skill_set import load_skill_set

DRONE = resource("config/tasks/drone.yaml")


def test_the_shipped_tasks_have_no_unfilled_places() -> None:
    tasks, rng = load_task_set(DRONE), np.random.default_rng(0)
    for urgent in [False, True] * 200:
        task = tasks.draw(urgent, rng)
        assert not placeholders(task.text)
        assert task.text.startswith("Scene: [")
        assert ("[E]" in task.text) == urgent
        assert task.time_utility == (URGENT if urgent else NORMAL)


def test_the_same_seed_draws_the_same_tasks() -> None:
    tasks = load_task_set(DRONE)
    one, other = (
        [tasks.draw(False, rng).text for _ in range(20)]
        for rng in (np.random.default_rng(3), np.random.default_rng(3))
    )
    assert one == other


def test_what_the_scene_names_is_in_view() -> None:
    tasks, rng = load_task_set(DRONE), np.random.default_rng(1)
    for _ in range(100):
        task = tasks.draw(True, rng)
        scene = task.text.split("[")[1].split("]")[0]
        assert all(task.world.sees(name) for name in scene.split(", "))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("skill_set: drone", "the field 'words' is missing"),
        (
            "{skill_set: drone, words: {}, normal: ['Find the {cat}.'], urgent: [x]}",
            r"there are no words for \{cat\}",
        ),
        ("{skill_set: drone, words: {}, normal: [], urgent: [x]}", "normal: must not be empty"),
        ("{", "is not valid YAML"),
    ],
)
def test_a_broken_task_set_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "tasks.yaml"
    path.write_text(text)
    with pytest.raises(TaskSetError, match=message):
        load_task_set(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TaskSetError, match=r"cannot read task set .*: No such file"):
        load_task_set(tmp_path / "none.yaml")


def test_small_things_lie_around_arms_and_only_a_look_names_them() -> None:
    tasks, rng = load_task_set(resource("config/tasks/arm.yaml")), np.random.default_rng(2)
    look = load_skill_set(resource("config/skill_sets/arm.yaml")).skills["look"]
    named = set()
    for _ in range(60):
        task = tasks.draw(False, rng)
        _, value = task.world.do(SkillCall("look"), look, rng, 0.1)
        scene = task.text.split("[")[1].split("]")[0]
        if "Clean" in task.text:
            assert 1 <= len(str(value).split(", ")) <= 3
            assert not set(str(value).split(", ")) & set(scene.split(", "))
            named |= set(str(value).split(", "))
    assert named <= set(tasks.loose) and len(named) > 3


def test_rate_size_and_share_are_those_asked_for() -> None:
    made = list(
        takewhile(lambda b: b.time_s < 4000, bursts(np.random.default_rng(0), 0.5, 8, 0.375))
    )
    assert len(made) == pytest.approx(2000, rel=0.1)
    sizes = [len(b.urgent) for b in made]
    assert min(sizes) == 1
    assert max(sizes) == 8
    share = np.mean([u for b in made for u in b.urgent])
    assert share == pytest.approx(0.375, abs=0.03)


def test_times_only_go_forward() -> None:
    times = [b.time_s for b in islice(bursts(np.random.default_rng(1), 2.0, 3, 0.5), 50)]
    assert times == sorted(times)
