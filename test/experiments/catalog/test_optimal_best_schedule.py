from itertools import islice

import pytest

from timely_llm.core.time_utility import NORMAL, URGENT, TimeUtility
from timely_llm.experiments.catalog.optimal import best_utility, instances, utility
from timely_llm.experiments.policy_spec import parse
from timely_llm.experiments.virtual.simulation import SimulationSettings
from timely_llm.experiments.virtual.workload import JobInstance, SegmentSpec
from timely_llm.traces.model import Job

SETTINGS = SimulationSettings(own_tokens=400, network_s=0.0)


def work(
    name: str, time_utility: TimeUtility, tokens: int = 5, arrival_s: float = 0.0
) -> JobInstance:
    job = Job(name, arrival_s, name, "small", "simulated", "", time_utility)
    parts = (SegmentSpec(tokens, 1.0, 1.0), SegmentSpec(1, 0.001, 0.001))
    return JobInstance(name, job, name, arrival_s, True, parts)


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
