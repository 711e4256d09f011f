"""Choice of the next token: the most likely one or a sampled one, within a grammar."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from timely_llm.core.errors import EngineError
from timely_llm.engines.grammars import Grammars, Matcher
from timely_llm.engines.sequences import SequenceState


@dataclass(frozen=True)
class SamplingParameters:
    """Parameters of sampling one token: the seed and the position give its random number."""

    temperature: float
    seed: int
    position: int

    @classmethod
    def next_of(cls, sequence: SequenceState) -> SamplingParameters:
        """Return the parameters of a sequence's next token."""
        return cls(sequence.decoding.temperature, sequence.decoding.seed, len(sequence.token_ids))


class ChosenTokens(NamedTuple):
    """The next tokens of sequences.

    Attributes:
        tokens: by key.
        failures: one sentence by each other key: why there is no token.
        logprobs: as `StepResult.logprobs`, of one token a sequence.
    """

    tokens: dict[str, int]
    failures: dict[str, str]
    logprobs: dict[str, float]


class Sampler:
    """Chooses the next tokens of sequences.

    A sampled token depends only on the sequence's seed, position and logits. A grammar or a
    temperature costs nothing for the other rows.

    Args:
        grammars: grammars over the model's vocabulary.
    """

    def __init__(self, grammars: Grammars) -> None:
        self._grammars = grammars
        self._matchers: dict[str, Matcher] = {}

    def begin(self, sequence: SequenceState) -> None:
        """Prepare for a new sequence.

        Raises:
            EngineError: its grammar cannot be used.
        """
        decoding = sequence.decoding
        if decoding.grammar is not None:
            made = self._grammars.matcher(decoding.grammar, decoding.read)
            self._matchers[sequence.key] = made

    def check(self, grammar: str | None) -> None:
        """Check that a grammar can be used.

        Raises:
            EngineError: it cannot be used.
        """
        if grammar is not None:
            self._grammars.matcher(grammar)

    def end(self, key: str) -> None:
        """Drop a sequence."""
        self._matchers.pop(key, None)

    def clear(self) -> None:
        """Drop all sequences."""
        self._matchers.clear()

    def replace(self, key: str, token_id: int, words: Sequence[int]) -> None:
        """Replace a sequence's newest token by tool output."""
        if key in self._matchers:
            self._matchers[key].replace(token_id, list(words))

    @torch.inference_mode()
    def choose(self, sequences: Sequence[SequenceState], logits: Tensor) -> ChosenTokens:
        """Choose a token for each sequence.

        Args:
            sequences: the sequences.
            logits: [sequences, vocabulary]; changed.
        """
        failures = self._apply_grammars(sequences, logits)
        best, token_ids = _most_likely(logits)
        sampled = [row for row, sequence in enumerate(sequences) if sequence.decoding.temperature]
        if sampled:
            parameters = [SamplingParameters.next_of(sequences[row]) for row in sampled]
            chosen = sample(parameters, logits[sampled], best[sampled])
            for row, token_id in zip(sampled, chosen, strict=True):
                token_ids[row] = token_id
        tokens = {}
        for sequence, token_id, score in zip(sequences, token_ids, best.tolist(), strict=True):
            if not math.isfinite(score):
                failures.setdefault(sequence.key, f"the most likely token's logit is {score}")
            elif sequence.key not in failures:
                self._take(sequence.key, token_id, failures)
                tokens[sequence.key] = token_id
        tokens = {key: token for key, token in tokens.items() if key not in failures}
        asking = [n for n, sequence in enumerate(sequences) if sequence.decoding.logprobs]
        logprobs = {}
        if asking:
            found = log_probabilities(logits[asking], [token_ids[row] for row in asking])
            made = ((sequences[row].key, of) for row, of in zip(asking, found, strict=True))
            logprobs = {key: of for key, of in made if key in tokens}
        return ChosenTokens(tokens, failures, logprobs)

    def _apply_grammars(self, sequences: Sequence[SequenceState], logits: Tensor) -> dict[str, str]:
        """Exclude forbidden tokens; return the sequences without a next token, and why."""
        rows, masks = [], []
        failures: dict[str, str] = {}
        for row, sequence in enumerate(sequences) if self._matchers else ():
            if sequence.key in self._matchers:
                try:
                    masks.append(self._matchers[sequence.key].forbidden())
                    rows.append(row)
                except EngineError as error:
                    failures[sequence.key] = str(error)
        if rows:
            forbidden = torch.from_numpy(np.stack(masks)).to(logits.device)
            for row, mask in zip(rows, forbidden, strict=True):
                logits[row].masked_fill_(mask, -torch.inf)
        return failures

    def _take(self, key: str, token_id: int, failures: dict[str, str]) -> None:
        if key in self._matchers:
            try:
                self._matchers[key].take(token_id)
            except EngineError as error:
                failures[key] = str(error)


def _most_likely(logits: Tensor) -> tuple[Tensor, list[int]]:
    """Return the largest logit of each row, and its token; NaN counts as the largest."""
    if logits.dtype is torch.float32 and logits.device.type == "cpu":
        token_ids = torch.from_numpy(logits.numpy().argmax(-1))  # ten times as fast as torch's
        return logits.gather(-1, token_ids[:, None])[:, 0], token_ids.tolist()
    best, likely = logits.max(-1)
    return best, likely.tolist()


def log_probabilities(logits: Tensor, token_ids: Sequence[int]) -> list[float]:
    """Return the natural logarithm of the probability of a token in each row.

    Args:
        logits: [rows, vocabulary].
        token_ids: a token of each row.
    """
    chosen = torch.tensor(token_ids, device=logits.device)[:, None]
    found: list[float] = logits.float().log_softmax(-1).gather(-1, chosen)[:, 0].tolist()
    return found


def sample(parameters: Sequence[SamplingParameters], logits: Tensor, best: Tensor) -> list[int]:
    """Sample a token for each row by the inverse of the distribution function.

    Args:
        parameters: parameters of each row.
        logits: [rows, vocabulary].
        best: the largest logit of each row.
    """
    of = [(one.temperature, _uniform(one.seed, one.position)) for one in parameters]
    temperatures, places = torch.tensor(of, dtype=torch.float64, device=logits.device).T[..., None]
    scores = logits.double() - best.double()[:, None]
    sums = (scores / temperatures).exp().cumsum(-1)
    chosen = torch.searchsorted(sums, places * sums[:, -1:], right=True)
    found: list[int] = chosen[:, 0].tolist()
    return found


def _uniform(seed: int, position: int) -> float:
    """Return the random number from [0, 1) of a seed and a position.

    It has 52 bits, so that its product with a sum always stays below the sum.
    """
    digest = hashlib.blake2b(f"{seed}/{position}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 12) * 2.0**-52
