"""Words of the arm's families, nearly all of them known from the drone's."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tools.tiny_planner import words
from tools.tiny_planner.words import ADJECTIVES

ITEMS = (
    "cup", "ball", "book", "wallet", "toy", "phone", "bottle", "hat", "shoe",
    "pen", "clock", "plant", "apple", "banana", "mug", "spoon", "umbrella", "camera",
    "towel", "vase", "candle", "hammer", "knife", "lamp", "pillow",
)  # fmt: skip
BOXES = ("box", "basket", "bag", "bowl")
SURFACES = ("table", "desk", "countertop", "bench", "shelf", "cabinet")
SPOTS = (*SURFACES, *BOXES, "plate", "chair")

# What may be sorted; the plurals are the words of the task, the nouns those of the objects.
KINDS = {
    "fruit": ("apple", "banana", "orange", "lemon"),
    "vegetables": ("carrot", "tomato", "potato", "onion"),
    "dishes": ("mug", "plate", "spoon", "knife"),
    "clothes": ("hat", "shoe", "jacket"),
    "cups": ("cup",),
    "balls": ("ball",),
    "books": ("book",),
    "bottles": ("bottle",),
    "toys": ("toy",),
    "pens": ("pen",),
}


def draw_name(rng: random.Random, nouns: Sequence[str], adjective: float = 0.45) -> str:
    """Return a noun, with a share of `adjective` after an adjective."""
    noun = rng.choice(nouns)
    return f"{rng.choice(ADJECTIVES)} {noun}" if rng.random() < adjective else noun


def draw_names(
    rng: random.Random, count: int, nouns: Sequence[str], avoid: Sequence[str] = ()
) -> list[str]:
    """Return `count` names with different nouns, none of them a noun of `avoid`."""
    return words.draw_names(rng, count, nouns, avoid, draw_name)


def draw_boxes(rng: random.Random) -> tuple[str, str]:
    """Return two containers: other nouns, or one noun in two colours."""
    if rng.random() < 0.5:
        one, two = draw_names(rng, 2, BOXES)
        return one, two
    noun = rng.choice(BOXES)
    one, two = rng.sample(ADJECTIVES, 2)
    return f"{one} {noun}", f"{two} {noun}"
