"""The corpus of the embedded model: repeatable, divided cleanly, and always right."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from timely_llm.skills.skill_set import load_skill_set
from tools.tiny_planner import corpus
from tools.tiny_planner.plans import plan_problem

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "models" / "tiny_planner"
SKILLS = load_skill_set(ROOT / "config" / "skill_sets" / "drone.yaml")


def test_a_seed_draws_the_same_samples_again() -> None:
    assert list(islice(corpus.stream(3), 200)) == list(islice(corpus.stream(3), 200))
    assert list(islice(corpus.stream(3), 200)) != list(islice(corpus.stream(4), 200))


@pytest.mark.parametrize("family", [*corpus.FAMILIES, corpus.CHAT])
def test_splits_share_no_key_and_no_prompt(family: str) -> None:
    rng = Random(5)
    train = [corpus.sample(rng, "train", family) for _ in range(2000)]
    test = [corpus.sample(rng, "test", family) for _ in range(200)]
    assert not {one.key for one in train} & {one.key for one in test}
    assert not {one.user for one in train} & {one.user for one in test}


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("family", corpus.FAMILIES)
def test_every_plan_is_valid_and_the_only_answer(family: str, split: corpus.Split) -> None:
    rng = Random(6)
    answers: dict[str, str] = {}
    for _ in range(600):
        one = corpus.sample(rng, split, family)
        assert plan_problem(one.answer, SKILLS) is None, one
        assert answers.setdefault(one.user, one.answer) == one.answer


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
    assert problem in (plan_problem(plan, SKILLS) or "")


def test_every_name_and_number_is_one_token_of_the_shipped_tokenizer() -> None:
    transformers = pytest.importorskip("transformers")
    from tools.tiny_planner.tokenizer import split_words

    assert split_words(transformers.AutoTokenizer.from_pretrained(MODEL)) == []


def test_no_token_of_the_shipped_tokenizer_goes_on_after_a_semicolon() -> None:
    vocabulary = json.loads((MODEL / "tokenizer.json").read_text(encoding="utf-8"))
    tokens = vocabulary["model"]["vocab"]
    assert [token for token in tokens if ";" in token[:-1]] == []


def test_the_chat_template_works_with_and_without_a_system_text() -> None:
    transformers = pytest.importorskip("transformers")
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
