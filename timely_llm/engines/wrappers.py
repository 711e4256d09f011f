"""Engines that wrap another engine: its pace or its words change, the rest is forwarded."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from timely_llm.core.errors import EngineError
from timely_llm.core.step import Capacity, SequenceProgress, StepPlan, StepResult
from timely_llm.engines.contract import GREEDY, Decoding, Engine, Prefix, Tokenizer
from timely_llm.engines.simulated import Profile, ScriptTokenizer


class ForwardingEngine:
    """Forwards every call to an inner engine; a subclass overrides what it changes.

    Args:
        engine: the inner engine; this one closes it.
    """

    tokenizer: Tokenizer

    def __init__(self, engine: Engine) -> None:
        self.tokenizer = engine.tokenizer
        self.in_flight = engine.in_flight
        self.async_scheduling = engine.async_scheduling
        self._engine = engine

    @property
    def capacity(self) -> Capacity:
        """Limits of the next step."""
        return self._engine.capacity

    def pin_prefix(self, token_ids: Sequence[int]) -> Prefix:
        """Compute a prefix and keep its KV; see `Engine.pin_prefix`."""
        return self._engine.pin_prefix(token_ids)

    def prepare_prefix(self, token_ids: Sequence[int], tokens: int) -> int:
        """Compute a part of a prefix; see `Engine.prepare_prefix`."""
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
    ) -> SequenceProgress:
        """Add a sequence; see `Engine.add`."""
        return self._engine.add(key, token_ids, prefix, decoding)

    def submit(self, plan: StepPlan) -> Mapping[str, SequenceProgress]:
        """Start a step; see `Engine.submit`."""
        return self._engine.submit(plan)

    def collect(self) -> StepResult:
        """Wait for the oldest step; see `Engine.collect`."""
        return self._engine.collect()

    def take_back(self, key: str, tokens: int) -> SequenceProgress:
        """Remove the newest tokens of a sequence; see `Engine.take_back`."""
        return self._engine.take_back(key, tokens)

    def append(self, key: str, token_ids: Sequence[int], drop: int = 0) -> SequenceProgress:
        """Add tool output; see `Engine.append`."""
        return self._engine.append(key, token_ids, drop)

    def resume(
        self,
        key: str,
        new_key: str,
        token_ids: Sequence[int],
        decoding: Decoding = GREEDY,
        keep: int | None = None,
    ) -> SequenceProgress:
        """Rename a sequence and add tokens; see `Engine.resume`."""
        return self._engine.resume(key, new_key, token_ids, decoding, keep)

    def remove(self, key: str) -> None:
        """Free everything of a sequence at once; an unknown key is not an error."""
        self._engine.remove(key)

    def close(self) -> None:
        """Free the engine."""
        self._engine.close()


class PacedEngine(ForwardingEngine):
    """Delays each step of an inner engine to the seconds of a profile.

    So a small embedded model is served at the pace of, for example, an 8B model on a GPU. The delay
    counts as a part of `duration_s`. A step that is slower by itself is not delayed.

    Args:
        engine: the inner engine; it runs one step at a time.
        profile: least seconds of steps.
    """

    def __init__(self, engine: Engine, profile: Profile) -> None:
        super().__init__(engine)
        self.in_flight = 1
        self.async_scheduling = False
        self._profile = profile
        self._started_s = 0.0

    @property
    def capacity(self) -> Capacity:
        """Limits of the next step. With one step in flight, stages are one stage."""
        return replace(self._engine.capacity, stages=1, micro_batches=1)

    def submit(self, plan: StepPlan) -> Mapping[str, SequenceProgress]:
        """Start a step; see `Engine.submit`."""
        self._started_s = time.monotonic()
        return super().submit(plan)

    def collect(self) -> StepResult:
        """Wait until the step has taken its time and return its result."""
        result = super().collect()
        planned = result.planned
        rows, prefill = planned.count(1), sum(tokens for tokens in planned if tokens > 1)
        due_s = self._started_s + self._profile.step_s(rows, prefill, _context_before(result))
        while (rest_s := due_s - time.monotonic()) > 0:
            time.sleep(rest_s)
        return replace(result, duration_s=time.monotonic() - self._started_s)


def _context_before(result: StepResult) -> int:
    """Return the context tokens of a step's sequences before the step."""
    return sum(
        result.progress[key].context_tokens - tokens - result.loaded.get(key, 0)
        for key, tokens in result.computed.items()
        if key in result.progress
    )


