"""A real model at the pace of a larger one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from timely_llm.engines.contract import GREEDY, Decoding, Engine, Prefix, StepResult
from timely_llm.engines.profiles import Profile
from timely_llm.engines.tokenizer_contract import Tokenizer
from timely_llm.policies.contract import Capacity, StepPlan


class PacedEngine:
    """Makes each step of another engine last at least as long as a profile says.

    So a small embedded model can be served at the pace of, say, an 8B model on a named GPU. The
    wait is part of a step's `duration_s`. A step that takes longer by itself is not made shorter.

    Args:
        engine: does the steps, one at a time.
        profile: how long they should take.
    """

    in_flight = 1
    ahead = False

    def __init__(self, engine: Engine, profile: Profile) -> None:
        self.tokenizer: Tokenizer = engine.tokenizer
        self._engine = engine
        self._profile = profile
        self._started_s = 0.0
        self._context: dict[str, int] = {}
        self._shared: dict[str, int] = {}

    @property
    def capacity(self) -> Capacity:
        """What the next step can take."""
        return self._engine.capacity

    def pin_prefix(self, token_ids: Sequence[int]) -> Prefix:
        """Pin a prefix, at the engine's own pace."""
        return self._engine.pin_prefix(token_ids)

    def prepare_prefix(self, token_ids: Sequence[int], tokens: int) -> int:
        """Compute a part of a prefix, at the engine's own pace; see `Engine.prepare_prefix`."""
        return self._engine.prepare_prefix(token_ids, tokens)

    def unpin_prefix(self, token_ids: Sequence[int]) -> None:
        """Free the KV of a prefix; see `Engine.unpin_prefix`."""
        self._engine.unpin_prefix(token_ids)

    def add(
        self,
        key: str,
        token_ids: Sequence[int],
        prefix: Prefix | None = None,
        decoding: Decoding = GREEDY,
    ) -> int:
        """Make a sequence known; see `Engine.add`."""
        left = self._engine.add(key, token_ids, prefix, decoding)
        self._context[key] = self._shared[key] = len(token_ids) - left
        return left

    def submit(self, plan: StepPlan) -> None:
        """Start a step; see `Engine.submit`."""
        self._started_s = time.monotonic()
        self._engine.submit(plan)

    def collect(self) -> StepResult:
        """Wait until the step has taken its time and return what it did."""
        result = self._engine.collect()
        planned = result.planned
        rows, prefill = planned.count(1), sum(tokens for tokens in planned if tokens > 1)
        context = sum(self._context.get(key, 0) for key in result.computed)
        for key in result.evicted:
            if key in self._context:  # else it was removed since, as in those below
                self._context[key] = self._shared[key]
        for key, tokens in (*result.loaded.items(), *result.computed.items()):
            if key in self._context:
                self._context[key] += tokens
        due_s = self._started_s + self._profile.step_s(rows, prefill, context)
        while (rest_s := due_s - time.monotonic()) > 0:
            time.sleep(rest_s)
        return replace(result, duration_s=time.monotonic() - self._started_s)

    def take_back(self, key: str, tokens: int) -> int:
        """Forget the newest tokens of a sequence; see `Engine.take_back`."""
        left = self._engine.take_back(key, tokens)
        if tokens:
            self._context[key] += 1 - tokens - left
        return left

    def append(self, key: str, token_ids: Sequence[int], drop: int = 0) -> int:
        """Add outside words; see `Engine.append`."""
        return self._engine.append(key, token_ids, drop)

    def resume(
        self, key: str, new_key: str, token_ids: Sequence[int], decoding: Decoding = GREEDY
    ) -> int:
        """Go on with a sequence under another name; see `Engine.resume`."""
        left = self._engine.resume(key, new_key, token_ids, decoding)
        for of in (self._context, self._shared):
            of[new_key] = of.pop(key)
        return left

    def remove(self, key: str) -> None:
        """Free everything of a sequence at once; an unknown key is not an error."""
        self._engine.remove(key)
        self._context.pop(key, None)
        self._shared.pop(key, None)

    def close(self) -> None:
        """Free the engine."""
        self._engine.close()
