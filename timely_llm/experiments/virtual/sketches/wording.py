"""Words in place of a model's: key words, on which models differ, and words of grammar.

Zhan et al. 2025, §II-B: models differ in a few tokens that carry the meaning (observation 1), and
agree in the others once those are given (observation 2). An answer here has both kinds. A sketch
has the key words first. A model that expands it repeats given key words, and guesses the others as
well as it can. No real model speaks here: the words show what a rule does with models of known
abilities.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from timely_llm.progressive.ensemble.confidence import Candidate

KEY_SHARE = 0.4
"""Share of key words in an answer: as long as the mean sketch of Figure 3."""

GRAMMAR_RIGHT, GIVEN_RIGHT = 0.9, 0.97
"""Chance that a model repeats a word of grammar, or a key word that the sketch gives."""

_GRAMMAR, _KEYS = 60, 5000

HARD = ("coding", "math")
"""Categories in which a sketch loses meaning (Table IV): half of its key words do not help."""


class Speaker(NamedTuple):
    """A small model.

    Attributes:
        name: of its step times, without the device.
        ability: chance that it finds a key word of the cloud's answer by itself: MMLU (Table I).
        bias: added to each log-probability: Llama's are lower whatever it says (§IV-C).
        best: categories in which its ability is larger by `HOME`.
    """

    name: str
    ability: float
    bias: float = 0.0
    best: tuple[str, ...] = ()

    def ability_in(self, category: str) -> float:
        """Return its ability in a category."""
        return min(self.ability + (HOME if category in self.best else 0.0), 1.0)


HOME = 0.1
SPEAKERS: Mapping[str, Speaker] = {
    one.name: one
    for one in (
        Speaker("qwen2.5-1.5b", 0.609, 0.0, ("generic", "fermi")),
        Speaker("llama3-8b", 0.666, -0.35, ("roleplay", "writing", "humanities")),
        Speaker("qwen2.5-7b", 0.742, 0.0, ("math", "coding", "stem")),
    )
}
"""The paper's three small models, from the least to the most capable one by MMLU.

Which is best in which category is this package's: Figure 8 has no numbers.
"""


class Wording(NamedTuple):
    """An answer of the cloud, word by word.

    Attributes:
        words: numbers of the words; below `_GRAMMAR` they are of grammar.
        key: which words are key words.
        given: which key words a sketch has.
        sketch: text of the sketch.
    """

    words: np.ndarray
    key: np.ndarray
    given: np.ndarray
    sketch: str

    @property
    def text(self) -> str:
        """The answer."""
        return _text(self.words)


@lru_cache(maxsize=512)
def wording(seed: int, tokens: int, sketch_tokens: int, category: str) -> Wording:
    """Return the cloud's answer to a question, and its sketch of some tokens."""
    rng = np.random.default_rng((seed, 2))
    key = rng.random(tokens) < KEY_SHARE
    grammar = np.minimum(rng.zipf(1.3, tokens) - 1, _GRAMMAR - 1)
    words = np.where(key, _GRAMMAR + rng.integers(0, _KEYS, tokens), grammar)
    places = rng.permutation(np.flatnonzero(key))
    given = np.zeros(tokens, bool)
    given[places[:sketch_tokens]] = True
    sketch = _text(words[given])
    if category in HARD:
        given &= rng.random(tokens) < 0.5
    return Wording(words, key, given, sketch)


def spoken(made: Wording, speaker: Speaker, category: str, seed: int) -> Candidate:
    """Return what a model makes of a sketch, or of none if nothing is given.

    Args:
        made: the cloud's answer and its sketch.
        speaker: the model.
        category: of the question.
        seed: of what it gets right.
    """
    rng = np.random.default_rng((seed, 3))
    able = speaker.ability_in(category)
    chance = np.where(made.key, np.where(made.given, GIVEN_RIGHT, able), GRAMMAR_RIGHT)
    right = rng.random(len(chance)) < chance
    wrong = np.where(
        made.key, _GRAMMAR + rng.integers(0, _KEYS, len(chance)),
        rng.integers(0, _GRAMMAR, len(chance)),
    )  # fmt: skip
    sure = np.where(right, rng.uniform(0.5, 1.0, len(chance)), rng.uniform(0.2, 0.8, len(chance)))
    logprobs = np.log(sure) + speaker.bias
    return Candidate(speaker.name, _text(np.where(right, made.words, wrong)), logprobs.tolist())


def _text(words: np.ndarray) -> str:
    return " ".join(f"w{number}" for number in words)
