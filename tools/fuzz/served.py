"""A served plan, and what the node's callbacks do with a message about it, without a ROS graph."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rclpy.serialization import deserialize_message

from timely_llm import msg, srv
from timely_llm.core.clock import VirtualClock
from timely_llm.core.errors import RequestError
from timely_llm.core.request import ErrorCode, PlanRequest
from timely_llm.engines.simulated import PROFILES, SimulatedEngine
from timely_llm.identity.authenticator import Authenticator
from timely_llm.identity.keys import AgentKey
from timely_llm.policies.timely import Timely
from timely_llm.ros.conversions import execution_report
from timely_llm.ros.identity.messages import check
from timely_llm.serving.loop import Loop
from timely_llm.skills.skill_set import SkillSet

AGENTS = {"signed": "arm_1", "plan": "arm_2"}
"""Agent of each plan by its request id; the first one has a key."""
KEY = AgentKey("arm_1", b"k" * 32)
CHALLENGE = "c"
PLAN = "pick('cup');look();"
REST = "say('Done.');->True;"
"""What the model says when it has a value of `look`, or the reason of a failure."""
MOST_TURNS = 200
"""Turns within which a plan of the corpus waits for its robot, and many more than it needs."""


class Undecoded(ValueError):
    """The bytes are no message of the type; DDS drops such a message."""


class ServedPlans:
    """Two plans that wait for the values of their skill `look`.

    Args:
        skill_set: the arm's.
    """

    def __init__(self, skill_set: SkillSet) -> None:
        self._skill_set = skill_set.name
        clock = VirtualClock()
        engine = SimulatedEngine(PROFILES["rtx4090-llama3-8b"], _said, clock)
        self._loop = Loop(engine, Timely(), clock)
        self._loop.register(skill_set)
        self._free = self._loop.free_kv_tokens

    def _begin(self) -> Authenticator:
        """Serve both plans up to `look`; return a check without sessions."""
        for request_id, agent in AGENTS.items():
            request = PlanRequest(request_id, agent, self._skill_set, "Look.", closed_loop=True)
            self._loop.admit(request)
        self._turn()
        return Authenticator({KEY.agent: KEY}, False, CHALLENGE)

    def report(self, data: bytes) -> None:
        """Do what the node does with an execution report.

        Raises:
            Undecoded: the bytes are none.
            RequestError: it is refused.
        """
        message = _decoded(data, msg.ExecutionReport)
        authenticator = self._begin()
        try:
            check(authenticator, message)
            self._loop.report(execution_report(message))
        finally:
            self._end()

    def cancel(self, data: bytes) -> None:
        """Do what the node does with a call of `~/cancel_request`.

        Raises:
            Undecoded: the bytes are none.
            RequestError: it is refused.
        """
        call = _decoded(data, srv.CancelRequest.Request)
        authenticator = self._begin()
        try:
            owner = AGENTS.get(call.request_id)
            if owner is None:
                return
            check(authenticator, call, owner)
            if call.agent not in ("", owner):
                raise RequestError("the request is not one of this agent")
            self._loop.cancel(call.request_id, ErrorCode.CANCELED, "", call.unless_begun)
        finally:
            self._end()

    def _turn(self) -> None:
        for _ in range(MOST_TURNS):
            turn = self._loop.turn()
            if not turn.stepped and not turn.events:
                return
        raise AssertionError(f"the loop has steps after {MOST_TURNS} turns")

    def _end(self) -> None:
        """Serve on, end both plans, and check that all memory is free."""
        self._turn()
        for request_id in AGENTS:
            self._loop.cancel(request_id, ErrorCode.CANCELED, "")
        self._turn()
        left = self._free - self._loop.free_kv_tokens
        assert not self._loop.generations and not left, f"{left} tokens of KV are left"


def _said(key: str, prompt: str) -> str:
    return REST if PLAN in prompt else PLAN


def _decoded(data: bytes, kind: Any) -> Any:
    try:
        with _quiet():
            return deserialize_message(data, kind)
    except Exception as error:  # the type of an error of rmw is not public
        raise Undecoded(f"no {kind.__name__}: {str(error).splitlines()[0]}") from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Drop what C code writes to the standard error, a line about each broken message."""
    with Path(os.devnull).open("w") as nothing:
        kept = os.dup(2)
        os.dup2(nothing.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)
