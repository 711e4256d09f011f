"""Policies by name."""

import math

import pytest

from timely_llm.core.errors import ConfigurationError
from timely_llm.policies.batch_bound import BudgetEnd
from timely_llm.policies.deadline.policy import Deadline
from timely_llm.policies.fcfs import Fcfs
from timely_llm.policies.registry import POLICIES, make_policy, options_of
from timely_llm.policies.timely import Slack, Timely


def test_every_policy_can_be_made() -> None:
    papers = {"fcfs", "stream", "timely", "orca", "fastserve", "slice", "timely+slice"}
    assert papers <= set(POLICIES)
    for name in POLICIES:
        assert make_policy(name).whole_plans == (name in ("fcfs", "sjf", "annealing"))


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match="unknown policy 'best': choose one of fcfs"):
        make_policy("best")


def test_the_options_of_a_part_are_the_policys_own() -> None:
    known = options_of("timely")
    assert (known["budget"], known["adaptive"]) == (BudgetEnd.ZERO, True)
    assert "bound" not in known
    made = make_policy("timely", budget="ert", rows=3)
    assert isinstance(made, Timely)
    assert (made.bound.budget, made.rows) == (BudgetEnd.ERT, 3)


def test_the_policy_of_this_package_has_four_options() -> None:
    known = {"kappa": 0.1, "lead_s": math.inf, "people": 1.0, "urgent": 1.0}
    assert options_of("deadline") == known
    made = make_policy("deadline", kappa=2.0)
    assert isinstance(made, Deadline) and made.kappa == 2.0


@pytest.mark.parametrize(
    ("name", "option"), [("edf", "slack"), ("fcfs-segments", "order"), ("orca", "kappa")]
)
def test_an_option_that_would_do_nothing_is_refused(name: str, option: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{name} has no option {option}, only: "):
        make_policy(name, **{option: "exp"})


def test_an_option_of_words_takes_only_its_words() -> None:
    made = make_policy("timely", slack="exp", budget="ert")
    assert isinstance(made, Timely)
    assert (made.slack, made.bound.budget) == (Slack.EXP, BudgetEnd.ERT)
    assert make_policy("timely_llm.policies.timely:Timely", order="reading")
    for name in ("timely", "timely_llm.policies.timely:Timely"):
        sentence = f"^{name}:slack must be due, completion or exp, not 'late'$"
        with pytest.raises(ConfigurationError, match=sentence):
            make_policy(name, slack="late")
    with pytest.raises(ConfigurationError, match="timely:speed must be predicted or measured, not"):
        make_policy("timely", speed=3.0)


def test_a_policy_of_a_user_s_own_is_made_by_its_module_and_name() -> None:
    made = make_policy("timely_llm.policies.fcfs:Fcfs", rows=3)
    assert isinstance(made, Fcfs) and made.rows == 3


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nowhere:Mine", "the module nowhere is not found"),
        ("timely_llm.policies.fcfs:Mine", "has no Mine"),
        ("timely_llm.policies.contract:Capacity", "cannot be made: TypeError"),
        ("timely_llm.policies.registry:DEFAULT_POLICY", "is no policy: it is 'deadline"),
        ("timely_llm.core.clock:VirtualClock", "is no policy: it has no plan and no whole_plans"),
    ],
)
def test_what_is_no_policy_is_refused_in_one_sentence(name: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        make_policy(name)