AnswerByKey = Callable[[str], Sequence[str]]
"""key -> the whole answer; each text is one token."""


class ScriptedEngine(ForwardingEngine):
    """Replaces the prompts and answers of an inner engine by those of a script.

    So an engine with a meaningless model serves a workload of known texts. Callers see tokens of
    the script only. The inner engine computes the same number of tokens of its own model: one for
    each prompt token of the script, and the answers of its model. Past the script's end, every
    token is EOS. Tool output is computed and does not change the script.

    Args:
        engine: the inner engine.
        vocabulary: tokens of its model's vocabulary.
        script: the answers.
        tokenizer: tokenizer of the script.

    Raises:
        EngineError: the vocabulary is empty.
    """

    tokenizer: ScriptTokenizer

    def __init__(
        self, engine: Engine, vocabulary: int, script: AnswerByKey, tokenizer: ScriptTokenizer
    ) -> None:
        if vocabulary < 1:
            raise EngineError(f"a model needs at least one token, not {vocabulary}")
        super().__init__(engine)
        self.tokenizer = tokenizer
        self._vocabulary = vocabulary
        self._script = script
        self._answers: dict[str, list[int]] = {}
        self._said: dict[str, int] = {}
        self._pinned: set[tuple[int, ...]] = set()

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
    ) -> SequenceProgress:
        """Add a sequence; see `Engine.add`. Temperature and grammar have no effect."""
        pinned = prefix and Prefix(tuple(self._stand_ins(prefix.token_ids)))
        progress = self._engine.add(key, self._stand_ins(token_ids), pinned)
        self._begin(key)
        return progress

    def collect(self) -> StepResult:
        """Return the result of the oldest step, with tokens of the script."""
        result = self._engine.collect()
        tokens = {key: self._next(key, len(made)) for key, made in result.tokens.items()}
        return replace(result, tokens=tokens)

    def take_back(self, key: str, tokens: int) -> SequenceProgress:
        """Remove the newest tokens, which the script repeats; see `Engine.take_back`."""
        progress = self._engine.take_back(key, tokens)
        self._said[key] -= tokens
        return progress

    def append(self, key: str, token_ids: Sequence[int], drop: int = 0) -> SequenceProgress:
        """Add tool output; see `Engine.append`."""
        return self._engine.append(key, self._stand_ins(token_ids), drop)

    def resume(
        self,
        key: str,
        new_key: str,
        token_ids: Sequence[int],
        decoding: Decoding = GREEDY,
        keep: int | None = None,
    ) -> SequenceProgress:
        """Rename a sequence; the script answers by the new name; see `Engine.resume`."""
        progress = self._engine.resume(key, new_key, self._stand_ins(token_ids), keep=keep)
        self._forget(key)
        self._begin(new_key)
        return progress

    def remove(self, key: str) -> None:
        """Free everything of a sequence at once; an unknown key is not an error."""
        self._engine.remove(key)
        self._forget(key)

    def _begin(self, key: str) -> None:
        self._answers[key] = self.tokenizer.ids(self._script(key))
        self._said[key] = 0

    def _forget(self, key: str) -> None:
        self._answers.pop(key, None)
        self._said.pop(key, None)

    def _next(self, key: str, number: int) -> tuple[int, ...]:
        """Return the next tokens of a sequence."""
        begin = self._said[key]
        self._said[key] += number
        words = self._answers[key][begin : begin + number]
        return (*words, *[self.tokenizer.eos_id] * (number - len(words)))

    def _stand_ins(self, token_ids: Iterable[int]) -> list[int]:
        return [token_id % self._vocabulary for token_id in token_ids]
