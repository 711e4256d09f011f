"""Freeing sequences: whoever ends a request goes on, whatever the engine raises."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from timely_llm.core.errors import EngineLost
from timely_llm.engines.contract import Engine
from timely_llm.serving.failures import Failures

log = logging.getLogger(__name__)
RETRY_S = 0.5
"""How often the engine is asked again to free what it could not free, seconds."""
MOST_TRIES = 10


class Removals:
    """Removes sequences from the engine, and tries again where that fails.

    A sequence that cannot be removed keeps its KV. So that memory does not run out without a word,
    an engine that fails to free one `MOST_TRIES` times counts as lost.

    Args:
        engine: where the sequences are.
        now: tells seconds.
    """

    def __init__(self, engine: Engine, now: Callable[[], float] = time.monotonic) -> None:
        self._engine = engine
        self._now = now
        self._tries: dict[str, int] = {}
        self._tried_s = 0.0
        self._failures = Failures(log, "the engine could not free a sequence", now)
        self._lost: EngineLost | None = None

    def __len__(self) -> int:
        return len(self._tries)

    def remove(self, key: str) -> None:
        """Free everything of a sequence; what goes wrong is noted, never raised."""
        try:
            self._engine.remove(key)
        except EngineLost as error:
            self._lost = error
        except Exception as error:
            self._failures.add(error)
            self._tries[key] = self._tries.get(key, 0) + 1
            self._tried_s = self._now()
        else:
            self._tries.pop(key, None)

    def retry(self) -> None:
        """Try again what failed before, from time to time.

        Raises:
            EngineLost: it failed too often, or the engine said that it has ended.
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
