"""The policies `annealing` and `sjf` in steps of an engine."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import pytest

from test.policies.builders import ROOMY, generation, running, stream
from timely_llm.core.errors import ConfigurationError
from timely_llm.core.generation import Generation, State, StreamGeneration
from timely_llm.core.reason import Cause
from timely_llm.core.slo import Slo, SloClass
from timely_llm.core.step import Capacity
from timely_llm.core.time_utility import URGENT
from timely_llm.policies.annealing.latency import LatencyPredictor
from timely_llm.policies.annealing.objective import OrderProblem, SizedRequest
from timely_llm.policies.annealing.policy import Annealing, ShortestJobFirst, sized
from timely_llm.policies.annealing.search import Accept, exact
from timely_llm.policies.contract import ask_for_reasons
from timely_llm.policies.registry import make_policy
from timely_llm.policies.step_time import StepTime

PACE = StepTime(0.01, 0.0, 0.0001, 0.0)
"""A token takes 10 ms, whatever the batch."""


class Known:
    """Lengths that are known by key."""

    def __init__(self, **tokens: int) -> None:
        self._tokens = tokens

    def expected(self, generation: Generation) -> int:
        return self._tokens[generation.key]

    def watch(self, generations: Collection[Generation]) -> None: ...


def whole(key: str, deadline_s: float, arrival_s: float = 0.0) -> StreamGeneration:
    """Return a request with a limit of its whole answer."""
    level = SloClass("code", Slo(deadline_s=deadline_s))
    return stream(key, arrival_s, of_class=level)


def served(policy: Annealing, pool: Sequence[Generation], **tokens: int) -> list[tuple[str, ...]]:
    """Return the batches in which a pool is served to its end, by the keys of each first step."""
    policy.output_lengths = Known(**tokens)
    left, seen, now = dict(tokens), list[tuple[str, ...]](), 0.0
    here = list(pool)
    while here:
        plan = policy.plan(now, here, PACE, ROOMY)
        assert plan
        new = tuple(g.key for g in here if g.key in plan.keys and g.state is State.QUEUED)
        seen += [new] if new else []
        for one in here:
            if one.key in plan.keys:
                one.state, one.to_compute = State.RUNNING, 1
                left[one.key] -= 1
                if not left[one.key]:
                    one.state = State.ENDED
        here = [one for one in here if one.state is not State.ENDED]
        now += 0.01
    return seen


def test_a_static_batch_begins_when_the_one_before_has_ended() -> None:
    pool = [whole(key, 60.0) for key in "abcd"]
    batches = served(Annealing(rows=2), pool, a=30, b=3, c=20, d=2)
    assert [set(batch) for batch in batches] == [{"b", "d"}, {"a", "c"}]


def test_a_continuous_batch_fills_each_free_row() -> None:
    pool = [whole(key, 60.0) for key in "abcd"]
    batches = served(Annealing(rows=2, static=False), pool, a=30, b=3, c=20, d=2)
    assert [set(batch) for batch in batches] == [{"b", "d"}, {"c"}, {"a"}]


def test_the_request_of_a_tight_limit_goes_before_a_shorter_one() -> None:
    pool = [whole("short", 60.0), whole("tight", 0.52), whole("long", 60.0)]
    tokens = {"short": 40, "tight": 50, "long": 400}
    assert served(Annealing(rows=1), pool, **tokens) == [("tight",), ("short",), ("long",)]


@pytest.mark.parametrize("search", ["annealing", "exhaustive", "exact"])
def test_every_search_makes_the_same_small_order(search: str) -> None:
    pool = [whole("short", 60.0), whole("tight", 0.52), whole("long", 60.0)]
    policy = make_policy("annealing", rows=1, search=search)
    assert isinstance(policy, Annealing)
    tokens = {"short": 40, "tight": 50, "long": 400}
    assert served(policy, pool, **tokens) == [("tight",), ("short",), ("long",)]


@pytest.mark.parametrize(("search", "most"), [("exhaustive", 5), ("exact", 6)])
def test_a_live_search_takes_as_many_requests_as_it_has_time_for(search: str, most: int) -> None:
    predictor = LatencyPredictor.of_step(PACE.coefficients)

    def optimal(count: int) -> bool:
        policy = make_policy("annealing", search=search, t0=1.0, t_end=1.0, iterations=1)
        assert isinstance(policy, Annealing)
        requests = [SizedRequest(10, 5 * (count - n), 0.06 * (n + 1)) for n in range(count)]
        best = exact(OrderProblem.of(requests, predictor, 1)).score
        return policy.find(requests, predictor, 1).score == pytest.approx(best)

    assert optimal(most)
    assert not optimal(most + 1)


def test_orders_by_length_and_by_deadline() -> None:
    def pool() -> list[StreamGeneration]:
        return [whole("short", 9.0), whole("tight", 2.0), whole("long", 5.0)]

    tokens = {"short": 40, "tight": 50, "long": 400}
    by_length = [("short",), ("tight",), ("long",)]
    assert served(ShortestJobFirst(rows=1), pool(), **tokens) == by_length
    edf = make_policy("annealing", rows=1, search="deadline")
    assert isinstance(edf, Annealing)
    assert served(edf, pool(), **tokens) == [("tight",), ("long",), ("short",)]


def test_an_arrival_is_ordered_with_those_that_wait() -> None:
    policy = Annealing(rows=1)
    policy.output_lengths = Known(a=10, b=20, c=5)
    first, second = whole("a", 60.0), whole("b", 60.0)
    assert policy.plan(0.0, [first, second], PACE, ROOMY).keys == {"a"}
    first.state = State.RUNNING
    pool = [first, second, whole("c", 60.0, arrival_s=0.01)]
    assert policy.plan(0.02, pool, PACE, ROOMY).keys == {"a"}
    first.state = State.ENDED
    assert policy.plan(0.1, pool[1:], PACE, ROOMY).keys == {"c"}


def test_a_batch_in_flight_lets_no_other_begin() -> None:
    policy = Annealing(rows=1)
    policy.output_lengths = Known(a=10, b=20)
    first, second = whole("a", 60.0), whole("b", 60.0)
    policy.plan(0.0, [first, second], PACE, ROOMY)
    first.state, first.to_compute = State.RUNNING, 0
    assert not policy.plan(0.01, [second], PACE, ROOMY)  # a waits for its step
    first.state = State.ENDED
    assert policy.plan(0.02, [second], PACE, ROOMY).keys == {"b"}


def test_a_chosen_request_without_memory_gives_way() -> None:
    policy = Annealing(rows=1)
    policy.output_lengths = Known(a=10, b=20)
    tight = Capacity(free_tokens=50, max_rows=8, max_step_tokens=512)
    first, second = generation("a", to_compute=110), whole("b", 60.0)
    assert policy.plan(0.0, [first, second], PACE, tight).keys == {"b"}


def test_limits_are_those_of_the_service_level_or_of_the_utility() -> None:
    code = sized(whole("a", 30.0, arrival_s=1.0), 180, now=3.0)
    assert (code.e2e_s, code.ttft_s, code.waited_s) == (30.0, math.inf, 2.0)
    chat = sized(stream("b"), 180, now=0.0)
    assert (chat.e2e_s, chat.ttft_s, chat.tpot_s) == (math.inf, 1.0, 0.1)
    plan = sized(generation("c", utility=URGENT), 20, now=0.0)
    assert (plan.e2e_s, plan.worth) == (URGENT.ert_s + URGENT.grace_s, URGENT.beta)


def test_only_the_objective_of_worth_weighs_requests() -> None:
    dear, cheap = SloClass("x", Slo(deadline_s=0.7), 9.0), SloClass("y", Slo(deadline_s=0.7), 1.0)
    for objective, first in (("g", "b"), ("worth", "a")):
        pool = [stream("a", of_class=dear), stream("b", of_class=cheap)]
        policy = make_policy("annealing", rows=1, objective=objective)
        assert isinstance(policy, Annealing)
        assert served(policy, pool, a=60, b=50)[0] == (first,)


def test_the_options_of_the_annealing_are_the_policys_own() -> None:
    policy = make_policy("annealing", accept="literal", t0=200.0, reset=True)
    assert isinstance(policy, Annealing)
    assert (policy.cooling.accept, policy.cooling.t0) == (Accept.LITERAL, 200.0)
    with pytest.raises(ConfigurationError, match="sjf has no option accept"):
        make_policy("sjf", accept="literal")
    for wrong in ({"rows": 0}, {"price": math.inf}, {"decay": 1.0}):
        with pytest.raises(ConfigurationError, match=f"^annealing: {next(iter(wrong))} must be"):
            make_policy("annealing", **wrong)


def test_it_names_the_place_in_its_order() -> None:
    policy = Annealing(rows=2)
    policy.output_lengths = Known(r=5, a=10, b=20, c=30)
    assert ask_for_reasons(policy)
    pool = [whole(key, 60.0) for key in "abc"]
    said = dict(policy.plan(0.0, pool, PACE, ROOMY).reasons)
    assert [said[key].cause for key in "abc"] == [Cause.ORDERED, Cause.ORDERED, Cause.BEHIND]
    said = dict(policy.plan(0.0, [running("r"), whole("d", 60.0)], PACE, ROOMY).reasons)
    assert [said[key].cause for key in "rd"] == [Cause.RUNS, Cause.BEHIND]


def test_a_batch_that_is_gone_lets_the_next_one_begin() -> None:
    policy = Annealing(rows=2)
    gone, others = [stream(f"a{i}") for i in range(2)], [stream(f"b{i}") for i in range(2)]
    assert policy.plan(0.0, gone, PACE, ROOMY).keys == {"a0", "a1"}
    for one in gone:
        one.state = State.RUNNING
    assert policy.plan(1.0, others, PACE, ROOMY).keys == {"b0", "b1"}


def test_the_next_batch_waits_for_a_step_in_flight() -> None:
    policy = Annealing(rows=2)
    first, others = [stream(f"a{i}") for i in range(2)], [stream(f"b{i}") for i in range(2)]
    assert policy.plan(0.0, first, PACE, ROOMY).keys == {"a0", "a1"}
    for one in first:
        one.state, one.to_compute, one.pending_tokens = State.RUNNING, 0, 1
    assert not policy.plan(1.0, others, PACE, ROOMY)
    for one in first:
        one.state = State.ENDED
    assert policy.plan(2.0, others, PACE, ROOMY).keys == {"b0", "b1"}
