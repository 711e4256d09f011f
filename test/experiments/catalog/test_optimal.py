import math

import pytest

from timely_llm.engines.simulated import Profile
from timely_llm.experiments.catalog import optimal
from timely_llm.experiments.policy_spec import parse
from timely_llm.experiments.virtual.simulation import SimulationSettings


def test_where_no_request_can_be_in_time_every_policy_reaches_the_best() -> None:
    slow = Profile("slow", "made up", base_s=100.0, row_s=0.0, prefill_token_s=0.0)
    settings = SimulationSettings(own_tokens=400, network_s=0.0, profile=slow)
    case = optimal.InstanceSet((parse("stream"),), settings, optimal.BURSTS[0], 2, 0)
    assert [(row["share_of_best"], row["best_utility"]) for row in optimal.score(case)] == [(1, 0)]


def test_rows_are_the_same_each_time_and_shares_are_of_the_best(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(optimal, "INSTANCES", 2)
    monkeypatch.setattr(optimal, "REQUESTS", (4, 5))
    options = optimal.OptimalOptions(policies=("stream", "deadline"), seeds=1, jobs=1)
    first, second = (optimal.run(options, lambda done, total: None) for _ in range(2))
    assert first == second
    keys = ("prompt_tokens", "within_s", "requests", "policy")
    assert [tuple(row[key] for key in keys) for row in first.rows] == [
        (burst.prompt_tokens, burst.within_s, number, policy)
        for burst in optimal.BURSTS
        for number in (4, 5)
        for policy in ("stream", "deadline")
    ]
    for row in first.rows:
        share = row["share_of_best"]
        assert isinstance(share, float) and 0.0 < share <= 1.0 and math.isfinite(share)
