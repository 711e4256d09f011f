"""Freeing sequences: the end of a request never fails, whatever the engine raises."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from timely_llm.core.errors import EngineLost
from timely_llm.core.generation import Generation
from timely_llm.engines.contract import Engine
from timely_llm.serving.failures import Failures

log = logging.getLogger(__name__)
RETRY_S = 0.5
"""How often the engine is asked again to free what it could not free, seconds."""
MOST_TRIES = 10


class Removals:
    """Removes sequences from the engine, and tries again where that fails.

    A sequence that cannot be removed keeps its KV. Memory must not run out
    unnoticed: an engine that fails to free one `MOST_TRIES` times counts as lost.

    Args:
        engine: where the sequences are.
        now: returns seconds.

    Attributes:
        pending: whether a sequence waits for another try, or the engine has ended.
    """

    def __init__(self, engine: Engine, now: Callable[[], float] = time.monotonic) -> None:
        self._engine = engine
        self._now = now
        self._tries: dict[str, int] = {}
        self._tried_s = 0.0
        self._failures = Failures(log, "the engine could not free a sequence", now)
        self._lost: EngineLost | None = None
        self.pending = False

    def __len__(self) -> int:
        return len(self._tries)

    def remove(self, key: str) -> None:
        """Free everything of a sequence; what goes wrong is noted, never raised."""
        try:
            self._engine.remove(key)
        except EngineLost as error:
            self._lost, self.pending = error, True
        except Exception as error:
            self._failures.add(error)
            self._tries[key] = self._tries.get(key, 0) + 1
            self._tried_s, self.pending = self._now(), True
        else:
            if self._tries.pop(key, None):
                self.pending = bool(self._tries) or self._lost is not None

    def retry(self) -> None:
        """Try again what failed before, from time to time.

        Raises:
            EngineLost: it failed too often, or the engine reported that it has ended.
        """
        if self._lost is not None:
            raise self._lost
        if not self._tries or self._now() < self._tried_s + RETRY_S:
            return
        for key in list(self._tries):
            self.remove(key)
        most = max(self._tries.values(), default=0)
        if most >= MOST_TRIES:
            raise EngineLost(
                f"the engine could not free a sequence in {most} tries: {self._failures.last}"
            )


def take_back(engine: Engine, generation: Generation, tokens: int = 0) -> None:
    """Discard the tokens that steps in flight will bring a generation, and its newest ones.

    Args:
        engine: has its sequence.
        generation: of the sequence.
        tokens: how many of the newest.
    """
    if generation.pending_tokens or tokens:
        generation.set_progress(engine.take_back(generation.key, tokens))
