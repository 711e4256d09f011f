"""Synthetic corpus of the embedded language model; every sample is a function of the seed.

A sample's key is its family, objects and numbers. A hash of the key says whether the sample may
train the model ("train") or only measure it ("test"), so no test task is ever in the training.

The streams of training samples have versions: an earlier one stays as it was, so that what trained
the model can be drawn again. A family is in one split by the same hash in all of them.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from timely_llm.progressive.grounding import grounded
from timely_llm.progressive.plan import guided_task
from tools.tiny_planner import (
    arm_look_tasks,
    arm_tasks,
    motion_tasks,
    object_tasks,
    retry_tasks,
)
from tools.tiny_planner.answers import outside_words
from tools.tiny_planner.arm_words import ITEMS
from tools.tiny_planner.chat_tasks import chat, talk
from tools.tiny_planner.step_words import steps_of
from tools.tiny_planner.words import NOUNS, Task, draw_names

Split = Literal["train", "test"]
Key = tuple[str, tuple[str, ...], tuple[int, ...]]

CHAT, TALK = "chat", "talk"
CHAT_SYSTEM = "You are a friendly robot assistant. Answer in short, plain English."
DRONE_FAMILIES: dict[str, Callable[[random.Random], Task]] = {
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
ARM_FAMILIES: dict[str, Callable[[random.Random], Task]] = {
    "arm_move": arm_tasks.move,
    "arm_stack": arm_tasks.stack,
    "arm_clean": arm_look_tasks.clean,
    "arm_sort": arm_look_tasks.sort,
    "arm_gripper": arm_tasks.gripper,
    "arm_question": arm_look_tasks.question,
    "arm_urgent": arm_tasks.urgent,
    "arm_retry": retry_tasks.arm,
}
FAMILIES = {**DRONE_FAMILIES, "retry": retry_tasks.drone, **ARM_FAMILIES}

# How often a family is drawn, by version of the stream.
VERSION = 3
WEIGHTS = {
    1: dict.fromkeys(DRONE_FAMILIES, 1.0)
    | {"move": 1.5, "find": 1.5, "question": 1.5, "visit": 1.5, CHAT: 1.8},
    2: dict.fromkeys(DRONE_FAMILIES, 0.4)
    | {"find": 3.0, "look": 1.2, "move": 0.8, "question": 0.6, "visit": 0.6, CHAT: 0.6}
    | {"retry": 1.8, "arm_move": 1.0, "arm_stack": 1.2, "arm_clean": 1.5, "arm_sort": 2.4}
    | {"arm_gripper": 1.0, "arm_question": 1.2, "arm_urgent": 0.4, "arm_retry": 1.5},
}
WEIGHTS[3] = WEIGHTS[2] | {TALK: 3.0}

# Forms of a family's task: a plan of the task with its steps, and the steps themselves.
GUIDED, SKETCH = "guided", "sketch"
STEP_FAMILIES = {
    "find": 2.0, "visit": 1.0, "move": 1.0, "arm_move": 1.0, "arm_stack": 1.0, "arm_gripper": 0.5,
}  # fmt: skip
WEIGHTS[4] = {
    f"{family}{form}": weight
    for family, weight in STEP_FAMILIES.items()
    for form in ("", f"/{GUIDED}")
}
WEIGHTS[5] = {f"{family}/{SKETCH}": weight for family, weight in STEP_FAMILIES.items()}
WEIGHTS[6] = WEIGHTS[2] | {
    f"{family}/{form}": share * weight
    for family, weight in STEP_FAMILIES.items()
    for form, share in ((GUIDED, 1.0), (SKETCH, 2.0))
}
MAX_DISTRACTORS = 3


@dataclass(frozen=True)
class Sample:
    """One user text, its right answer and its key.

    `told` is the family of the key if this task repeats one of another family.
    """

    family: str
    user: str
    answer: str
    objects: tuple[str, ...]
    numbers: tuple[int, ...]
    told: str = ""

    @property
    def robot(self) -> str:
        """Return which system text goes before: "drone", "arm", "chat" or "drone sketch"."""
        if self.family in (CHAT, TALK):
            return CHAT
        family, _, form = self.family.partition("/")
        robot = "arm" if family in ARM_FAMILIES else "drone"
        return f"{robot} {SKETCH}" if form == SKETCH else robot

    @property
    def key(self) -> Key:
        """Return what decides the split."""
        return self.told or self.family, self.objects, self.numbers

    @property
    def prompt(self) -> str:
        """Return all words that are not the model's: the user text and what a look returned."""
        return self.user + "".join(outside_words(self.answer))

    @property
    def prompt_hash(self) -> bytes:
        """Return a short hash of the prompt."""
        return hashlib.blake2b(self.prompt.encode(), digest_size=12).digest()


def split_of(key: Key) -> Split:
    """Return "test" for about one key in eight."""
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return "test" if digest[0] % 8 == 0 else "train"


def sample(
    rng: random.Random, split: Split, family: str | None = None, version: int = VERSION
) -> Sample:
    """Return a sample of `split`, of any family of the version unless one is named."""
    weights = WEIGHTS[version]
    while True:
        name = family or rng.choices(tuple(weights), tuple(weights.values()))[0]
        drawn = _draw(rng, name)
        if drawn and split_of(drawn.key) == split:
            return drawn


def stream(seed: int, split: Split = "train", version: int = VERSION) -> Iterator[Sample]:
    """Yield samples without end, the same for the same seed and version."""
    rng = random.Random(seed if version == 1 else f"{seed} version {version}")
    while True:
        yield sample(rng, split, None, version)


def with_steps(plain: Sample, form: str) -> Sample | None:
    """Return a task's sample with its steps in the prompt, or as the answer.

    None: the plan is no list of steps, or the server would not take one of them. Steps in a prompt
    are at least two: the server asks for no plan of one step.
    """
    goal = plain.objects[0] if plain.family == "find" else ""
    scene = plain.user.partition("]")[0].removeprefix("Scene: [").split(", ")
    steps = steps_of(plain.answer, goal in scene)
    least = 2 if form == GUIDED else 1
    if not steps or len(steps) < least or not all(grounded(step, plain.user) for step in steps):
        return None
    family = f"{plain.family}/{form}"
    if form == GUIDED:
        user = guided_task(plain.user, steps)
        return replace(plain, family=family, user=user, told=plain.family)
    answer = guided_task("", steps).lstrip("\n")
    return replace(plain, family=family, answer=answer, told=plain.family)


def _draw(rng: random.Random, name: str) -> Sample | None:
    family, _, form = name.partition("/")
    plain = _plain(rng, family)
    return with_steps(plain, form) if form else plain


def _plain(rng: random.Random, family: str) -> Sample:
    if family in (CHAT, TALK):
        user, answer, objects = (chat if family == CHAT else talk)(rng)
        return Sample(family, user, answer, objects, ())
    task = FAMILIES[family](rng)
    scene = list(task.scene)
    if not task.closed:
        count = rng.randint(0, MAX_DISTRACTORS)
        scene += draw_names(rng, count, ITEMS if family in ARM_FAMILIES else NOUNS, task.objects)
        rng.shuffle(scene)
    text = task.text.replace(" 1 seconds", " 1 second")
    if rng.random() < 0.1:
        text = text.removesuffix(".")
    user = f"Scene: [{', '.join(scene)}]\nTask: [{task.kind}] {text}{task.after}"
    return Sample(family, user, task.plan, task.objects, task.numbers, task.family)
