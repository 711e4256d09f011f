"""Every engine keeps the contract: the checks that `timely-llm conformance --engine` runs."""

from __future__ import annotations

import pytest

from timely_llm.conformance.check import Check, NotApplicable
from timely_llm.conformance.engines import ENGINE_CHECKS, EngineBench


@pytest.mark.parametrize("check", [*ENGINE_CHECKS], ids=lambda check: check.name)
def test_every_engine_keeps_the_contract(bench: EngineBench, check: Check[EngineBench]) -> None:
    try:
        check(bench)
    except NotApplicable as why:
        pytest.skip(str(why))


def test_every_engine_of_ours_takes_a_grammar(bench: EngineBench) -> None:
    assert bench.takes_grammars


def test_every_engine_with_a_model_gives_log_probabilities(
    bench: EngineBench, request: pytest.FixtureRequest
) -> None:
    if "scheduler" in request.node.name:
        pytest.skip("vLLM's scheduler alone runs no model")
    assert bench.gives_logprobs
