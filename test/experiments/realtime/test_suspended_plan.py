"""A suspended plan: what each resumption computes again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from timely_llm.core.clock import VirtualClock
from timely_llm.core.errors import EngineError
from timely_llm.engines.contract import Engine
from timely_llm.engines.registry import make_engine
from timely_llm.experiments.realtime.suspended_plan import SuspendedPlan

PROMPT = tuple(range(100, 196))


@pytest.fixture
def engine() -> Iterator[Engine]:
    made = make_engine(
        "simulated", script=lambda key, text: "x" * 50, clock=VirtualClock(),
        max_model_len=128, kv_tokens=128, max_rows=2,
    )  # fmt: skip
    yield made
    made.close()


def test_a_plan_with_its_kv_goes_on_with_one_token(engine: Engine) -> None:
    plan = SuspendedPlan(engine, PROMPT, None, 3)
    assert plan.token_ids[: len(PROMPT)] == PROMPT
    assert len(plan.token_ids) == len(PROMPT) + 3
    assert plan.until_token() == 0


def test_a_plan_that_is_added_anew_computes_all_but_its_pinned_prefix(engine: Engine) -> None:
    prefix = engine.pin_prefix(PROMPT[:64])
    plan = SuspendedPlan(engine, PROMPT, prefix, 2)
    assert plan.anew(prefix) == len(PROMPT) - 64 + 2 - 1


def test_an_evicted_plan_computes_its_whole_text(engine: Engine) -> None:
    plan = SuspendedPlan(engine, PROMPT, None, 2)
    plan.evict(range(200, 296))
    assert plan.until_token() == len(PROMPT) + 2 - 1


def test_an_engine_with_room_for_both_evicts_nothing(engine: Engine) -> None:
    plan = SuspendedPlan(engine, PROMPT[:16], None, 2)
    with pytest.raises(EngineError, match="the engine did not evict the plan's KV"):
        plan.evict(range(200, 216))
