"""The shipped model: its tokenizer, its record, and a plan in two phases."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from timely_llm.skills.skill_set import load_skill_set
from tools.tiny_planner.record import RECORD, earlier_settings, streams_of

transformers = pytest.importorskip("transformers")

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "models" / "tiny_planner"
ARM = load_skill_set(ROOT / "config" / "skill_sets" / "arm.yaml")


def test_every_name_and_number_is_one_token() -> None:
    from tools.tiny_planner.tokenizer import split_words

    assert split_words(transformers.AutoTokenizer.from_pretrained(MODEL)) == []


def test_no_token_goes_on_after_a_semicolon() -> None:
    vocabulary = json.loads((MODEL / "tokenizer.json").read_text(encoding="utf-8"))
    tokens = vocabulary["model"]["vocab"]
    assert [token for token in tokens if ";" in token[:-1]] == []


def test_the_fixed_prompt_of_the_arm_is_short() -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(MODEL)
    assert len(tokenizer(ARM.prompt_text()).input_ids) < 350


def test_the_chat_template_works_with_and_without_a_system_text() -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(MODEL)
    system = {"role": "system", "content": "Be kind."}
    user = {"role": "user", "content": "Hello!"}

    def text(*messages: dict[str, str]) -> str:
        rendered: str = tokenizer.apply_chat_template(
            list(messages), tokenize=False, add_generation_prompt=True
        )
        return rendered

    assert text(user) == "<|user|>Hello!\n<|assistant|>"
    assert text(system, user) == "<|system|>Be kind.<|user|>Hello!\n<|assistant|>"


def test_the_record_names_every_stream_that_trained_the_model() -> None:
    record = json.loads((MODEL / RECORD).read_text(encoding="utf-8"))
    assert [stream["version"] for stream in streams_of(record)] == [1, 2, 6, 6]
    assert [run.get("go_on", "") for run in earlier_settings(record)] == [
        "", "first", "second", "third", "fourth", "fifth", "sixth",
    ]  # fmt: skip


def test_a_record_of_the_first_version_names_one_stream() -> None:
    record = {"seed": 1, "samples": 5, "digest": "ab", "settings": {"a": 1}, "before": {"a": 2}}
    assert streams_of(record) == [{"version": 1, "seed": 1, "samples": 5, "digest": "ab"}]
    assert earlier_settings(record) == [{"a": 2}, {"a": 1}]


def test_the_model_looks_and_goes_on_with_what_the_server_appends() -> None:
    from tools.tiny_planner.planner import Planner

    users = ["Scene: []\nTask: [A] Clean the desk: put everything into the box."] * 2
    seen = [["=> red cup, blue ball\n"], ["=> nothing\n"]]
    assert Planner(MODEL).answers(users, ARM.prompt_text(), seen) == [
        "look();=> red cup, blue ball\n"
        "pick('red cup');place('box');pick('blue ball');place('box');->True;",
        "look();=> nothing\n->True;",
    ]


def test_the_model_names_the_steps_of_a_task_and_plans_them() -> None:
    from timely_llm.progressive.plan import guided_task, steps_question
    from tools.tiny_planner.planner import Planner

    drone = load_skill_set(ROOT / "config" / "skill_sets" / "drone.yaml")
    task = "Scene: [chair, red cup]\nTask: [A] Go to the chair and take a picture. Then rise 40 cm."
    asks = steps_question(task, drone)[0].content
    (sketch,) = Planner(MODEL).answers([task], asks)
    steps = ["find the chair in the scene", "go to the chair", "take a picture", "go up 40 cm"]
    assert sketch.splitlines() == [f"{number}. {step}" for number, step in enumerate(steps, 1)]
    (plan,) = Planner(MODEL).answers([guided_task(task, steps)], drone.prompt_text())
    assert plan == "g('chair');tp();mu(40);->True;"
