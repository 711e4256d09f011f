"""Which agent of a fleet waits for a request."""

from __future__ import annotations

import pytest

from timely_llm.ros.fleet.agents import waiting_for


class Asking:
    """An agent with an open request."""

    def __init__(self, request_id: str) -> None:
        self.request_id = request_id

    def lose(self, reason: str) -> None:
        self.request_id = ""


@pytest.mark.parametrize("request_id", ["ann-1", "ann-3", "bob-2", "eve-1", "ann", ""])
def test_a_request_that_is_not_open_has_no_agent(request_id: str) -> None:
    assert waiting_for(request_id, {"ann": Asking("ann-2"), "bob": Asking("")}) is None


def test_an_open_request_has_its_agent_also_one_with_a_hyphen() -> None:
    agents = {"ann": Asking("ann-2"), "robot-1": Asking("robot-1-7")}
    assert waiting_for("ann-2", agents) is agents["ann"]
    assert waiting_for("robot-1-7", agents) is agents["robot-1"]
