"""The corpus of the embedded model: repeatable, divided cleanly, and always right."""

from __future__ import annotations

import hashlib
import re
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from timely_llm.robots.tasks import load_task_set
from timely_llm.skills.minispec.checker import check_plan
from timely_llm.skills.skill_set import load_skill_set
from tools.tiny_planner import corpus
from tools.tiny_planner.answers import own_words
from tools.tiny_planner.arm_tasks import HANDS, STEPS
from tools.tiny_planner.arm_words import KINDS
from tools.tiny_planner.plans import plan_problem
from tools.tiny_planner.retry_tasks import ARM_BASES, DRONE_BASES, segments
from tools.tiny_planner.words import ADJECTIVES, NOUNS

CONFIG = Path(__file__).parents[2] / "config"
SKILLS = {
    robot: load_skill_set(CONFIG / "skill_sets" / f"{robot}.yaml") for robot in ("drone", "arm")
}


@pytest.mark.parametrize("version", corpus.WEIGHTS)
def test_a_seed_draws_the_same_samples_again(version: int) -> None:
    def first(seed: int) -> list[corpus.Sample]:
        return list(islice(corpus.stream(seed, version=version), 200))

    assert first(3) == first(3)
    assert first(3) != first(4)


@pytest.mark.parametrize(
    ("version", "digest"),
    [(1, "7cad56faf9104b53"), (2, "d4c3ed8354c22d3e")],
)
def test_what_trained_the_model_is_still_drawn(version: int, digest: str) -> None:
    drawn = hashlib.blake2b(digest_size=8)
    for one in islice(corpus.stream(1, version=version), 2000):
        drawn.update(one.prompt_hash)
    assert drawn.hexdigest() == digest


@pytest.mark.parametrize("family", [*corpus.FAMILIES, corpus.CHAT])
def test_splits_share_no_key_and_no_prompt(family: str) -> None:
    rng = Random(5)
    train = [corpus.sample(rng, "train", family) for _ in range(2000)]
    test = [corpus.sample(rng, "test", family) for _ in range(200)]
    assert not {one.key for one in train} & {one.key for one in test}
    assert not {one.prompt for one in train} & {one.prompt for one in test}


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("family", corpus.FAMILIES)
def test_every_plan_is_valid_and_the_only_answer(family: str, split: corpus.Split) -> None:
    rng = Random(6)
    answers: dict[str, str] = {}
    for _ in range(600):
        one = corpus.sample(rng, split, family)
        assert plan_problem(own_words(one.answer), SKILLS[one.robot]) is None, one
        assert answers.setdefault(one.prompt, one.answer) == one.answer


@pytest.mark.parametrize(
    ("plan", "problem"),
    [
        ("mf(5);->True;", "distance must be 10 to 500 cm"),
        ("mf(50)->True;", "expected ';'"),
        ("mf(50);", "does not end with a return"),
        ("hop(50);->True;", "unknown skill 'hop'"),
        ("->True;tp();", "goes on after its return"),
    ],
)
def test_a_wrong_plan_has_a_problem(plan: str, problem: str) -> None:
    assert problem in (plan_problem(plan, SKILLS["drone"]) or "")


@pytest.mark.parametrize("family", [*DRONE_BASES, *ARM_BASES])
def test_segments_of_plans_are_those_of_the_server(family: str) -> None:
    rng = Random(7)
    for _ in range(200):
        one = corpus.sample(rng, "train", family)
        plan = own_words(one.answer)
        assert segments(plan) == [piece.text for piece in check_plan(SKILLS[one.robot], plan)]


@pytest.mark.parametrize("family", ["retry", "arm_retry"])
def test_a_recovery_begins_with_a_safe_move_and_goes_on_where_it_failed(family: str) -> None:
    rng = Random(8)
    for _ in range(500):
        one = corpus.sample(rng, "train", family)
        task, again = one.user.split("\n[E] You provided me with plan ")
        plan, rest = again.split(", but I failed because ")
        done = rest.split(". Execution history: ")[1].replace("nothing", "")
        assert task.startswith("Scene: [")
        safe, *left = segments(one.answer)
        assert safe in ("mb(30);", "mu(50);") if family == "retry" else safe == "open();"
        first_failure = not plan.startswith(("mb(30);", "mu(50);"))
        if first_failure and one.told in ("move", "visit"):
            assert (done + "".join(left)).startswith(plan), one


def test_a_repeated_task_is_in_the_split_of_the_task() -> None:
    rng = Random(11)
    for family in ("retry", "arm_retry"):
        one = corpus.sample(rng, "test", family)
        assert one.told in (*DRONE_BASES, *ARM_BASES)
        assert one.key == (one.told, one.objects, one.numbers)
        assert corpus.split_of(one.key) == "test"


def test_a_look_is_needed_where_the_scene_lists_nothing_loose() -> None:
    rng = Random(9)
    for _ in range(300):
        one = corpus.sample(rng, "train", "arm_clean")
        scene = one.user.split("]")[0].removeprefix("Scene: [").split(", ")
        loose = [name for name in scene if name and name not in one.objects[:2]]
        assert one.answer.startswith("look();=> ") != bool(loose), one


def test_the_task_set_of_the_arm_has_only_wordings_of_the_corpus() -> None:
    names = "|".join((*NOUNS, *(noun for nouns in KINDS.values() for noun in nouns)))
    name = re.compile(rf"\b(?:(?:{'|'.join(ADJECTIVES)}) )?(?:{names})\b")
    rng = Random(10)
    known = {
        name.sub("*", corpus.sample(rng, "train", family).user.split("] ")[-1]).rstrip(".")
        for family in corpus.ARM_FAMILIES
        for _ in range(6000)
    }
    steps = {form.replace("{}", "*") for form in (*HANDS, *(f for s in STEPS.values() for f in s))}
    tasks = load_task_set(CONFIG / "tasks" / "arm.yaml")
    for text in (*tasks.normal, *tasks.urgent):
        filled = text.format(**{word: values[0] for word, values in tasks.words.items()})
        masked = name.sub("*", filled).rstrip(".")
        told = {step[0].lower() + step[1:] for step in re.split(", | and ", masked)}
        assert masked in known or told <= steps, text
