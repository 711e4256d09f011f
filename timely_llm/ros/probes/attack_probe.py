"""Both clients of `timely-llm benchmark attack`: a robot with urgent plans, and an attacker."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

from timely_llm import srv
from timely_llm.action import Plan
from timely_llm.benchmarks.attack import ATTACKS, Attack
from timely_llm.core.errors import ConfigurationError
from timely_llm.core.events.log import FileEventLog
from timely_llm.core.events.probe_events import (
    AttackAnsweredEvent,
    AttackEvent,
    OverEvent,
    ProbeFailedEvent,
    ServedEvent,
)
from timely_llm.core.request import ErrorCode
from timely_llm.core.time_utility import URGENT
from timely_llm.ros import qos
from timely_llm.ros.client.goal_client import GoalClient, SentGoal
from timely_llm.ros.conversions import TIME_UTILITY
from timely_llm.ros.guarded import Guarded
from timely_llm.ros.parameters import SERVER, NodeParameter, declare
from timely_llm.ros.process import executor_of, exit_status, ros, spin

DISCOVERY_S = 30.0
QUIET_S = 1.0
"""Time between two attacks, seconds."""
ANSWER_S = 60.0
"""Longest wait for an attack's answer, seconds."""
PARAMETERS = (
    NodeParameter("role", "robot", "role of the process", choices=("robot", "attacker")),
    NodeParameter("attacks", [""], "names of the attacks; empty: all"),
    NodeParameter("rounds", 1, "how often each attack is sent", 1, 1000),
    SERVER,
    NodeParameter("log", "", "write what happens to this file as JSON lines"),
)


class UrgentRobot(Guarded):
    """Asks for one urgent plan after the other, and logs the times of first segments."""

    def __init__(self, values: dict[str, Any], event_log: FileEventLog) -> None:
        super().__init__("urgent_robot")
        self._event_log = event_log
        self._asked_s = self._next_s = 0.0
        self._open = False
        self._goal: SentGoal | None = None
        self._number = 0
        self._client = GoalClient(self, Plan, f"{values['server']}/plan")
        self._client.await_server(DISCOVERY_S)

    def tick(self) -> bool:
        """Ask for a plan if none is open; return true."""
        now = time.monotonic()
        if not self._open and now >= self._next_s:
            self._open, self._asked_s = True, now
            self._number += 1
            goal = Plan.Goal(
                request_id=f"urgent-{self._number}", agent="urgent", skill_set="drone",
                task="Scene: []\nTask: [A] Check for a cat or a cup.",
                time_utility=TIME_UTILITY.message(URGENT),
            )  # fmt: skip
            self._goal = self._client.send(
                goal, on_feedback=self._on_feedback, on_result=self._on_result
            )
        return True

    def _on_feedback(self, feedback: Any) -> None:
        if feedback.segment.index == 0:
            now = time.monotonic()
            # The rest of the plan comes when the robot is idle.
            if self._goal is not None and self._goal.accepted:
                self._goal.cancel()
            name = feedback.segment.request_id
            self._event_log.write(ServedEvent(now, name, self._asked_s))

    def _on_result(self, result: Any) -> None:
        if result is not None and result.error_code not in (ErrorCode.NONE, ErrorCode.CANCELED):
            self._event_log.write(ProbeFailedEvent(time.monotonic(), result.error_msg))
        self._open = False
        self._next_s = time.monotonic() + 0.02


