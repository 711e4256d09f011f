"""Policies by name."""

import pytest

from timely_llm.core.errors import ConfigurationError
from timely_llm.policies.registry import POLICIES, make_policy


def test_every_policy_can_be_made() -> None:
    papers = {"fcfs", "stream", "timely", "orca", "fastserve", "slice", "timely+slice"}
    assert papers <= set(POLICIES)
    for name in POLICIES:
        assert make_policy(name).whole_plans == (name == "fcfs")


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match="unknown policy 'best': choose one of fcfs"):
        make_policy("best")
