"""A helper of training: at each noun, the hidden state must show whether it was named before.

Whether the scene lists what a task is about decides how its plan begins, one token of a long
sample. The probe asks for the same knowledge at every noun, and is thrown away after training.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional
from transformers import PreTrainedTokenizerFast

from tools.tiny_planner.words import NOUNS

LAYER = 3  # after which it looks; later ones carry what it found to where it is needed


class Probe(nn.Module):
    """A linear reading of a hidden state of size `hidden`."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, hidden: int) -> None:
        super().__init__()
        self._head = nn.Linear(hidden, 1)
        self._nouns = torch.zeros(len(tokenizer), dtype=torch.bool)
        self._nouns[[tokenizer(noun).input_ids[0] for noun in NOUNS]] = True

    def forward(self, rows: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        """Return the mean cross entropy over the nouns of the rows; 0 if there are none."""
        named = (rows[:, :, None] == rows[:, None, :]).tril(-1).any(-1)
        nouns = self._nouns[rows]
        if not nouns.any():
            return torch.zeros(())
        told = self._head(states.float())[nouns][:, 0]
        return functional.binary_cross_entropy_with_logits(told, named[nouns].float())
