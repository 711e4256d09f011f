"""Which token comes next: the most likely one, or one that is drawn, within a grammar."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from timely_llm.core.errors import EngineError
from timely_llm.engines.grammars import Grammars, Matcher
from timely_llm.engines.track import Track


@dataclass(frozen=True)
class Draw:
    """How a token is drawn: at this temperature, by the seed's number for this position."""

    temperature: float
    seed: int
    position: int

    @classmethod
    def next_of(cls, track: Track) -> Draw:
        """Return how a sequence's next token is drawn."""
        return cls(track.decoding.temperature, track.decoding.seed, len(track.token_ids))


class Choices:
    """Chooses the next tokens of sequences.

    What is drawn depends on a sequence's seed, position and logits alone. Rows without a grammar
    or a temperature cost nothing more because others have one.

    Args:
        grammars: of the model's tokens.
    """

    def __init__(self, grammars: Grammars) -> None:
        self._grammars = grammars
        self._matchers: dict[str, Matcher] = {}

    def begin(self, track: Track) -> None:
        """Prepare for a new sequence.

        Raises:
            EngineError: its grammar cannot be used.
        """
        if track.decoding.grammar is not None:
            self._matchers[track.key] = self._grammars.matcher(track.decoding.grammar)

    def end(self, key: str) -> None:
        """Forget a sequence."""
        self._matchers.pop(key, None)

    def clear(self) -> None:
        """Forget all sequences."""
        self._matchers.clear()

    def replace(self, key: str, token_id: int, words: Sequence[int]) -> None:
        """Let words stand for a sequence's newest token."""
        if key in self._matchers:
            self._matchers[key].replace(token_id, list(words))

    @torch.inference_mode()
    def choose(
        self, tracks: Sequence[Track], logits: Tensor
    ) -> tuple[dict[str, int], dict[str, str]]:
        """Choose a token for each sequence.

        Args:
            tracks: the sequences.
            logits: theirs, [sequences, vocabulary]; changed.

        Returns:
            The token by key, and why there is none for the others.
        """
        failures = self._apply_grammars(tracks, logits)
        best, token_ids = _most_likely(logits)
        drawn = [row for row, track in enumerate(tracks) if track.decoding.temperature]
        if drawn:
            draws = [Draw.next_of(tracks[row]) for row in drawn]
            chosen = draw(draws, logits[drawn], best[drawn])
            for row, token_id in zip(drawn, chosen, strict=True):
                token_ids[row] = token_id
        tokens = {}
        for track, token_id, score in zip(tracks, token_ids, best.tolist(), strict=True):
            if not math.isfinite(score):
                failures.setdefault(track.key, f"the most likely token's logit is {score}")
            elif track.key not in failures:
                self._take(track.key, token_id, failures)
                tokens[track.key] = token_id
        return {key: token for key, token in tokens.items() if key not in failures}, failures

    def _apply_grammars(self, tracks: Sequence[Track], logits: Tensor) -> dict[str, str]:
        """Give tokens that are not allowed no chance; return who cannot go on, and why."""
        rows, masks = [], []
        failures: dict[str, str] = {}
        for row, track in enumerate(tracks) if self._matchers else ():
            if track.key in self._matchers:
                try:
                    masks.append(self._matchers[track.key].forbidden())
                    rows.append(row)
                except EngineError as error:
                    failures[track.key] = str(error)
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
    """Return the largest logit of each row, and whose it is; one that is no number is found too."""
    if logits.dtype is torch.float32 and logits.device.type == "cpu":
        token_ids = torch.from_numpy(logits.numpy().argmax(-1))  # ten times as fast as torch's
        return logits.gather(-1, token_ids[:, None])[:, 0], token_ids.tolist()
    best, likely = logits.max(-1)
    return best, likely.tolist()


def draw(draws: Sequence[Draw], logits: Tensor, best: Tensor) -> list[int]:
    """Draw a token for each row by the inverse of the distribution function.

    Args:
        draws: how.
        logits: of the rows, [rows, vocabulary].
        best: the largest of each row.
    """
    of = [(one.temperature, _uniform(one.seed, one.position)) for one in draws]
    temperatures, places = torch.tensor(of, dtype=torch.float64, device=logits.device).T[..., None]
    scores = logits.double() - best.double()[:, None]
    sums = (scores / temperatures).exp().cumsum(-1)
    chosen = torch.searchsorted(sums, places * sums[:, -1:], right=True)
    found: list[int] = chosen[:, 0].tolist()
    return found


def _uniform(seed: int, position: int) -> float:
    """Return a number from [0, 1) that belongs to a place in a stream, and to nothing else.

    With 52 bits its product with a sum always stays below the sum.
    """
    digest = hashlib.blake2b(f"{seed}/{position}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 12) * 2.0**-52
