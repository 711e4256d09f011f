"""A plan that is alone on an engine: it is suspended, resumed and evicted, token by token."""

from __future__ import annotations

from collections.abc import Sequence

from timely_llm.core.errors import EngineError
from timely_llm.core.step import StepPlan, StepResult
from timely_llm.engines.contract import Engine, Prefix

PROMPT_TOKENS = 2884
"""Tokens of a prompt (Ling et al. 2024, Table 1)."""

KEY = "plan"
_OTHER = "other"


class SuspendedPlan:
    """A plan with a prompt and some generated tokens.

    Args:
        engine: an engine without other sequences.
        prompt: token ids of the prompt.
        prefix: the pinned prefix of the prompt.
        tokens: tokens that the plan generates before its suspension.
    """

    def __init__(
        self, engine: Engine, prompt: Sequence[int], prefix: Prefix | None, tokens: int
    ) -> None:
        self._engine = engine
        self._token_ids = list(prompt)
        engine.add(KEY, self._token_ids, prefix)
        for _ in range(tokens):
            self.until_token()

    @property
    def token_ids(self) -> tuple[int, ...]:
        """Token ids of the prompt and of all that was generated."""
        return tuple(self._token_ids)

    def until_token(self) -> int:
        """Make steps until the next token; return the number of recomputed tokens."""
        computed = 0
        while True:
            result = self._step(KEY)
            computed += result.computed.get(KEY, 0)
            if result.tokens:
                self._token_ids += result.tokens[KEY]
                return computed - 1

    def anew(self, prefix: Prefix | None) -> int:
        """Remove the plan and add all its tokens again; return as `until_token` does."""
        self._engine.remove(KEY)
        self._engine.add(KEY, self._token_ids, prefix)
        return self.until_token()

    def evict(self, token_ids: Sequence[int]) -> None:
        """Evict the plan's KV for another sequence, which then ends.

        Raises:
            EngineError: the engine evicts nothing.
        """
        self._engine.add(_OTHER, token_ids)
        evicted = False
        while not (result := self._step(_OTHER, evictable=(KEY,))).tokens:
            evicted |= KEY in result.evicted
        self._engine.remove(_OTHER)
        if not evicted and KEY not in result.evicted:
            raise EngineError("the engine did not evict the plan's KV")

    def end(self) -> None:
        """Remove the plan from the engine."""
        self._engine.remove(KEY)

    def _step(self, key: str, evictable: tuple[str, ...] = ()) -> StepResult:
        most = self._engine.capacity.max_step_tokens
        self._engine.submit(StepPlan(((key, most),), evictable))
        result = self._engine.collect()
        for failure in result.failures.values():
            raise EngineError(f"the plan cannot be resumed: {failure}")
        return result
