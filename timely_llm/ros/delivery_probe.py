"""A robot that only notes when segments reach it: one side of `timely-llm benchmark delivery`."""

from __future__ import annotations

import sys
import time
from typing import Any

from rclpy.action import ActionClient
from rclpy.task import Future

from timely_llm import msg
from timely_llm.action import Plan
from timely_llm.core.errors import ConfigurationError
from timely_llm.core.journal import FileJournal
from timely_llm.ros import qos
from timely_llm.ros.guarded import Guarded
from timely_llm.ros.parameters import Parameter, declare
from timely_llm.ros.spinning import executor_of, exit_status, ros, spin

DISCOVERY_S = 30.0
PARAMETERS = (
    Parameter("requests", 200, "plans to ask for, one after another", 1, 100_000),
    Parameter("server", "plan_server", "name of the plan server's node"),
    Parameter("log", "", "write what arrives to this file as JSON lines"),
)


class DeliveryProbe(Guarded):
    """Asks for plans and writes the time of each callback."""

    def __init__(self) -> None:
        super().__init__("delivery_probe")
        values = declare(self, PARAMETERS)
        self._left: int = values["requests"]
        self._journal = FileJournal(values["log"])
        self._topic_works = self._counts = False
        self._asked = 0
        topic = f"{values['server']}/segments"
        self.create_subscription(msg.Segment, topic, self._on_topic, qos.reliable())
        self._client: ActionClient[Any, Any, Any] = ActionClient(
            self, Plan, "plan", **qos.of_action("sub")
        )

    @property
    def at_work(self) -> bool:
        """Whether there is more to ask."""
        return self._left > 0

    def begin(self) -> None:
        """Wait for the server and ask for the first plan.

        Raises:
            ConfigurationError: the server is not there in time.
        """
        if not self._client.wait_for_server(DISCOVERY_S):
            raise ConfigurationError(f"no plan server answered within {DISCOVERY_S:g} s")
        self._ask()

    def _ask(self) -> None:
        # Until the topic has been discovered too, plans are not counted.
        self._counts = self._topic_works
        name = "probe" if self._counts else "first"
        self._asked += 1
        goal = Plan.Goal(
            request_id=f"{name}-{self._asked}", agent="probe", skill_set="drone",
            task="Scene: []\nTask: [A] Look around.",
        )  # fmt: skip
        sent = self._client.send_goal_async(goal, self._on_feedback)
        sent.add_done_callback(
            lambda future: _answer(future).get_result_async().add_done_callback(self._on_result)
        )

    def _on_feedback(self, message: Any) -> None:
        self._note("feedback", time.monotonic(), message.feedback.segment)

    def _on_topic(self, segment: msg.Segment) -> None:
        self._topic_works = True
        self._note("topic", time.monotonic(), segment)

    def _note(self, path: str, now: float, segment: msg.Segment) -> None:
        self._journal.write(path, now, id=segment.request_id, index=segment.index)

    def _on_result(self, _: Future[Any]) -> None:
        self._left -= self._counts
        if self.at_work:
            self._ask()


def _answer(future: Future[Any]) -> Any:
    return future.result()


def main(args: list[str] | None = None) -> int:
    """Ask for all plans; return the exit status."""

    def work() -> None:
        with ros(args), executor_of() as executor:
            probe = DeliveryProbe()
            executor.add_node(probe)
            probe.begin()
            spin(executor, lambda: probe.at_work)

    return exit_status("delivery_probe", work)


if __name__ == "__main__":
    sys.exit(main())
