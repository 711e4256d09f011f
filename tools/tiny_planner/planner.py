"""Greedy answers of a model folder; plays the server where a plan needs tool output."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, StoppingCriteria

from tools.tiny_planner.answers import outside

ROWS = 64  # that are worked on together
BLOCKING = "look();"  # the statement that tool output answers
PHASES = 3  # of an answer at most


class _EndsWith(StoppingCriteria):  # type: ignore[misc,unused-ignore]
    """Stops the rows that end with some tokens."""

    def __init__(self, tokens: list[int]) -> None:
        self._tokens = torch.tensor(tokens)

    def __call__(self, input_ids: Any, scores: Any, **kwargs: Any) -> Any:
        return (input_ids[:, -len(self._tokens) :] == self._tokens).all(dim=1)


class Planner:
    """Greedy answers of a model folder.

    Args:
        folder: the model's files.
        limit: tokens of a phase of an answer at most.
    """

    def __init__(self, folder: Path, limit: int = 256) -> None:
        self._tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        self._model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        self._model.train(False)
        self._limit = limit
        self._ends = [_EndsWith(self._tokens(BLOCKING))]

    def answers(
        self, users: Sequence[str], system: str, seen: Sequence[Sequence[str]] = ()
    ) -> list[str]:
        """Return the answers to user texts, tool output included.

        `seen` has the tool output for the looks of each answer; a further look sees nothing.
        """
        out = [""] * len(users)
        order = sorted(range(len(users)), key=lambda i: len(users[i]))
        for at in range(0, len(order), ROWS):
            rows = order[at : at + ROWS]
            words = [list(seen[i]) if seen else [] for i in rows]
            answers = self._together([self._prompt(users[i], system) for i in rows], words)
            for i, answer in zip(rows, answers, strict=True):
                out[i] = answer
        return out

    def count(self, text: str) -> int:
        """Return the tokens of a text."""
        return len(self._tokens(text))

    def _together(self, prompts: list[str], words: list[list[str]]) -> list[str]:
        """Return the answers to prompts of similar length."""
        contexts = [self._tokens(prompt) for prompt in prompts]
        answers = [""] * len(prompts)
        waiting = list(range(len(prompts)))
        for _ in range(PHASES):
            written = self._generate([contexts[i] for i in waiting])
            blocked = []
            for i, tokens in zip(waiting, written, strict=True):
                text = self._tokenizer.decode(tokens)
                answers[i] += text.split("<|end|>")[0]
                if text.endswith(BLOCKING):
                    value = words[i].pop(0) if words[i] else outside(())
                    answers[i] += value
                    contexts[i] = [*contexts[i], *tokens, *self._tokens(value)]
                    blocked.append(i)
            waiting = blocked
            if not waiting:
                break
        return answers

    @torch.no_grad()
    def _generate(self, contexts: list[list[int]]) -> list[list[int]]:
        """Return the tokens of one phase, without the padding after them."""
        inputs = self._tokenizer.pad(
            {"input_ids": contexts}, return_tensors="pt", padding_side="left"
        )
        full = self._model.generate(
            **inputs, max_new_tokens=self._limit, do_sample=False, stopping_criteria=self._ends
        )
        pad = self._tokenizer.pad_token_id
        rows = full[:, inputs.input_ids.shape[1] :].tolist()
        return [[token for token in row if token != pad] for row in rows]

    def _tokens(self, text: str) -> list[int]:
        tokens: list[int] = self._tokenizer(text, add_special_tokens=False).input_ids
        return tokens

    def _prompt(self, user: str, system: str) -> str:
        messages = [{"role": "system", "content": system}] if system else []
        messages.append({"role": "user", "content": user})
        text: str = self._tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )
        return text
