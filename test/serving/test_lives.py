"""Lives of robots and people on a pipeline: what they do at any time leaves nothing behind."""

from __future__ import annotations

import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from test.examples import examples
from test.serving.scripted import ARM, PublishingLoop, Recorder
from timely_llm.conformance.policies.service import EngineShape
from timely_llm.core.clock import VirtualClock
from timely_llm.core.generation import PlanGeneration, State
from timely_llm.core.request import (
    ChatMessage,
    ErrorCode,
    ExecutionReport,
    PlanRequest,
    Rejected,
    ReportState,
    StreamRequest,
)
from timely_llm.core.slo import SLO_CLASSES
from timely_llm.core.time_utility import NORMAL, URGENT
from timely_llm.policies.micro_batches.policy import Mode, in_micro_batches
from timely_llm.policies.registry import POLICIES, make_policy
from timely_llm.serving.conversations import RetentionLimits

PLANS = (
    "open();close();->True;",
    "look();...pick('cup');->True;",
    "open();look();...look();...pick('a');->False;",
)
REQUESTS, AT_ONCE, MOST_TURNS = 25, 8, 10_000
PREFIX = EngineShape().engine(lambda key, prompt: "", VirtualClock(), 1 << 20)
FAIR = {
    ErrorCode.NONE, ErrorCode.CANCELED, ErrorCode.EXECUTION_FAILED,
    ErrorCode.UNKNOWN_CONVERSATION,
}  # fmt: skip


class Lives:
    """Robots that execute, fail and answer; people who talk on; some of both give up."""

    def __init__(self, policy: str, shape: EngineShape, seed: int) -> None:
        self.rng, self.clock, self.sink = random.Random(seed), VirtualClock(), Recorder()
        self._asked: dict[str, int] = {}
        self._turns: dict[str, int] = {}
        made = in_micro_batches(make_policy(policy), shape.mode)
        prefix = PublishingLoop(PREFIX, made, self.sink, self.clock).register(ARM)
        self.engine = shape.engine(self._say, self.clock, prefix + shape.spare_tokens)
        self.loop = PublishingLoop(
            self.engine, made, self.sink, self.clock,
            retention=RetentionLimits(max_conversations=3, timeout_s=5.0), explain=bool(seed % 2),
        )  # fmt: skip
        self.loop.register(ARM)
        self.free_at_start = self.loop.free_kv_tokens

    def _say(self, key: str, prompt: str) -> str:
        number = int(key[1:])
        if key.startswith("s"):
            return " ".join(f"word{i}" for i in range(number % 9 + 1))
        parts = PLANS[number % len(PLANS)].split("...")
        asked = self._asked[key] = self._asked.get(key, 0) + 1
        return parts[asked - 1] if asked <= len(parts) else "->True;"

    def run(self) -> None:
        """Serve all of them to their ends."""
        begun = 0
        for _ in range(MOST_TURNS):
            generations = self.loop.generations
            if begun < REQUESTS and len(generations) < AT_ONCE and self._happens(0.4):
                begun += 1
                self._ask(begun)
            elif generations and self._happens(0.03):
                key = self.rng.choice(generations).key
                self.loop.cancel(key, ErrorCode.CANCELED, "enough")
            elif self._happens(0.01):
                self.loop.drain(self._happens(0.5))
            for generation in generations:
                if isinstance(generation, PlanGeneration) and self._happens(0.15):
                    self._execute(generation)
            turn = self.loop.turn()
            if not turn.stepped:
                if begun == REQUESTS and not self.loop.generations:
                    return
                self.clock.advance(min(max(turn.wake_s - self.clock.now(), 1e-4), 0.2))
        raise AssertionError(f"{[g.key for g in self.loop.generations]} have not ended")

    def _happens(self, chance: float) -> bool:
        return self.rng.random() < chance

    def _ask(self, number: int) -> None:
        if self._happens(0.5):
            worth = self.rng.choice([NORMAL, URGENT])
            closed = self._happens(0.7)
            name = f"p{number}"
            task = "tidy up " * self.rng.randint(1, 3)
            self.loop.admit(
                PlanRequest(name, f"agent-{name}", "arm", task, worth, closed_loop=closed)
            )
            return
        talk = self.rng.choice(["", "x", "y", "z"])
        turn = self._turns.get(talk, 0) if talk and self._happens(0.7) else 0
        said = (ChatMessage("user", "What? " * self.rng.randint(1, 6)),)
        slo = self.rng.choice(SLO_CLASSES).slo
        try:
            self.loop.admit(
                StreamRequest(f"s{number}", "a", said, slo, conversation=talk, turn=turn)
            )
        except Rejected:
            return
        self._turns[talk] = turn + 1

    def _execute(self, generation: PlanGeneration) -> None:
        """Report the next segment of a plan: it has failed, or it is executed."""
        key, index = generation.key, generation.finished + 1
        if index >= len(generation.segments):
            return
        failed = self._happens(0.1)
        state = ReportState.FAILED if failed else ReportState.FINISHED
        value = "it slipped" if failed else "cup\n"
        self.loop.report(
            ExecutionReport(
                key, f"agent-{key}", state, index, duration_s=0.5, value=value,
                epoch=generation.epoch,
            )
        )  # fmt: skip


@pytest.mark.parametrize("policy", POLICIES)
@given(
    st.builds(
        lambda spare, rows, stages, more, mode: EngineShape(
            spare, rows, stages + more, False, stages, mode
        ),
        st.sampled_from([130, 250, 1 << 20]),
        st.integers(1, 8),
        st.sampled_from([1, 2, 4]),
        st.integers(0, 3),
        st.sampled_from(Mode),
    ),
    st.integers(0, 1 << 20),
)
# A conversation ends while its sequence is in a step: its KV cannot be lent yet.
@example(EngineShape(130, 4, 4, False, 4, Mode.BUDGET_ONLY), 51)
@examples(6)
def test_every_life_ends_well_and_leaves_no_kv(policy: str, shape: EngineShape, seed: int) -> None:
    lives = Lives(policy, shape, seed)
    lives.run()
    ends = [*lives.sink.results.values(), *lives.sink.answers.values()]
    assert {end.error_code for end in ends} <= FAIR, [(e.request_id, e.error_msg) for e in ends]
    assert len(ends) == REQUESTS
    assert lives.loop.free_kv_tokens == lives.free_at_start
    while lives.loop.collect():
        pass
    lives.loop.conversations.forget_all()
    assert lives.engine.capacity.free_tokens == lives.free_at_start
    assert not lives.engine._sequences.by_key
    assert not lives.loop.failures.row


class Watched(Lives):
    """Lives with an eye on what happens in them."""

    def __init__(self, seed: int) -> None:
        shape = EngineShape(130, 4, 4, False, 2, Mode.BUDGET_ONLY)
        super().__init__("stream", shape, seed)
        self.seen: set[str] = set()

    def _happens(self, chance: float) -> bool:
        for one in self.loop.generations:
            self.seen.add(one.state.name)
            if isinstance(one, PlanGeneration) and one.epoch:
                self.seen.add("new plan")
        if self.loop.kept_conversations:
            self.seen.add("kept")
        if self.loop.stats.evictions:
            self.seen.add("evicted")
        return super()._happens(chance)


def test_these_lives_block_and_execute_and_plan_anew_and_talk_on_and_evict() -> None:
    seen: set[str] = set()
    for seed in range(4):
        lives = Watched(seed)
        lives.run()
        seen |= lives.seen
    assert seen >= {State.BLOCKED.name, State.EXECUTING.name, "new plan", "kept", "evicted"}
