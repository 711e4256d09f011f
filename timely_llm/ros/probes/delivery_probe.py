"""A robot that only logs when segments arrive: one side of `timely-llm benchmark delivery`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from timely_llm import msg
from timely_llm.action import Plan
from timely_llm.benchmarks.delivery import COUNTED
from timely_llm.core.events.log import FileEventLog
from timely_llm.core.events.probe_events import DirectEvent, FeedbackEvent, TopicEvent
from timely_llm.ros import qos
from timely_llm.ros.client.goal_client import GoalClient
from timely_llm.ros.guarded import Guarded
from timely_llm.ros.parameters import SERVER, NodeParameter, declare
from timely_llm.ros.process import executor_of, exit_status, ros, spin

DISCOVERY_S = 30.0
PARAMETERS = (
    NodeParameter("requests", 200, "plans to ask for, one after another", 1, 100_000),
    SERVER,
    NodeParameter(
        "direct", [""], "ask for nothing, and listen to these servers of a dispatcher until the end"
    ),
    NodeParameter("log", "", "write what arrives to this file as JSON lines"),
)


class DeliveryProbe(Guarded):
    """Asks for plans, or only listens to servers, and writes the time of each callback."""

    def __init__(self) -> None:
        super().__init__("delivery_probe")
        values = declare(self, PARAMETERS)
        self._left: int = values["requests"]
        self._event_log = FileEventLog(values["log"])
        self._topic_works = self._counts = False
        self._asked = 0
        self._client: GoalClient | None = None
        direct = [name for name in values["direct"] if name]
        for name in direct:
            self._listen(name, self._on_direct)
        if not direct:
            self._listen(values["server"], self._on_topic)
            self._client = GoalClient(self, Plan, f"{values['server']}/plan")

    @property
    def at_work(self) -> bool:
        """Whether there is more to ask."""
        return self._left > 0

    def begin(self) -> None:
        """Wait for the server and ask for the first plan, unless it only listens.

        Raises:
            ConfigurationError: the server is not there in time.
        """
        if self._client is not None:
            self._client.await_server(DISCOVERY_S)
            self._ask()

    def _listen(self, server: str, take: Callable[..., None]) -> None:
        self.create_subscription(msg.Segment, f"{server}/segments", take, qos.reliable())

    def _ask(self) -> None:
        if self._client is None:
            return
        # Until the topic has been discovered too, plans are not counted.
        self._counts = self._topic_works
        name = COUNTED if self._counts else "first-"
        self._asked += 1
        goal = Plan.Goal(
            request_id=f"{name}{self._asked}", agent="probe", skill_set="drone",
            task="Scene: []\nTask: [A] Look around.",
        )  # fmt: skip
        self._client.send(goal, on_feedback=self._on_feedback, on_result=self._on_result)

    def _on_feedback(self, feedback: Any) -> None:
        segment = feedback.segment
        self._event_log.write(FeedbackEvent(time.monotonic(), segment.request_id, segment.index))

    def _on_topic(self, segment: msg.Segment, info: Any) -> None:
        self._topic_works = True
        self._note(TopicEvent, segment, info)

    def _on_direct(self, segment: msg.Segment, info: Any) -> None:
        self._note(DirectEvent, segment, info)

    def _note(self, path: type[TopicEvent | DirectEvent], segment: msg.Segment, info: Any) -> None:
        now, sent_s = time.monotonic(), 1e-9 * info["source_timestamp"]
        self._event_log.write(path(now, segment.request_id, segment.index, sent_s))

    def _on_result(self, _: Any) -> None:
        self._left -= self._counts
        if self.at_work:
            self._ask()


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