class Attacker(Guarded):
    """Sends one attack after the other, and logs the answers."""

    def __init__(self, values: dict[str, Any], event_log: FileEventLog) -> None:
        super().__init__("attacker")
        self._event_log = event_log
        self._server: str = values["server"]
        chosen = [name for name in values["attacks"] if name]
        chosen_ones = [a for a in ATTACKS if not chosen or a.name in chosen]
        self._attacks = chosen_ones * values["rounds"]
        self._attack: Attack | None = None
        self._message: Any = None
        self._next_s = time.monotonic() + 2 * QUIET_S
        self._end_s = 0.0
        self._missing = 0
        self._words = ""
        self._known: dict[str, Any] = {}
        for attack in self._attacks:
            self._connect(attack)
        self._undo: Any = self.create_client(
            srv.UnregisterSkillSet, f"{self._server}/unregister_skill_set"
        )

    def tick(self) -> bool:
        """Send the next attack if it is due; return whether there is more to do."""
        now = time.monotonic()
        if self._attack is not None:
            if not self._missing or now >= self._end_s:
                self._end(self._attack, now)
        elif now >= self._next_s:
            if not self._attacks:
                self._event_log.write(OverEvent(now))
                return False
            if self._message is None:  # made before the attack is timed
                self._message = _message(_type(self._attacks[0].kind, request=True),
                                         self._attacks[0].fields())  # fmt: skip
            else:
                self._begin(self._attacks.pop(0))
        return True

    def _connect(self, attack: Attack) -> None:
        if attack.to in self._known:
            return
        target, kind = self._full(attack.to), _type(attack.kind)
        if "/srv/" in attack.kind:
            client: Any = self.create_client(kind, target)
            if not client.wait_for_service(DISCOVERY_S):
                raise ConfigurationError(f"no plan server answered within {DISCOVERY_S:g} s")
            self._known[attack.to] = client
            return
        self._known[attack.to] = self.create_publisher(kind, target, qos.reliable())
        if attack.answer:
            self.create_subscription(
                _type(attack.answer_kind), self._full(attack.answer), self._on_message,
                qos.reliable(),
            )  # fmt: skip

    def _full(self, name: str) -> str:
        """Return a name of the server's with the server's own instead of "~"."""
        return name.replace("~", self._server, 1)

    def _begin(self, attack: Attack) -> None:
        self._attack, self._words = attack, ""
        begun_s = time.monotonic()
        self._end_s = begun_s + (ANSWER_S if "/srv/" in attack.kind or attack.answer else QUIET_S)
        self._missing = attack.times
        self._event_log.write(AttackEvent(begun_s, attack.name))
        for _ in range(attack.times):
            if "/srv/" in attack.kind:
                self._known[attack.to].call_async(self._message).add_done_callback(self._on_answer)
            else:
                self._known[attack.to].publish(self._message)
        self._message = None

    def _end(self, attack: Attack, now: float) -> None:
        expected = "/srv/" in attack.kind or attack.answer
        words = f"no answer within {ANSWER_S:g} s" if self._missing and expected else self._words
        self._event_log.write(AttackAnsweredEvent(now, attack.name, words))
        if attack.undo:
            self._undo.call_async(srv.UnregisterSkillSet.Request(name=attack.undo))
        self._attack, self._next_s = None, now + QUIET_S

    def _on_answer(self, future: Any) -> None:
        self._hear(future.result())

    def _on_message(self, message: Any) -> None:
        if message.request_id == "attack":
            self._hear(message)

    def _hear(self, answer: Any) -> None:
        self._missing -= 1
        results = getattr(answer, "results", None)
        words: str = results[0].reason if results else answer.error_msg
        self._words = words or self._words or "taken"


def _type(kind: str, request: bool = False) -> Any:
    """Return an interface's type, or the type of a service's request."""
    package, module, name = kind.split("/")
    found = getattr(import_module(f"{package}.{module}"), name)
    return found.Request if request and module == "srv" else found


def _message(kind: Any, fields: dict[str, Any]) -> Any:
    """Return a message with these fields; a dict stands for an inner message."""
    types = kind.get_fields_and_field_types()
    made = {}
    for name, value in fields.items():
        inner = types[name].removeprefix("sequence<").removesuffix(">").split(",")[0]
        if isinstance(value, dict):
            made[name] = _message(_inner(inner), value)
        elif isinstance(value, list):
            made[name] = [_message(_inner(inner), each) for each in value]
        else:
            made[name] = value
    return kind(**made)


def _inner(name: str) -> Any:
    package, _, kind = name.partition("/")
    return getattr(import_module(f"{package}.msg"), kind)


def main(args: list[str] | None = None) -> int:
    """Ask or attack; return the exit status."""

    def work() -> None:
        with ros(args), executor_of() as executor:
            asked = Guarded("attack_probe")
            values = declare(asked, PARAMETERS)
            asked.destroy_node()
            make: Callable[..., UrgentRobot | Attacker] = (
                UrgentRobot if values["role"] == "robot" else Attacker
            )
            node = make(values, FileEventLog(values["log"]))
            executor.add_node(node)
            spin(executor, node.tick, poll_s=lambda: 0.01)

    return exit_status("attack_probe", work)


if __name__ == "__main__":
    sys.exit(main())
