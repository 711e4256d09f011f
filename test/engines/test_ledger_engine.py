"""Engines of which only the computing is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from timely_llm.conformance.check import Check, NotApplicable
from timely_llm.conformance.engines import ENGINE_CHECKS, EngineBench
from timely_llm.conformance.engines.driver import Driver
from timely_llm.core.errors import EngineError
from timely_llm.core.step import StepPlan
from timely_llm.engines.contract import GREEDY
from timely_llm.engines.ledger_engine import KvLedger, LedgerEngine
from timely_llm.engines.sequences import AdmittedSequence, EngineLimits, Sequences
from timely_llm.engines.simulated import ScriptTokenizer


class Sums(LedgerEngine):
    """Goes on with the sum of all tokens that it has read, which is the KV of a sequence."""

    def __init__(
        self, limits: EngineLimits, in_flight: int = 1, async_scheduling: bool = False
    ) -> None:
        super().__init__(ScriptTokenizer(), limits, in_flight, async_scheduling)
        self.sums: dict[str, int] = {}
        self.fails = 0

    def compute(self, parts: Sequence[AdmittedSequence]) -> Mapping[str, Sequence[int]]:
        new: dict[str, tuple[int]] = {}
        for part in parts:
            sequence = part.sequence
            begun = self.sums.get(sequence.key)
            total = sum(sequence.token_ids[: part.start]) if begun is None else begun
            if self.fails:
                self.fails -= 1
                raise EngineError("the device is hot")
            self.sums[sequence.key] = total + sum(sequence.token_ids[part.start : part.stop])
            if part.finishes:
                new[sequence.key] = (self.sums[sequence.key] % 9973,)
        return new

    def drop_kv(self, key: str) -> None:
        self.sums.pop(key, None)


@pytest.mark.parametrize("check", [*ENGINE_CHECKS], ids=lambda check: check.name)
@pytest.mark.parametrize(("in_flight", "ahead"), [(1, False), (3, True)])
def test_it_keeps_the_contract(check: Check[EngineBench], in_flight: int, ahead: bool) -> None:
    bench = EngineBench(lambda limits: Sums(limits, in_flight, ahead), our_words=True)
    try:
        check(bench)
    except NotApplicable:
        assert in_flight == 1 or check.name == "log-probabilities"


def test_kv_is_dropped_with_its_sequence() -> None:
    engine = Sums(EngineLimits())
    driver = Driver(engine)
    for key in "abc":
        driver.add(key, "find the apple")
        driver.answer(key, 2)
    engine.remove("a")
    driver.resume("b", "d", " now")
    assert set(engine.sums) == {"c"}
    engine.close()
    assert not engine.sums


def test_a_step_that_failed_is_made_again_with_the_same_tokens() -> None:
    engine = Sums(EngineLimits())
    driver = Driver(engine)
    for key in "ab":
        driver.add(key, "find the apple")
    expected = driver.answer("a", 6)
    driver.answer("b", 3)
    engine.fails = 1
    said = driver.said["b"]
    with pytest.raises(EngineError, match="hot"):
        driver.step({"b": 1})
    while len(said) < 6:
        engine.submit(StepPlan((("b", 100),)))
        again = engine.collect()
        assert again.evicted == (("b",) if len(said) == 3 else ())
        said += again.tokens["b"]
    assert said == expected
    tokens = len(engine.tokenizer.encode("find the apple")) + 5
    assert engine.capacity.free_tokens == EngineLimits().kv_tokens - 2 * tokens


def test_a_sequence_that_keeps_whole_blocks_only_is_in_the_next_result() -> None:
    sequences = Sequences(EngineLimits(), block_tokens=4)
    ledger = KvLedger(sequences)
    for key in "ab":
        sequences.add(key, list(range(7)), None, GREEDY)
        admitted = ledger.admit(StepPlan(((key, 6),)))
        ledger.start(admitted)
        ledger.commit(admitted, {}, 1.0)
    free = sequences.free_tokens
    ledger.shorten(sequences["a"])
    assert sequences.free_tokens == free + 4
    admitted = ledger.admit(StepPlan((("b", 1),)))
    ledger.start(admitted)
    result = ledger.commit(admitted, {"b": [1]}, 1.0)
    assert result.progress["a"].context_tokens == 4
    assert set(result.progress) == {"a", "b"}
    admitted = ledger.admit(StepPlan((("a", 3),)))
    ledger.start(admitted)
    result = ledger.commit(admitted, {"a": [1]}, 1.0)
    assert result.recomputed == {"a": 2}
    assert set(result.progress) == {"a"}
