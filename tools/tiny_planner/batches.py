"""Training batches: rows of similar length, with or without the system text."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

import torch
from transformers import PreTrainedTokenizerFast

from timely_llm.progressive.plan import steps_question
from timely_llm.skills.skill_set import load_skill_set
from tools.tiny_planner import corpus
from tools.tiny_planner.answers import parts_of
from tools.tiny_planner.drills import Drills, Row

SKILL_SETS = {
    "drone": Path("config/skill_sets/drone.yaml"),
    "arm": Path("config/skill_sets/arm.yaml"),
}
POOL = 4000  # samples sorted by length at a time


@dataclass(frozen=True)
class Batch:
    """One step: the shared prefix (maybe empty) and padded rows with the weight of each target."""

    prefix: list[int]
    rows: torch.Tensor
    weights: torch.Tensor


def system_texts() -> dict[str, str]:
    """Return the system text of each robot, of chat, and of a sketch for each robot."""
    sets = {robot: load_skill_set(path) for robot, path in SKILL_SETS.items()}
    texts = {robot: skill_set.prompt_text() for robot, skill_set in sets.items()}
    sketches = {
        f"{robot} {corpus.SKETCH}": steps_question("", skill_set)[0].content
        for robot, skill_set in sets.items()
    }
    return {corpus.CHAT: corpus.CHAT_SYSTEM, **texts, **sketches}


class Batches:
    """Batches of similar length from the training stream, with a record of what was drawn."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerFast,
        seed: int,
        version: int,
        tokens: int,
        prompt_weight: float,
        first_weight: float,
    ) -> None:
        self.samples = 0
        self.digest = hashlib.blake2b(digest_size=16)
        self._stream = corpus.stream(seed, version=version)
        self._random = random.Random(seed)
        self._tokenizer = tokenizer
        self._drills = Drills(tokenizer, self._random)
        self._tokens = tokens
        self._prompt_weight = prompt_weight
        self._first_weight = first_weight
        self._prefixes = {
            robot: tokenizer(f"<|system|>{text}").input_ids
            for robot, text in system_texts().items()
        }

    def draw(self, count: int) -> list[corpus.Sample]:
        """Return the next samples of the stream and record them."""
        drawn = list(islice(self._stream, count))
        self.samples += count
        for one in drawn:
            self.digest.update(one.prompt_hash)
        return drawn

    def pool(self, with_system: dict[str, float]) -> list[Batch]:
        """Return the batches of the next samples; a share of each robot's shows the system text."""
        drawn = self.draw(POOL)
        pooled = list(zip(drawn, self._rows(drawn), strict=True))
        batches: list[Batch] = []
        for robot, prefix in self._prefixes.items():
            rows = [row for one, row in pooled if one.robot == robot]
            rows.sort(key=_length)
            while rows:
                size = max(1, self._tokens // _length(rows[-1]))
                group, rows = rows[-size:], rows[:-size]
                show = self._random.random() < with_system[robot]
                batches.append(self._batch(group, prefix if show else []))
        self._random.shuffle(batches)
        return batches

    def _rows(self, samples: list[corpus.Sample]) -> list[Row]:
        """Return the tokens of samples; each part of an answer is tokenized on its own."""
        asks = self._tokenizer([f"<|user|>{s.user}\n<|assistant|>" for s in samples]).input_ids
        parts = [parts_of(f"{s.answer}<|end|>") for s in samples]
        texts = [part.text for answer in parts for part in answer]
        tokens = iter(self._tokenizer(texts, add_special_tokens=False).input_ids)
        return [
            (ask, [(next(tokens), part.ours) for part in answer])
            for ask, answer in zip(asks, parts, strict=True)
        ]

    def copies(self, count: int) -> list[Batch]:
        """Return batches that repeat random names and numbers: copying is learned first."""
        lengths = [self._random.randint(8, 40) for _ in range(count)]
        return [self._drill(partial(self._drills.copies, length)) for length in lengths]

    def members(self, count: int) -> list[Batch]:
        """Return batches of questions: which of some names are in a list."""
        lengths = [self._random.randint(2, 8) for _ in range(count)]
        return [self._drill(partial(self._drills.members, length)) for length in lengths]

    def searches(self, count: int) -> list[Batch]:
        """Return batches that decide whether a plan goes to something or searches for it."""
        return [self._drill(self._drills.searches) for _ in range(count)]

    def _drill(self, draw: Callable[[], Row]) -> Batch:
        """Return a batch of a drill's rows."""
        rows = [draw()]
        while sum(map(_length, rows)) < self._tokens:
            rows.append(draw())
        return self._batch(rows, [])

    def _batch(self, group: list[Row], prefix: list[int]) -> Batch:
        length = max(map(_length, group))
        rows = torch.zeros(len(group), length, dtype=torch.long)
        weights = torch.zeros(len(group), length)
        for index, (ask, answer) in enumerate(group):
            rows[index, : len(ask)] = torch.tensor(ask)
            weights[index, : len(ask)] = self._prompt_weight
            at = len(ask)
            for tokens, ours in answer:
                rows[index, at : at + len(tokens)] = torch.tensor(tokens)
                weights[index, at : at + len(tokens)] = float(ours)
                at += len(tokens)
            weights[index, len(ask)] *= self._first_weight
        return Batch(prefix, rows, weights)


def _length(row: Row) -> int:
    """Return the tokens of a row."""
    ask, answer = row
    return len(ask) + sum(len(tokens) for tokens, _ in answer)
