"""A script's words, with another engine's steps: its model computes, but is not listened to.

So a workload of known texts can be served by an engine whose weights mean nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from timely_llm.core.errors import EngineError
from timely_llm.engines.contract import GREEDY, Decoding, Engine, Prefix, StepResult
from timely_llm.engines.script_tokenizer import ScriptTokenizer
from timely_llm.policies.contract import Capacity, StepPlan

Words = Callable[[str], Sequence[str]]
"""key -> the whole answer, each text one token."""


class ScriptedEngine:
    """Every prompt and every answer is the script's; all else is the other engine's.

    Whoever uses it sees tokens of the script alone. The other engine computes as many tokens of its
    model's: of a prompt, one that stands for each of the script's; of an answer, whatever its model
    says. After its last word a sequence goes on ending. Outside words are computed, and change
    nothing in what comes next.

    Args:
        engine: a real one.
        vocabulary: how many tokens its model has.
        script: what sequences say.
        tokenizer: the script's words.

    Raises:
        EngineError: the vocabulary is empty.
    """

    def __init__(
        self, engine: Engine, vocabulary: int, script: Words, tokenizer: ScriptTokenizer
    ) -> None:
        if vocabulary < 1:
            raise EngineError(f"a model needs at least one token, not {vocabulary}")
        self.tokenizer = tokenizer
        self.in_flight = engine.in_flight
        self.ahead = engine.ahead
        self._engine = engine
        self._vocabulary = vocabulary
        self._script = script
        self._answers: dict[str, list[int]] = {}
        self._said: dict[str, int] = {}
        self._pinned: set[tuple[int, ...]] = set()

    @property
    def capacity(self) -> Capacity:
        """What the next step can take."""
        return self._engine.capacity

    def pin_prefix(self, token_ids: Sequence[int]) -> Prefix:
        """Compute a prefix and keep its KV; see `Engine.pin_prefix`."""
        self._engine.pin_prefix(self._stand_ins(token_ids))
        self._pinned.add(tuple(token_ids))
        return Prefix(tuple(token_ids))

    def prepare_prefix(self, token_ids: Sequence[int], tokens: int) -> int:
        """Compute a part of a prefix; see `Engine.prepare_prefix`."""
        return self._engine.prepare_prefix(self._stand_ins(token_ids), tokens)

    def unpin_prefix(self, token_ids: Sequence[int]) -> None:
        """Free a prefix, unless the same tokens stand for another; see `Engine.unpin_prefix`."""
        stand_ins = self._stand_ins(token_ids)
        others = self._pinned - {tuple(token_ids)}
        if all(self._stand_ins(other) != stand_ins for other in others):
            self._engine.unpin_prefix(stand_ins)
        self._pinned = others

    def add(
        self,
        key: str,
        token_ids: Sequence[int],
        prefix: Prefix | None = None,
        decoding: Decoding = GREEDY,
    ) -> int:
        """Make a sequence known; see `Engine.add`. Nothing is drawn, and no grammar holds."""
        pinned = prefix and Prefix(tuple(self._stand_ins(prefix.token_ids)))
        left = self._engine.add(key, self._stand_ins(token_ids), pinned)
        self._begin(key)
        return left

    def submit(self, plan: StepPlan) -> None:
        """Start a step; see `Engine.submit`."""
        self._engine.submit(plan)

    def collect(self) -> StepResult:
        """Return what the oldest step did, with the script's words."""
        result = self._engine.collect()
        tokens = {key: self._next(key, len(made)) for key, made in result.tokens.items()}
        return replace(result, tokens=tokens)

    def take_back(self, key: str, tokens: int) -> int:
        """Forget the newest tokens of a sequence, which are said again; see `Engine.take_back`."""
        left = self._engine.take_back(key, tokens)
        self._said[key] -= tokens
        return left

    def append(self, key: str, token_ids: Sequence[int], drop: int = 0) -> int:
        """Add outside words; see `Engine.append`."""
        return self._engine.append(key, self._stand_ins(token_ids), drop)

    def resume(
        self, key: str, new_key: str, token_ids: Sequence[int], decoding: Decoding = GREEDY
    ) -> int:
        """Go on with a sequence under another name, with that one's words; see `Engine.resume`."""
        left = self._engine.resume(key, new_key, self._stand_ins(token_ids))
        self._forget(key)
        self._begin(new_key)
        return left

    def remove(self, key: str) -> None:
        """Free everything of a sequence at once; an unknown key is not an error."""
        self._engine.remove(key)
        self._forget(key)

    def close(self) -> None:
        """Free the engine."""
        self._engine.close()

    def _begin(self, key: str) -> None:
        self._answers[key] = self.tokenizer.ids(self._script(key))
        self._said[key] = 0

    def _forget(self, key: str) -> None:
        self._answers.pop(key, None)
        self._said.pop(key, None)

    def _next(self, key: str, number: int) -> tuple[int, ...]:
        """Return the next words of a sequence."""
        begin = self._said[key]
        self._said[key] += number
        words = self._answers[key][begin : begin + number]
        return (*words, *[self.tokenizer.eos_id] * (number - len(words)))

    def _stand_ins(self, token_ids: Iterable[int]) -> list[int]:
        return [token_id % self._vocabulary for token_id in token_ids]
