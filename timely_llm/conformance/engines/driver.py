"""Drives an engine step by step, and compares what it says with what its plans asked for."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence

from timely_llm.conformance.check import expect, expect_same
from timely_llm.core.step import SequenceProgress, StepPlan, StepResult
from timely_llm.engines.contract import GREEDY, Decoding, Engine, Prefix

ANSWER = 24
"""Tokens of each answer."""
MOST_IDLE = 100
"""Steps for one sequence alone that may bring nothing, such as while its KV is on its way."""
FIXED = "You control a small drone. Answer with a plan and nothing else, one skill a line. "
TASKS = {
    "a": "Find the apple.",
    "b": "Go to the chair, and if there is a cup on it, take a picture of the cup.",
    "c": "Turn!",
    "d": "Look around for my keys; say yes when you have found them, say no otherwise.",
}
PROMPTS = {key: FIXED + task for key, task in TASKS.items()}
"""Prompts that begin alike."""
GRAMMAR = 'start: (/[a-z]{1,6}/ ";" | /[0-9]+/ "!")+'
DECODINGS = {
    "a": GREEDY,
    "b": Decoding(0.7, seed=1),
    "c": Decoding(1.5, seed=2),
    "d": Decoding(1.0, seed=3, grammar=GRAMMAR),
}
"""A sequence of each kind; an engine without sampling answers all of them alike."""


class Driver:
    """Runs steps and notes what came of them.

    An engine may store and share KV only in whole blocks of `block_tokens`: appended words then
    cost it the rest of the last block. Tokens with KV that was found or fetched count as computed
    here, and as recomputed if they were.
    """

    def __init__(self, engine: Engine, decodings: Mapping[str, Decoding] = DECODINGS) -> None:
        self.engine = engine
        self.decodings = decodings
        self.block_tokens: int = getattr(engine, "block_tokens", 1)
        self.left: Counter[str] = Counter()
        self.kept: Counter[str] = Counter()
        self.computed: Counter[str] = Counter()
        self.recomputed: Counter[str] = Counter()
        self.loaded: Counter[str] = Counter()
        self.reached: Counter[str] = Counter()
        self.loading: set[str] = set()
        self.said: dict[str, list[int]] = {}

    def add(
        self, key: str, text: str, prefix: Prefix | None = None, decoding: Decoding = GREEDY
    ) -> int:
        """Add a text; return how many tokens are left to compute."""
        return self.add_ids(key, self.engine.tokenizer.encode(text), prefix, decoding)

    def add_task(self, key: str, prefix: Prefix | None = None) -> int:
        """Add one of the tasks, decoded its own way."""
        return self.add(key, PROMPTS[key], prefix, self.decodings[key])

    def add_ids(
        self,
        key: str,
        token_ids: list[int],
        prefix: Prefix | None = None,
        decoding: Decoding = GREEDY,
    ) -> int:
        """Add tokens; return how many are left to compute."""
        progress = self.engine.add(key, token_ids, prefix, decoding)
        self.left[key] = progress.to_compute
        self.said[key] = []
        self.kept[key] = 0
        expect_same(f"tokens that add({key!r}) counts", progress.tokens, len(token_ids))
        self.expect_progress(key, progress, f"add({key!r})")
        del self.computed[key], self.recomputed[key], self.loaded[key], self.reached[key]
        self.loading.discard(key)
        return self.left[key]

    def append(self, key: str, text: str, drop: int = 0) -> None:
        """Append tool output."""
        token_ids = self.engine.tokenizer.encode(text)
        self.left[key] += len(token_ids) - drop + self.cut(key)
        progress = self.engine.append(key, token_ids, drop)
        self.expect_progress(key, progress, f"append({key!r})")

    def resume(self, key: str, new_key: str, text: str) -> None:
        """Go on with a sequence under another name."""
        self.resume_ids(key, new_key, self.engine.tokenizer.encode(text))

    def resume_ids(
        self,
        key: str,
        new_key: str,
        token_ids: list[int],
        keep: int | None = None,
        decoding: Decoding = GREEDY,
    ) -> None:
        """Go on with a sequence without prefix, or with its first tokens, under another name."""
        for of in (self.left, self.kept, self.reached):
            of[new_key] = of.pop(key, 0)
        if keep is not None:
            self.kept[new_key] = min(self.kept[new_key], keep)
            self.left[new_key] = keep - self.kept[new_key]
            self.reached[new_key] = min(self.reached[new_key], keep)
        self.left[new_key] += len(token_ids) + self.cut(new_key)
        del self.computed[new_key]
        self.said[new_key] = []
        progress = self.engine.resume(key, new_key, token_ids, decoding, keep)
        self.expect_progress(new_key, progress, f"resume({key!r})")

    def take_back(self, key: str, tokens: int) -> None:
        """Forget the newest tokens of a sequence."""
        del self.said[key][-tokens:]
        self.kept[key] -= tokens
        self.left[key] += self.cut(key)
        progress = self.engine.take_back(key, tokens)
        self.expect_progress(key, progress, f"take_back({key!r})")

    def expect_progress(self, key: str, progress: SequenceProgress, what: str) -> None:
        """Compare how far a sequence is with what its steps computed."""
        expect_same(f"tokens that {what} leaves to compute", progress.to_compute, self.left[key])
        expect_same(f"tokens of KV after {what}", progress.kv_tokens, self.kept[key])

    def cut(self, key: str) -> int:
        """Keep only whole blocks of a sequence; return how many tokens that costs."""
        lost = self.kept[key] % self.block_tokens
        self.kept[key] -= lost
        return lost

    def whole_blocks(self, tokens: int) -> int:
        """Return how many of some tokens fill whole blocks."""
        return tokens // self.block_tokens * self.block_tokens

    def stored(self, *keys: str) -> int:
        """Return the tokens that the blocks of some sequences can hold."""
        return -sum(-self.kept[key] // self.block_tokens for key in keys) * self.block_tokens

    def step(
        self, entries: dict[str, int], evictable: Sequence[str] = (), lost: Sequence[str] = ()
    ) -> StepResult:
        """Make a step and check that exactly its sequences went on, as far as the plan says.

        Sequences compute nothing while their KV is loading, nor do `lost` ones with broken KV.
        """
        wanted = {key: min(tokens, self.left[key]) for key, tokens in entries.items()}
        self.engine.submit(StepPlan(tuple(entries.items()), tuple(evictable)))
        result = self.engine.collect()
        for key, tokens in result.loaded.items():
            if self.reached[key] > self.kept[key]:
                self.recomputed[key] += min(tokens, self.reached[key] - self.kept[key])
            self.left[key] -= tokens
            self.kept[key] += tokens
            if key in wanted:
                wanted[key] = min(entries[key], self.left[key])
        self.loaded.update(result.loaded)
        self.computed.update(result.loaded)
        resting = {*result.failures, *result.waiting_for_kv, *self.loading}
        resting |= set(lost) - result.computed.keys()
        self.loading = (self.loading | set(result.loading)) - result.loaded.keys()
        served = {key: tokens for key, tokens in wanted.items() if key not in resting}
        beyond = {key: len(result.tokens[key]) - 1 for key in result.speculative}
        for key, most in result.speculative.items():
            expect(
                0 <= beyond[key] <= most < entries[key] and wanted[key] == 1,
                f"{key}: {beyond[key]} of {most} speculative tokens are right, and the plan leaves"
                f" room for {entries[key] - 1}",
            )
        served = {key: tokens + beyond.get(key, 0) for key, tokens in served.items()}
        expect_same(f"tokens computed of the plan {entries}", dict(result.computed), served)
        expect(
            sum(wanted.values()) + sum(result.speculative.values())
            <= self.engine.capacity.max_step_tokens,
            f"the plan {entries} and the tokens {dict(result.speculative)} beyond it are more than"
            f" {self.engine.capacity.max_step_tokens} tokens of a step",
        )
        expect(
            set(result.evicted) <= set(evictable) - set(entries),
            f"evicted {result.evicted}, and only {tuple(evictable)} may be, if not in {entries}",
        )
        for key in result.evicted:
            self.left[key] += self.kept.pop(key)
        for key, tokens in served.items():
            self.left[key] -= tokens
            self.kept[key] += tokens
            self.reached[key] = max(self.reached[key], self.kept[key])
        finished = {key for key in served if self.left[key] == -beyond.get(key, 0)}
        expect_same(f"keys with a new token after {entries}", set(result.tokens), finished)
        self.computed.update(result.computed)
        self.recomputed.update(result.recomputed)
        for key, tokens_said in result.tokens.items():
            self.said[key] += tokens_said
            self.left[key] += len(tokens_said)
        touched = {*result.computed, *result.failures, *result.evicted, *result.waiting_for_kv}
        missing = touched - result.progress.keys()
        expect(not missing, f"no progress of {sorted(missing)} in the result of {entries}")
        for key, progress in result.progress.items():
            self.expect_progress(key, progress, f"a step of {entries} for {key}")
        return result

    def answer(self, key: str, tokens: int = ANSWER, chunk: int = 512) -> list[int]:
        """Go on with one sequence until it has generated some tokens; return no more of them."""
        idle = 0
        while (more := tokens - len(self.said[key])) > 0:
            before = self.left[key], len(self.said[key])
            result = self.step({key: min(chunk, max(self.left[key], more))})
            idle = idle + 1 if (self.left[key], len(self.said[key])) == before else 0
            expect(
                idle < MOST_IDLE,
                f"{idle} steps for {key} alone bring nothing"
                + "".join(f": {words}" for words in result.failures.values()),
            )
        return self.said[key][:tokens]

    def expect_answer(
        self, key: str, expected: Sequence[int], tokens: int = ANSWER, chunk: int = 512
    ) -> None:
        """Go on with one sequence and compare its first tokens."""
        expect_same(f"the answer to {key}", self.answer(key, tokens, chunk), list(expected))

    def expect_free(self, tokens: int) -> None:
        """Compare the free KV of the engine."""
        expect_same("free tokens of KV", self.engine.capacity.free_tokens, tokens)

    def remove_all(self) -> None:
        """Remove every sequence."""
        for key in self.said:
            self.engine.remove(key)


class InFlightDriver:
    """Keeps as many steps in flight as an engine can, each with all that may take part in it."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.engine = driver.engine
        self.computed: Counter[str] = Counter()
        self._left: Counter[str] = Counter()
        self._coming: Counter[str] = Counter()
        self._plans: deque[dict[str, int]] = deque()

    def add(self, key: str) -> None:
        """Add one of the tasks."""
        self._left[key] = self.driver.add_task(key)

    def can_compute(self, key: str) -> int:
        """Return how many of a sequence's tokens may be in the next plan."""
        return self._left[key] + (self._coming[key] if self.engine.async_scheduling else 0)

    def step(self, entries: dict[str, int], evictable: tuple[str, ...] = ()) -> None:
        """Submit a step of all that can take part; collect the oldest one if there is no room."""
        wanted = {key: min(n, self.can_compute(key)) for key, n in entries.items()}
        wanted = {key: tokens for key, tokens in wanted.items() if tokens}
        if wanted:
            progress = self.engine.submit(StepPlan(tuple(wanted.items()), evictable))
            self._plans.append(wanted)
            for key, tokens in wanted.items():
                self._left[key] -= tokens
                self._coming[key] += self._left[key] + self._coming[key] == 0
            if self.engine.in_flight > 1:
                self._expect_progress(progress, wanted)
        if self._plans and (not wanted or len(self._plans) == self.engine.in_flight):
            self.collect()

    def collect(self) -> StepResult:
        """Collect the oldest step."""
        result = self.engine.collect()
        plan = self._plans.popleft()
        expect_same(f"tokens computed of the plan {plan}", dict(result.computed), plan)
        expect(not result.failures, f"a step fails: {dict(result.failures)}")
        expect(not result.evicted, f"evicted {result.evicted} although there is room")
        self.computed.update(result.computed)
        for key, tokens in result.tokens.items():
            expect(len(tokens) == 1, f"{len(tokens)} new tokens of {key} in one step in flight")
            self.driver.said[key] += tokens
            self._left[key] += 1
            self._coming[key] -= 1
        self._expect_progress(result.progress, plan)
        return result

    def _expect_progress(
        self, progress: Mapping[str, SequenceProgress], keys: Iterable[str]
    ) -> None:
        """Compare what the next step can compute, and what steps in flight will bring."""
        for key in keys:
            expect(key in progress, f"no progress of {key}, which takes part in a step")
            found = progress[key].to_compute, progress[key].pending_tokens
            expected = self.can_compute(key), self._coming[key]
            expect_same(f"tokens of {key} to compute, and pending", found, expected)

    def collect_all(self) -> None:
        """Collect all steps."""
        while self._plans:
            self.collect()
