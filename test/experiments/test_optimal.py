import math
from itertools import islice

import pytest

from timely_llm.core.time_utility import NORMAL, URGENT, TimeUtility
from timely_llm.engines.profiles import Profile
from timely_llm.experiments import optimal
from timely_llm.experiments.contract import Options
from timely_llm.experiments.optimal import best_utility, instances, utility
from timely_llm.experiments.policy_spec import parse
from timely_llm.experiments.simulation import Settings
from timely_llm.experiments.workload import Part, Work
from timely_llm.traces.model import Job

SETTINGS = Settings(own_tokens=400, network_s=0.0)


def work(name: str, time_utility: TimeUtility, tokens: int = 5, arrival_s: float = 0.0) -> Work:
    job = Job(name, arrival_s, name, "small", "simulated", "", time_utility)
    parts = (Part(tokens, 1.0, 1.0), Part(1, 0.001, 0.001))
    return Work(name, job, name, arrival_s, True, parts)


def test_one_request_gets_what_it_is_worth_when_it_has_the_engine_alone() -> None:
    alone = TimeUtility(beta=1.0, alpha=-1.0, ert_s=0.0)
    profile = SETTINGS.profile
    ready_s = profile.step_s(0, 400) + 4 * profile.step_s(1)
    assert best_utility([work("a", alone)], SETTINGS) == pytest.approx(1.0 - ready_s)
    # A policy may look only when the request is there: what is left is the model's own error.
    got = utility([work("a", alone)], parse("stream"), SETTINGS)
    assert got == pytest.approx(1.0 - ready_s, abs=1e-6)


def test_the_best_schedule_lets_the_urgent_one_go_first_though_it_came_last() -> None:
    crowd = [*(work(f"n{i}", NORMAL) for i in range(4)), work("u", URGENT)]
    assert best_utility(crowd, SETTINGS) > utility(crowd, parse("fcfs:rows=1"), SETTINGS)
    alone = best_utility(crowd[-1:], SETTINGS)
    assert best_utility(crowd, SETTINGS) == pytest.approx(alone + 4.0, abs=0.01)


@pytest.mark.parametrize("policy", ["fcfs", "stream", "timely", "deadline"])
def test_no_policy_is_better_than_the_best(policy: str) -> None:
    for works in islice(instances(5, seed=3), 4):
        best = best_utility(works, SETTINGS)
        assert utility(works, parse(policy), SETTINGS) <= best + 2e-3


def test_where_nobody_can_earn_anything_everybody_reaches_that() -> None:
    slow = Profile("slow", "made up", base_s=100.0, row_s=0.0, prefill_token_s=0.0)
    settings = Settings(own_tokens=400, network_s=0.0, profile=slow)
    case = optimal.Case((parse("stream"),), settings, optimal.BURSTS[0], 2, 0)
    assert [(row["share_of_best"], row["best_utility"]) for row in optimal.score(case)] == [(1, 0)]


def test_rows_are_the_same_each_time_and_shares_are_of_the_best(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(optimal, "INSTANCES", 2)
    monkeypatch.setattr(optimal, "REQUESTS", (4, 5))
    options = Options(policies=("stream", "deadline"), seeds=1, jobs=1)
    first, second = (optimal.run(options, lambda done, total: None) for _ in range(2))
    assert first == second
    assert [(row["prompt_tokens"], row["requests"], row["policy"]) for row in first.rows] == [
        (prompt, number, policy)
        for prompt in (110, 400)
        for number in (4, 5)
        for policy in ("stream", "deadline")
    ]
    for row in first.rows:
        share = row["share_of_best"]
        assert isinstance(share, float) and 0.0 < share <= 1.0 and math.isfinite(share)
