"""Tokens that a grammar allows next, by the library llguidance."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np

from timely_llm.core.errors import EngineError, EngineSettingError, first_line


class Grammars:
    """Compiles grammars for the vocabulary of one model, each grammar once.

    Args:
        tokenizer: tokenizer of the library transformers.
        eos_ids: tokens that end an answer.
        vocabulary: number of tokens that the model chooses from.
    """

    def __init__(self, tokenizer: Any, eos_ids: frozenset[int], vocabulary: int) -> None:
        self._tokenizer = tokenizer
        self._eos_ids = sorted(eos_ids)
        self._vocabulary = vocabulary
        self._words: Any = None
        self._compiled: dict[str, Any] = {}

    def matcher(self, grammar: str, read: Sequence[int] = ()) -> Matcher:
        """Return a new matcher of a grammar.

        Args:
            grammar: in Lark's notation.
            read: tokens that it has read; empty: it is at the beginning.

        Raises:
            EngineError: llguidance is not installed, does not know the tokenizer, or cannot read
                the grammar; or the grammar does not allow the tokens.
        """
        if self._words is None:
            self._words = self._read_words()
        if grammar not in self._compiled:
            from llguidance import LLMatcher

            written = LLMatcher.grammar_from_lark(grammar)
            compiled = LLMatcher(self._words, written, log_level=0)
            if compiled.is_error():
                raise EngineError(f"the grammar cannot be used: {first_line(compiled.get_error())}")
            self._compiled[grammar] = compiled
        made = Matcher(self._compiled[grammar].deep_copy(), self._words, self._vocabulary)
        for token_id in read:
            made.take(token_id)
        return made

    def _read_words(self) -> Any:
        try:
            import llguidance  # noqa: F401 # the module below alone does not show that it is installed
            from llguidance.hf import from_tokenizer
        except ImportError as error:
            raise EngineSettingError(
                "decoding by a grammar needs the package llguidance, which is not installed:"
                " pip install 'timely_llm[server]'"
            ) from error
        if not self._eos_ids:
            raise EngineError("decoding by a grammar needs a model with an end-of-text token")
        words = max(self._vocabulary, len(self._tokenizer))
        try:
            return from_tokenizer(self._tokenizer, n_vocab=words, eos_token=self._eos_ids)
        except Exception as error:  # an unknown kind of tokenizer can raise anything
            raise EngineError(
                f"decoding by a grammar does not work with this model's tokenizer:"
                f" {first_line(error)}"
            ) from error


class Matcher:
    """The state of one sequence in its grammar."""

    def __init__(self, matcher: Any, words: Any, vocabulary: int) -> None:
        self._matcher = matcher
        self._words = words
        self._vocabulary = vocabulary

    def forbidden(self) -> np.ndarray:
        """Return which tokens are forbidden next, [vocabulary]; at the end all but EOS."""
        allowed = self.allowed().view(np.uint8)
        return np.unpackbits(~allowed, count=self._vocabulary, bitorder="little").view(np.bool_)

    def allowed(self) -> np.ndarray:
        """Return the allowed tokens as bits of int32 words, the lowest token first."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.int32)
        self._check()
        return bits

    def take(self, token_id: int) -> None:
        """Advance by an allowed token."""
        if not self._matcher.is_stopped():
            self._matcher.consume_token(token_id)
            self._check()

    def replace(self, token_id: int, words: list[int]) -> None:
        """Take the newest token back, but for the beginning that tool output has in common with it.

        Args:
            token_id: the newest token.
            words: the tool output that replaces it; the grammar reads nothing else of it.
        """
        old, new = self._words.decode_bytes([token_id]), self._words.decode_bytes(words)
        alike = takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False))
        kept = bytes(one for one, _ in alike)
        self._matcher.rollback(1)
        if kept:
            self._matcher.consume_tokens(self._words.tokenize_bytes(kept))
        self._check()

    def _check(self) -> None:
        if self._matcher.is_error():
            reason = first_line(self._matcher.get_error())
            raise EngineError(f"the sequence left its grammar: {reason}")


FIELD = "prose_answers"
"""Field of a model's config.json; true: without a grammar, it answers people with plans."""


def asks_for_prose(model: str | Path) -> bool:
    """Return whether the config.json in a model's folder has `FIELD` true; false for hub ids."""
    try:
        config = json.loads((Path(model) / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False  # loading the model reports what is wrong
    return isinstance(config, dict) and config.get(FIELD) is True
