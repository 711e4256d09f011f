"""Training batches: rows of similar length, with or without the system text."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
from transformers import PreTrainedTokenizerFast

from timely_llm.skills.skill_set import load_skill_set
from tools.tiny_planner import corpus
from tools.tiny_planner.words import ADJECTIVES, NOUNS, NUMBERS

SKILL_SET = Path("config/skill_sets/drone.yaml")
POOL = 4000  # samples sorted by length at a time


@dataclass(frozen=True)
class Batch:
    """One step: the shared prefix (maybe empty) and padded rows with the weight of each target."""

    prefix: list[int]
    rows: torch.Tensor
    weights: torch.Tensor


def system_texts() -> dict[bool, str]:
    """Return the system text of chat samples (True) and of planning samples (False)."""
    return {True: corpus.CHAT_SYSTEM, False: load_skill_set(SKILL_SET).prompt_text()}


class Batches:
    """Batches of similar length from the training stream, with a record of what was drawn."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerFast, seed: int, tokens: int, prompt_weight: float
    ) -> None:
        self.samples = 0
        self.digest = hashlib.blake2b(digest_size=16)
        self._stream = corpus.stream(seed)
        self._random = random.Random(seed)
        self._tokenizer = tokenizer
        self._tokens = tokens
        self._prompt_weight = prompt_weight
        self._prefixes = {
            chat: tokenizer(f"<|system|>{text}").input_ids for chat, text in system_texts().items()
        }

    def draw(self, count: int) -> list[corpus.Sample]:
        """Return the next samples of the stream and record them."""
        drawn = list(islice(self._stream, count))
        self.samples += count
        for one in drawn:
            self.digest.update(one.prompt_hash)
        return drawn

    def pool(self, with_system: float) -> list[Batch]:
        """Return the batches of the next samples; a share of them shows the system text."""
        drawn = self.draw(POOL)
        asks = self._tokenizer([f"<|user|>{s.user}\n<|assistant|>" for s in drawn]).input_ids
        answers = self._tokenizer([f"{s.answer}<|end|>" for s in drawn]).input_ids
        batches: list[Batch] = []
        for chat in (True, False):
            rows = [
                (ask, answer)
                for one, ask, answer in zip(drawn, asks, answers, strict=True)
                if (one.family == corpus.CHAT) is chat
            ]
            rows.sort(key=lambda row: len(row[0]) + len(row[1]))
            while rows:
                size = max(1, self._tokens // (len(rows[-1][0]) + len(rows[-1][1])))
                group, rows = rows[-size:], rows[:-size]
                show = self._random.random() < with_system
                batches.append(self._batch(group, self._prefixes[chat] if show else []))
        self._random.shuffle(batches)
        return batches

    def copies(self, count: int) -> list[Batch]:
        """Return batches that repeat random names and numbers: copying is learned first."""
        vocabulary = (*ADJECTIVES, *NOUNS, *map(str, NUMBERS))
        words = [self._tokenizer(word).input_ids[0] for word in vocabulary]
        user, assistant, end = (
            self._tokenizer(mark).input_ids[0] for mark in ("<|user|>", "<|assistant|>", "<|end|>")
        )
        batches = []
        for _ in range(count):
            length = self._random.randint(8, 40)
            group = []
            for _ in range(self._tokens // (2 * length)):
                drawn = self._random.sample(words, length)
                group.append(([user, *drawn, assistant], [*drawn, end]))
            batches.append(self._batch(group, []))
        return batches

    def _batch(self, group: list[tuple[list[int], list[int]]], prefix: list[int]) -> Batch:
        length = max(len(ask) + len(answer) for ask, answer in group)
        rows = torch.zeros(len(group), length, dtype=torch.long)
        weights = torch.zeros(len(group), length)
        for index, (ask, answer) in enumerate(group):
            end = len(ask) + len(answer)
            rows[index, :end] = torch.tensor(ask + answer)
            weights[index, : len(ask)] = self._prompt_weight
            weights[index, len(ask) : end] = 1.0
        return Batch(prefix, rows, weights)
