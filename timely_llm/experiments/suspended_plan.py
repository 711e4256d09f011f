"""One plan on an engine, which is suspended and goes on: steps until its next token."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import cycle, islice

from timely_llm.core.errors import EngineError
from timely_llm.engines.contract import Engine, Prefix, StepResult
from timely_llm.policies.contract import StepPlan

KEY = "plan"
_OTHER = "other"


class SuspendedPlan:
    """A plan with a prompt, and all that it has said so far.

    Args:
        engine: has no other sequences.
        prompt: its token ids.
        prefix: what of it is pinned.
        said: tokens that it says at once.
    """

    def __init__(
        self, engine: Engine, prompt: Sequence[int], prefix: Prefix | None, said: int
    ) -> None:
        self._engine = engine
        self._token_ids = list(prompt)
        engine.add(KEY, self._token_ids, prefix)
        for _ in range(said):
            self.until_token()

    def until_token(self) -> int:
        """Make steps until the next token is there; return how many were computed again."""
        computed = 0
        while True:
            result = self._step(KEY)
            computed += result.computed.get(KEY, 0)
            if result.tokens:
                self._token_ids += result.tokens[KEY]
                return computed - 1

    def anew(self, prefix: Prefix | None) -> int:
        """Forget the plan, and give the engine all its tokens; return as `until_token` does."""
        self._engine.remove(KEY)
        self._engine.add(KEY, self._token_ids, prefix)
        return self.until_token()

    def evict(self, token_ids: Sequence[int]) -> None:
        """Let it give up its KV for another sequence, which then ends.

        Raises:
            EngineError: it need not.
        """
        self._engine.add(_OTHER, token_ids)
        evicted = False
        while not (result := self._step(_OTHER, evictable=(KEY,))).tokens:
            evicted |= KEY in result.evicted
        self._engine.remove(_OTHER)
        if not evicted and KEY not in result.evicted:
            raise EngineError("the plan's KV was not given up")

    def end(self) -> None:
        """Free it."""
        self._engine.remove(KEY)

    def _step(self, key: str, evictable: tuple[str, ...] = ()) -> StepResult:
        most = self._engine.capacity.max_step_tokens
        self._engine.submit(StepPlan(((key, most),), evictable))
        result = self._engine.collect()
        for failure in result.failures.values():
            raise EngineError(f"the plan cannot go on: {failure}")
        return result


def words(engine: Engine, tokens: int, first: int = 0) -> list[int]:
    """Return so many tokens of a text; `first` is the number that it begins with."""
    rooms = range(first, first + 90)
    numbers = " ".join(f"Room {number} has {number % 7} chairs." for number in rooms)
    return list(islice(cycle(engine.tokenizer.encode(numbers)), tokens))


def taken(work: Callable[[], int]) -> tuple[int, float, float]:
    """Do some work; return what came of it, its seconds, and those of the CPU."""
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    made = work()
    return made, time.perf_counter() - wall_s, time.process_time() - cpu_s
