"""A skill set that is read in another process is the same, or refused in one sentence."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from test.skills.plans import DRONE
from timely_llm.core.errors import SkillSetError
from timely_llm.resources import resource
from timely_llm.serving.server import registration
from timely_llm.serving.server.registration import read_apart
from timely_llm.skills.checkers import make_checker

RULES = """
name: cart
language: regex
prompt: You control a cart.
rules: ['stop;', 'go \\w+;']
"""


def test_it_is_the_same_skill_set() -> None:
    assert read_apart(resource("config/skill_sets/drone.yaml").read_text()) == DRONE
    cart = read_apart(RULES)
    assert [piece.text for piece in make_checker(cart).feed("go home;stop;")] == [
        "go home;", "stop;",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x" * 300_000, "cart.yaml has 300000 characters, at most 262144 are allowed"),
        ("name: \ud800", r"cart.yaml holds '\\ud800' at place 6, which is no character: allowed"),
        ("[" * 100_000, "cart.yaml is nested more than 16 levels deep, the most allowed"),
        ("name: cart", r"cart.yaml: line 1: the field .prompt. is missing"),
    ],
)
def test_what_is_wrong_is_one_sentence(text: str, words: str) -> None:
    with pytest.raises(SkillSetError, match=words):
        read_apart(text, "cart.yaml")


HUNGRY = {
    "memory": "held = bytearray(1 << 40)",
    "time": "while True: pass",
    "a crash": "import os; os.abort()",
}


@pytest.mark.parametrize("hunger", HUNGRY)
def test_a_text_that_takes_all_there_is_ends_only_its_reader(
    hunger: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a text is not known; so a reader is made that behaves as if it had one."""
    code = (
        "import timely_llm.serving.server.reader_child as child\n"
        "import timely_llm.skills.skill_set as read\n"
        f"def greedy(text, source):\n    {HUNGRY[hunger]}\n"
        "read.parse_skill_set, child.CPU_S = greedy, 1\nimport os; child.main(os.getppid())\n"
    )
    run = subprocess.run

    def instead(command: list[str], **options: Any) -> Any:
        return run([sys.executable, "-c", code], **options)

    monkeypatch.setattr(subprocess, "run", instead)
    with pytest.raises(SkillSetError, match=r"needs (more than 256 MiB|too much time or memory)"):
        read_apart(RULES)


def test_a_reader_that_does_not_come_back_or_cannot_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "READ_S", 0.0)
    late = "could not be read within 0 s: make it simpler, or let the machine do less meanwhile"
    with pytest.raises(SkillSetError, match=late):
        read_apart(RULES)
    monkeypatch.setattr(sys, "executable", os.devnull)
    with pytest.raises(SkillSetError, match="cannot be read: Permission denied: try later"):
        read_apart(RULES)
