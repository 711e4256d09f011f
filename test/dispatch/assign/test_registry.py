"""All rules keep the contract, and are found by name with options."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given

from test.dispatch.views import plan, server, some_servers, some_waiting
from test.examples import examples
from timely_llm.core.errors import ConfigurationError
from timely_llm.dispatch.assign.registry import DISPATCHERS, make_dispatcher
from timely_llm.dispatch.assign.rules import LargestMemory, TwoChoices
from timely_llm.dispatch.contract import Assignment, ServerView, Waiting

SPECS = (*DISPATCHERS, "largest-memory:memory=free", "two-choices:seed=7")


class Last:
    """A user's own rule."""

    gathers = False

    def assign(
        self, now: float, waiting: Sequence[Waiting], servers: Sequence[ServerView]
    ) -> Sequence[Assignment]:
        return [Assignment(one.key, servers[-1].name) for one in waiting]


class NoRule:
    """It lacks what a rule has."""


@pytest.mark.parametrize("spec", SPECS)
@examples(60)
@given(waiting=some_waiting(), servers=some_servers())
def test_each_request_goes_to_one_server_that_has_its_skill_set(
    spec: str, waiting: list[Waiting], servers: list[ServerView]
) -> None:
    made = make_dispatcher(spec).assign(5.0, waiting, servers)
    known, asked = {one.name: one for one in servers}, {one.key: one for one in waiting}
    able = {one.key for one in waiting if any(map(one.can_go_to, servers))}
    assert {key for key, _ in made} == able
    assert len(made) == len(able)
    assert all(asked[key].can_go_to(known[name]) for key, name in made)


@pytest.mark.parametrize("spec", SPECS)
@examples(20)
@given(waiting=some_waiting(), servers=some_servers())
def test_a_rule_decides_the_same_each_time(
    spec: str, waiting: list[Waiting], servers: list[ServerView]
) -> None:
    one, other = make_dispatcher(spec), make_dispatcher(spec)
    for now in (5.0, 6.0):
        assert one.assign(now, waiting, servers) == other.assign(now, waiting, servers)


def test_a_user_s_own_rule_is_found() -> None:
    rule = make_dispatcher(f"{__name__}:Last")
    assert rule.assign(0.0, [plan()], [server("a"), server("b")]) == [("r", "b")]


def test_options_reach_the_rule() -> None:
    choices, memory = (
        make_dispatcher("two-choices:seed=7"),
        make_dispatcher("largest-memory:memory=free:utilization=0.5"),
    )
    assert isinstance(choices, TwoChoices) and choices.seed == 7
    assert isinstance(memory, LargestMemory)
    assert (memory.memory, memory.utilization) == ("free", 0.5)


def test_a_seed_may_be_the_default() -> None:
    rule = make_dispatcher("two-choices:seed=0")
    assert isinstance(rule, TwoChoices) and rule.seed == 0


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("best", "unknown dispatcher 'best': choose one of round-robin, "),
        ("two-choices:seed=x", "two-choices:seed must be a whole number from 0 on, not 'x'"),
        ("two-choices:sed=1", "'sed=1' is no option of two-choices: choose of seed=..."),
        ("round-robin:seed=1", "'seed=1' is no option of round-robin: it has none"),
        ("largest-memory:memory=all", "largest-memory:memory must be paper or free, not 'all'"),
        ("largest-memory:utilization=2", "utilization must be above 0 and at most 1, not 2"),
        (f"{__name__}:NoRule", "is no dispatcher: it has no assign and no gathers"),
        (f"{__name__}:SPECS", "is no dispatcher: it is .*, not a class"),
        ("nowhere:Rule", "the module nowhere is not found"),
    ],
)
def test_what_is_no_rule_is_refused_in_one_sentence(spec: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words) as error:
        make_dispatcher(spec)
    assert "\n" not in str(error.value)
