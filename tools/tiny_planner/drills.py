"""Drills: rows that train one ability and are no samples of the corpus.

Copying a name, finding whether a list has it, and deciding by that how a plan begins: what a small
network is slow to find out from plans alone.
"""

from __future__ import annotations

import random
from itertools import chain

from transformers import PreTrainedTokenizerFast

from tools.tiny_planner import corpus
from tools.tiny_planner.words import ADJECTIVES, NOUNS, NUMBERS, draw_names, noun_of

Row = tuple[list[int], list[tuple[list[int], bool]]]  # the ask, and the answer's parts; if ours
SEARCHES = 5  # tasks of a row


class Drills:
    """Rows of tokens, drawn at random.

    Args:
        rng: the random numbers that are used.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerFast, rng: random.Random) -> None:
        self._tokenizer = tokenizer
        self._random = rng
        self._colours = [self._tokens(word)[0] for word in ADJECTIVES]
        self._nouns = [self._tokens(word)[0] for word in NOUNS]
        self._words = [*self._colours, *self._nouns, *(self._tokens(str(n))[0] for n in NUMBERS)]
        self._user, self._assistant, self._end, self._go, self._search = (
            self._tokens(mark)[0] for mark in ("<|user|>", "<|assistant|>", "<|end|>", "g('", "?")
        )

    def copies(self, length: int) -> Row:
        """Return a row that repeats `length` random names and numbers."""
        drawn = self._random.sample(self._words, length)
        return [self._user, *drawn, self._assistant], [([*drawn, self._end], True)]

    def members(self, length: int) -> Row:
        """Return a row that marks which of `length` random names are in a list of as many."""
        drawn = [
            [self._random.choice(self._colours), noun] if self._random.random() < 0.3 else [noun]
            for noun in self._random.sample(self._nouns, 2 * length)
        ]
        listed, asked = drawn[:length], drawn[length // 2 : length // 2 + length]
        self._random.shuffle(asked)
        answer: list[tuple[list[int], bool]] = []
        for name in asked:
            answer += [(name, False), ([self._go if name in listed else self._search], True)]
        return [self._user, *chain(*listed), self._assistant], answer

    def searches(self) -> Row:
        """Return a row of several tasks in one scene, each answered by how its plan begins.

        The tasks are those of training samples, in another scene.
        """
        tasks: list[corpus.Sample] = []
        used: set[str] = set()
        while len(tasks) < SEARCHES:
            family = self._random.choice(("find", "find", "find", "look"))
            one = corpus.sample(self._random, "train", family)
            nouns = {noun_of(name) for name in one.objects}
            if not nouns & used:
                used |= nouns
                tasks.append(one)
        goals = [one.objects[one.family == "look"] for one in tasks]
        scene = [goal for goal in goals if self._random.random() < 0.5]
        scene += [name for one in tasks if one.family == "find" for name in one.objects[1:]]
        seen = set(scene)
        scene += draw_names(self._random, self._random.randint(0, 2), NOUNS, sorted(used))
        self._random.shuffle(scene)
        asks = [f"<|user|>{one.user.splitlines()[1]}\n<|assistant|>" for one in tasks]
        asks[0] = asks[0].replace("Task", f"Scene: [{', '.join(scene)}]\nTask", 1)
        answer: list[tuple[list[int], bool]] = []
        for ask, goal in zip(asks, goals, strict=True):
            answer += [
                (self._tokens(ask), False),
                ([self._go if goal in seen else self._search], True),
            ]
        return answer[0][0], answer[1:]

    def _tokens(self, text: str) -> list[int]:
        tokens: list[int] = self._tokenizer(text, add_special_tokens=False).input_ids
        return tokens
