"""The Virtual Token Counter (Sheng et al. 2024): agents get equal shares of a full batch."""

from collections.abc import Collection
from dataclasses import replace

import pytest

from test.policies.builders import ROOMY, stream
from test.policies.lanes import WORDS, Lanes, asked
from test.serving.scripted import request
from timely_llm.conformance.policies.service import sizes
from timely_llm.core.generation import Generation, State, StreamGeneration
from timely_llm.core.reason import Cause, Reason
from timely_llm.core.slo import TEXT
from timely_llm.policies.contract import Policy, ask_for_reasons
from timely_llm.policies.fcfs import Orca
from timely_llm.policies.least_served import VirtualTokens
from timely_llm.policies.step_time import StepTime

STEP = StepTime(0.01, 0.0, 0.001)


def of(agent: str, key: str, arrival_s: float = 0.0, prompt: int = 40) -> StreamGeneration:
    """Return a new request of an agent."""
    made = stream(key, arrival_s, to_compute=prompt)
    made.request = replace(made.request, agent=agent)
    return made


def step(policy: VirtualTokens, pool: Collection[Generation]) -> set[str]:
    """Take a step that computes whole prompts; return the requests in it."""
    plan = policy.plan(1.0, pool, STEP, ROOMY)
    for generation in pool:
        if generation.key in plan.keys:
            generation.to_compute, generation.state = 1, State.RUNNING
    return set(plan.keys)


def test_a_free_row_goes_to_the_agent_with_the_fewest_tokens() -> None:
    policy = VirtualTokens(rows=1)
    a = [of("ann", f"a{n}", n / 10) for n in range(3)]
    b = [of("bob", f"b{n}", 1.0 + n) for n in range(2)]
    assert step(policy, [*a, *b]) == {"a0"}, "all have 0: by arrival"
    # ann has 40 tokens of a prompt and 2 for the first token.
    assert step(policy, [*a[1:], *b]) == {"b0"}
    assert step(policy, [*a[1:], b[1]]) == {"a1"}, "both have 42: by arrival"
    assert step(policy, [a[2], b[1]]) == {"b1"}


@pytest.mark.parametrize(("prompt", "joined"), [(16, {"a1", "a2"}), (18, {"a1", "b1"})])
def test_a_generated_token_counts_twice_a_token_of_a_prompt(prompt: int, joined: set[str]) -> None:
    policy = VirtualTokens(rows=2)
    first = [of("ann", "a0", prompt=10), of("bob", "b0", 0.1, prompt=27)]
    rest = [of("bob", "b1", 0.2), of("ann", "a1", 0.3, prompt=prompt), of("ann", "a2", 0.4)]
    for _ in range(6):
        assert step(policy, [*first, *rest]) == {"a0", "b0"}
    # ann: 10 + 6 * 2 = 22, and with the prompt of a1 38 or 40; bob: 27 + 6 * 2 = 39.
    assert step(policy, rest) == joined


def test_a_request_in_the_batch_stays_to_its_end() -> None:
    policy = VirtualTokens(rows=1)
    long, other = of("ann", "a0"), of("bob", "b0", 1.0)
    assert step(policy, [long]) == {"a0"}
    for _ in range(100):
        assert step(policy, [long, other]) == {"a0"}


def test_an_agent_that_asked_for_nothing_saves_nothing() -> None:
    policy = VirtualTokens(rows=1)
    a = [of("ann", f"a{n}", n / 10) for n in range(3)]
    step(policy, a)
    late = [of("carl", f"c{n}", 2.0 + n) for n in range(3)]
    assert step(policy, [*a[1:], *late]) == {"a1"}, "carl begins with the 42 tokens of ann"
    assert step(policy, [a[2], *late]) == {"c0"}
    assert step(policy, [a[2], *late[1:]]) == {"a2"}


def test_weights_of_tokens_are_options() -> None:
    policy = VirtualTokens(rows=1, input_weight=0.0, output_weight=1.0)
    long, short = of("ann", "a0", prompt=400), of("bob", "b0", 0.1, prompt=4)
    step(policy, [long, short])
    step(policy, [short, of("ann", "a1", 0.2)])
    again = [of("ann", "a2", 0.3), of("bob", "b1", 0.4)]
    assert step(policy, again) == {"a2"}, "both generated one token: by arrival"


def test_a_reason_is_the_counter_of_the_agent() -> None:
    policy = VirtualTokens(rows=2)
    assert ask_for_reasons(policy)
    first = of("ann", "a0")
    step(policy, [first])
    pool = [first, of("bob", "b0", 0.1), of("ann", "a1", 0.2)]
    assert dict(policy.plan(1.0, pool, STEP, ROOMY).reasons) == {
        "a0": Reason(Cause.RUNS), "b0": Reason(Cause.SERVED_LEAST, 0.0), "a1": Reason(Cause.ROWS, 2)
    }  # fmt: skip


def test_few_absent_agents_are_remembered() -> None:
    policy = VirtualTokens(rows=1)
    for number in range(1000):
        step(policy, [of(f"agent {number}", f"s{number}")])
    assert sizes(policy).total() < 600
    assert ask_for_reasons(policy)
    for agent, tokens in (("agent 0", 0.0), ("agent 999", 42.0)):
        plan = policy.plan(1.0, [of(agent, agent)], STEP, ROOMY)
        assert dict(plan.reasons) == {agent: Reason(Cause.SERVED_LEAST, tokens)}


def test_where_all_requests_fit_it_is_continuous_batching() -> None:
    answers = {f"s{n}": WORDS * n for n in range(1, 6)} | {"p": "mf(50);->True;"}
    times = []
    policies: list[Policy] = [VirtualTokens(), Orca()]
    for policy in policies:
        lanes = Lanes(answers, policy)
        lanes.serve(
            [(0.2 * n, request(k) if k == "p" else asked(k, TEXT)) for n, k in enumerate(answers)]
        )
        times.append(lanes.token_times_s)
    assert times[0] == times[1]
