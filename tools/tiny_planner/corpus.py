"""Synthetic corpus of the embedded language model; every sample is a function of the seed.

A sample's key is its family, objects and numbers. A hash of the key says whether the sample may
train the model ("train") or only measure it ("test"), so no test task is ever in the training.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from tools.tiny_planner import motion_tasks, object_tasks
from tools.tiny_planner.chat_tasks import chat
from tools.tiny_planner.words import NOUNS, Task, draw_names

Split = Literal["train", "test"]
Key = tuple[str, tuple[str, ...], tuple[int, ...]]

CHAT = "chat"
CHAT_SYSTEM = "You are a friendly robot assistant. Answer in short, plain English."
FAMILIES: dict[str, Callable[[random.Random], Task]] = {
    "move": motion_tasks.move,
    "find": object_tasks.find,
    "check": object_tasks.check,
    "look": object_tasks.look,
    "patrol": motion_tasks.patrol,
    "avoid": motion_tasks.avoid,
    "question": object_tasks.question,
    "recover": motion_tasks.recover,
    "scan": object_tasks.scan,
    "visit": object_tasks.visit,
}
MORE_OFTEN = {"move": 1.5, "find": 1.5, "question": 1.5, "visit": 1.5, CHAT: 1.8}
WEIGHTS = dict.fromkeys(FAMILIES, 1.0) | MORE_OFTEN
MAX_DISTRACTORS = 3


@dataclass(frozen=True)
class Sample:
    """One user text, its right answer and its key."""

    family: str
    user: str
    answer: str
    objects: tuple[str, ...]
    numbers: tuple[int, ...]

    @property
    def key(self) -> Key:
        """Return what decides the split."""
        return self.family, self.objects, self.numbers

    @property
    def prompt_hash(self) -> bytes:
        """Return a short hash of the user text."""
        return hashlib.blake2b(self.user.encode(), digest_size=12).digest()


def split_of(key: Key) -> Split:
    """Return "test" for about one key in eight."""
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return "test" if digest[0] % 8 == 0 else "train"


def sample(rng: random.Random, split: Split, family: str | None = None) -> Sample:
    """Return a sample of `split`, of any family unless one is named."""
    while True:
        name = family or rng.choices(tuple(WEIGHTS), tuple(WEIGHTS.values()))[0]
        drawn = _draw(rng, name)
        if split_of(drawn.key) == split:
            return drawn


def stream(seed: int, split: Split = "train") -> Iterator[Sample]:
    """Yield samples without end, the same for the same seed."""
    rng = random.Random(seed)
    while True:
        yield sample(rng, split)


def _draw(rng: random.Random, family: str) -> Sample:
    if family == CHAT:
        user, answer, objects = chat(rng)
        return Sample(CHAT, user, answer, objects, ())
    task = FAMILIES[family](rng)
    scene = list(task.scene)
    if not task.closed:
        count = rng.randint(0, MAX_DISTRACTORS)
        scene += draw_names(rng, count, NOUNS, task.objects)
        rng.shuffle(scene)
    text = task.text.replace(" 1 seconds", " 1 second")
    if rng.random() < 0.1:
        text = text.removesuffix(".")
    user = f"Scene: [{', '.join(scene)}]\nTask: [{task.kind}] {text}"
    return Sample(family, user, task.plan, task.objects, task.numbers)
