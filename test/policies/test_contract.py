"""Every policy keeps the contract: the checks that `timely-llm conformance --policy` runs."""

from functools import partial

import pytest

from timely_llm.conformance.check import Check
from timely_llm.conformance.policies import POLICY_CHECKS, PolicyBench
from timely_llm.conformance.policies.service import check_a_year_later, check_forgets
from timely_llm.policies.registry import POLICIES, make_policy

MILLION = 1_000_000
OPTIONS: dict[str, dict[str, float | str]] = {
    "plans of the paper": {
        "slack": "completion", "budget": "ert", "urgent": "laxity", "speed": "measured",
    },
    "released code": {"slack": "exp", "network_s": 0.008, "urgent": "laxity"},
    "chatbot of the paper": {"order": "reading", "streams": "sentences", "budget": "ert"},
    "robots and people": {"streams": "sentences", "lead_s": 0.5, "speed": "measured"},
}  # fmt: skip
"""Options of `timely` that make it the one of Ling et al. 2024."""

OFTEN = ("deadline", "timely", "slice", "stream")
"""Policies that `make test-fast` tries."""


@pytest.mark.parametrize(
    "policy",
    [
        pytest.param(policy, marks=() if policy in OFTEN else pytest.mark.slow)
        for policy in POLICIES
    ],
)
@pytest.mark.parametrize("check", [*POLICY_CHECKS], ids=lambda check: check.name)
def test_every_policy_keeps_the_contract(policy: str, check: Check[PolicyBench]) -> None:
    check(PolicyBench(partial(make_policy, policy), seed=None))


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
@pytest.mark.parametrize("check", [*POLICY_CHECKS], ids=lambda check: check.name)
def test_timely_keeps_the_contract_with_every_option(
    options: dict[str, float | str], check: Check[PolicyBench]
) -> None:
    check(PolicyBench(partial(make_policy, "timely", **options), seed=None))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "rows"), [("fastserve", 3), ("prio", 1), ("vtc", 1), ("vtc", 3)]
)
@pytest.mark.parametrize("check", [*POLICY_CHECKS], ids=lambda check: check.name)
def test_a_batch_with_a_cap_keeps_it_too(policy: str, rows: int, check: Check[PolicyBench]) -> None:
    check(PolicyBench(partial(make_policy, policy, rows=rows), seed=None))


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"static": False, "rows": 8, "lengths": "quantile"},
        {"search": "exact", "objective": "worth", "rows": 1},
        {"accept": "literal", "rows": 2},
    ],
    ids=["continuous", "exact", "literal"],
)
@pytest.mark.parametrize("check", [*POLICY_CHECKS], ids=lambda check: check.name)
def test_annealing_keeps_the_contract_with_other_options(
    options: dict[str, float | str], check: Check[PolicyBench]
) -> None:
    check(PolicyBench(partial(make_policy, "annealing", **options), seed=None))


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_keeps_it_for_a_million_steps(policy: str) -> None:
    bench = PolicyBench(partial(make_policy, policy))
    check_a_year_later(bench, MILLION)
    check_forgets(bench, MILLION // 4)
