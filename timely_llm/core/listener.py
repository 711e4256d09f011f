"""Who hears or reads an answer: words are consumed at a steady speed."""

from __future__ import annotations

import math

READING_WORDS_PER_S = 5.0
SPEAKING_WORDS_PER_S = 3.0
SLOWEST_WORDS_PER_S, FASTEST_WORDS_PER_S = 0.1, 1000.0


class Listener:
    """Consumes words as they come, and stalls when there are none.

    What is buffered is credit: so long the next word is not missed.

    Args:
        words_per_s: speed of reading or of speech, above 0.

    Attributes:
        stalled_s: seconds without a word to consume, after the first one came.
    """

    def __init__(self, words_per_s: float = READING_WORDS_PER_S) -> None:
        self._words_per_s = words_per_s
        self._dry_s = math.nan  # when all that came is consumed
        self._in_word = False
        self.stalled_s = 0.0

    def hear(self, text: str, now: float) -> None:
        """Take text that came at `now`; a word counts as soon as it begins."""
        words = 0
        for character in text:
            if character.isspace():
                self._in_word = False
            elif not self._in_word:
                self._in_word = True
                words += 1
        if not words:
            return
        if math.isnan(self._dry_s):
            self._dry_s = now
        elif now > self._dry_s:
            self.stalled_s += now - self._dry_s
            self._dry_s = now
        self._dry_s += words / self._words_per_s

    def credit_s(self, now: float) -> float:
        """Return the seconds until all that came is consumed; below 0 while it waits for more."""
        return 0.0 if math.isnan(self._dry_s) else self._dry_s - now
