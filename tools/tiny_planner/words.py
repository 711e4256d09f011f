"""Words and numbers of the corpus: a closed set, each one token of the tokenizer."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

ADJECTIVES = ("red", "blue", "green", "yellow", "black", "white", "big", "small")
SIZES = ("big", "small")
THINGS = (
    "cat", "cup", "ball", "book", "keys", "wallet", "toy", "phone", "bottle", "bag", "hat", "shoe",
    "scissors", "pen", "lamp", "clock", "plant", "apple", "banana", "glasses", "mug", "bowl",
    "spoon", "box", "basket", "umbrella", "jacket", "laptop", "camera", "pillow", "towel", "vase",
    "candle", "hammer", "knife", "plate",
)  # fmt: skip
PLACES = (
    "table", "bed", "chair", "sofa", "desk", "shelf", "cabinet", "countertop", "bench", "fridge",
)  # fmt: skip
MOVERS = ("dog", "person", "boy", "girl", "man", "woman", "child", "bird", "drone", "robot")
NOUNS = (*THINGS, *PLACES, *MOVERS)

DISTANCES = (*range(20, 301, 10), 350, 400, 450, 500)
HEIGHTS = tuple(range(20, 301, 10))
SHORT = tuple(range(20, 201, 10))
ANGLES = (15, 30, 45, 60, 90, 120, 135, 180, 270, 360)
SECONDS = tuple(range(1, 11))
REPEATS = tuple(range(2, 9))
NUMBERS = tuple(sorted({*DISTANCES, *HEIGHTS, *ANGLES, *SECONDS, *REPEATS, 12, 24}))


@dataclass(frozen=True)
class Task:
    """One planning task before distractors join its scene.

    `objects` and `numbers` are those the task is about; with the family they form its key.
    `scene` must be in view. A `closed` scene is complete and its order matters. `family` is that
    of the key where another family's task is repeated, and `after` follows the task's text. The
    plan may hold tool output, see `answers.py`.
    """

    kind: str
    text: str
    plan: str
    objects: tuple[str, ...] = ()
    numbers: tuple[int, ...] = ()
    scene: tuple[str, ...] = ()
    closed: bool = False
    family: str = ""
    after: str = ""


def noun_of(name: str) -> str:
    """Return the noun of an object name such as "red cup"."""
    return name.rsplit(" ", 1)[-1]


def draw_name(rng: random.Random, nouns: Sequence[str]) -> str:
    """Return a noun, sometimes after an adjective."""
    noun = rng.choice(nouns)
    if rng.random() >= 0.3:
        return noun
    return f"{rng.choice(SIZES if noun in MOVERS else ADJECTIVES)} {noun}"


def draw_names(
    rng: random.Random,
    count: int,
    nouns: Sequence[str],
    avoid: Sequence[str] = (),
    draw: Callable[[random.Random, Sequence[str]], str] = draw_name,
) -> list[str]:
    """Return `count` names with different nouns, none of them a noun of `avoid`."""
    used = {noun_of(name) for name in avoid}
    names: list[str] = []
    while len(names) < count:
        name = draw(rng, nouns)
        if noun_of(name) not in used:
            used.add(noun_of(name))
            names.append(name)
    return names


def is_plural(name: str) -> bool:
    """Return whether the name is one of the few plural ones."""
    return noun_of(name) in ("keys", "scissors", "glasses")


def with_article(name: str) -> str:
    """Return "keys", "a cup" or "an apple"."""
    if is_plural(name):
        return name
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def join_words(words: Sequence[str], last: str = " and ") -> str:
    """Return "a", "a and b" or "a, b and c"."""
    return last.join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]
