"""The probe of `timely-llm benchmark kills`.

It writes what a dispatcher publishes, lets a few robots follow their plans beyond the dispatcher's
end, deactivates and activates nodes, and asks at the end what is served.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
from rclpy.executors import Executor

from timely_llm import msg, srv
from timely_llm.core.events.log import FileEventLog
from timely_llm.core.events.probe_events import (
    AcceptedEvent,
    KillEvent,
    OverEvent,
    ProbeFailedEvent,
    ServingEvent,
)
from timely_llm.core.events.reader import LogReader
from timely_llm.core.events.schema import EndEvent, HeardEvent, ReceiveEvent
from timely_llm.resources import resource
from timely_llm.robots.tasks import load_task_set
from timely_llm.ros import conversions, qos
from timely_llm.ros.client.server_watch import ServerWatch
from timely_llm.ros.fleet.agents import SEED
from timely_llm.ros.guarded import Guarded
from timely_llm.ros.parameters import SERVER, NodeParameter, declare
from timely_llm.ros.probes.following_robot import FollowingRobot
from timely_llm.ros.process import executor_of, exit_status, ros, spin
from timely_llm.skills.skill_set import load_skill_set

TICK_S = 0.02
PAUSE_S = 3.0
"""Mean seconds from the end of a robot's plan to its next request."""
FAILURE_SHARE = 0.02
OPEN_SHARE = 0.3
URGENT_SHARE = 0.3
TRANSITION_S = 10.0
"""Longest wait for a node that is to be deactivated or activated, seconds."""
QUIET_S = 100.0
"""Longest wait until nothing is served, seconds: longer than all timeouts of robots' reports."""
LIST_S = 1.0
OVERTAKEN_S = 30.0
"""Seconds by which a result may be earlier than what it has: that comes by another topic."""
TRANSITIONS = {
    "deactivated": Transition.TRANSITION_DEACTIVATE,
    "activated": Transition.TRANSITION_ACTIVATE,
}
PARAMETERS = (
    NodeParameter("robots", 6, "robots that follow their plans by topics", 1, 512),
    NodeParameter("duration_s", 60.0, "seconds in which they ask for plans", 0.1, 1e6),
    NodeParameter("servers", [""], "full names of the servers behind the dispatcher"),
    NodeParameter("face", "dispatcher", "name of the process that robots ask"),
    NodeParameter("folder", "", "folder of the event logs"),
    SEED,
    SERVER,
)


class Published:
    """The texts that were published of each request, of the newest epoch."""

    def __init__(self) -> None:
        self._texts: dict[str, tuple[int, dict[int, str]]] = {}
        self._ended: deque[tuple[float, str, str]] = deque()

    def segment(self, key: str, epoch: int, index: int, text: str) -> None:
        """Take the text of a segment or token."""
        newest, texts = self._texts.get(key, (epoch, {}))
        if epoch > newest:
            texts = {}
        texts[index] = text
        self._texts[key] = epoch, texts

    def forget(self) -> None:
        """Forget all open requests: the next dispatcher publishes only what it makes itself."""
        self._texts.clear()

    def ended(self, key: str, text: str, now: float) -> None:
        """Take the text of a result; it may have overtaken the last segments or tokens."""
        self._ended.append((now + OVERTAKEN_S, key, text))

    def problems(self, now: float) -> Iterator[str]:
        """Yield how results differ from what was published."""
        while self._ended and self._ended[0][0] <= now:
            _, key, text = self._ended.popleft()
            if problem := self._problem(key, text):
                yield problem

    def _problem(self, key: str, text: str) -> str:
        """Forget a request that has ended; return how the result's text differs, or nothing.

        A request of which only the end was heard is not compared.
        """
        _, texts = self._texts.pop(key, (0, {}))
        published = "".join(texts[index] for index in sorted(texts))
        whole = len(texts) == max(texts, default=-1) + 1
        if not texts or not whole or published == text:
            return ""
        return f"{key} ended with {text!r}, and {published!r} was published"


class KillsProbe(Guarded):
    """Hears all that a dispatcher publishes, and asks it and its servers what they serve."""

    def __init__(self) -> None:
        super().__init__("kills_probe")
        self.values = values = declare(self, PARAMETERS)
        folder = Path(values["folder"])
        self._published = Published()
        self._heard = FileEventLog(folder / "listener.jsonl")
        self._kills = LogReader(folder / "kills.jsonl")
        server = self.resolve_service_name(values["server"])
        self._names = {name.split("/")[1]: name for name in values["servers"] if name}
        self._names[values["face"]] = server
        self._listen(server)
        self._states = self._asking(ChangeState, "change_state")
        self._lists = self._asking(srv.ListRequests, "list_requests")
        self._transitions: list[tuple[str, str, float]] = []
        self._served: dict[str, tuple[str, ...]] = {}
        self._asked_s = self._end_s = self._tick_s = 0.0
        self._over = False
        results: Any = self.create_client(srv.GetResult, f"{server}/get_result")
        skill_set = load_skill_set(resource("config/skill_sets/drone.yaml"))
        self._tasks = load_task_set(resource("config/tasks/drone.yaml"))
        self._rng, *streams = np.random.default_rng(values["seed"] + 1).spawn(values["robots"] + 1)
        log = FileEventLog(folder / "followers.jsonl")
        self.robots = [
            FollowingRobot(
                f"follower_{place}", server, results, skill_set, stream, log, FAILURE_SHARE,
                self._tasks.failures, OPEN_SHARE, replaces=lambda: self._watch.replaces_plans,
            )
            for place, stream in enumerate(streams)
        ]  # fmt: skip
        self._next_s = {robot.agent: time.monotonic() for robot in self.robots}
        self._watch = ServerWatch(self, server, self._away)

    def begin(self, executor: Executor) -> None:
        """Let the robots' nodes be spun; they ask for `duration_s` from now on."""
        for robot in self.robots:
            executor.add_node(robot)
        self._end_s = time.monotonic() + self.values["duration_s"]

    def tick(self) -> bool:
        """Do what is due; return whether there is more to do."""
        now = time.monotonic()
        if now < self._tick_s:  # a message was taken: the next ones wait
            return True
        self._tick_s = now + TICK_S
        for event in self._kills.read():
            if isinstance(event, KillEvent) and event.kind in TRANSITIONS:
                self._transitions.append((event.process, event.kind, now + TRANSITION_S))
            elif isinstance(event, OverEvent):
                self._over, self._end_s = True, now + QUIET_S
        for problem in self._published.problems(now):
            self._heard.write(ProbeFailedEvent(now, problem))
        self._transitions = [one for one in self._transitions if not self._change(*one)]
        if self._watch.lost():
            self._away()
        self._watch.find(lambda: all(robot.server_is_there for robot in self.robots))
        for robot in self.robots:
            robot.step()
            self._ask(robot, now)
        return not self._over or self._look(now)

    def pause_s(self) -> float:
        """Return the longest wait for messages, seconds."""
        return TICK_S

    # Robots.

    def _away(self) -> None:
        self._published.forget()
        for robot in self.robots:
            robot.sender.away()

    def _ask(self, robot: FollowingRobot, now: float) -> None:
        """Let a robot ask for a plan if it is due."""
        if robot.busy:
            self._next_s[robot.agent] = now + float(self._rng.exponential(PAUSE_S))
            return
        asks = self._watch.fits and not self._over and now < self._end_s
        if asks and now >= self._next_s[robot.agent]:
            robot.ask(self._tasks.draw(bool(self._rng.random() < URGENT_SHARE), self._rng))

    # The dispatcher's topics.

    def _listen(self, server: str) -> None:
        for kind, topic, take in (
            (msg.PlanRequest, "requests", self._on_accepted),
            (msg.StreamRequest, "streams", self._on_accepted),
            (msg.Segment, "segments", self._on_segment),
            (msg.StreamChunk, "stream_chunks", self._on_chunk),
            (msg.PlanResult, "results", self._on_result),
            (msg.StreamResult, "stream_results", self._on_result),
        ):
            profile = qos.reliable(qos.TOKENS)
            self.create_subscription(kind, f"{server}/{topic}", take, profile)

    def _on_accepted(self, message: Any) -> None:
        self._heard.write(AcceptedEvent(time.monotonic(), message.request_id))

    def _on_segment(self, message: msg.Segment) -> None:
        now, key = time.monotonic(), message.request_id
        self._published.segment(key, message.epoch, message.index, message.text)
        self._heard.write(ReceiveEvent(now, key, message.index, message.epoch, message.final))

    def _on_chunk(self, message: msg.StreamChunk) -> None:
        now, key = time.monotonic(), message.request_id
        self._published.segment(key, 0, message.index, message.text)
        self._heard.write(HeardEvent(now, key, message.index, message.text))

    def _on_result(self, message: Any) -> None:
        text = message.plan if isinstance(message, msg.PlanResult) else message.text
        if not message.error_code:
            self._published.ended(message.request_id, text, time.monotonic())
        code = conversions.error_code(message.error_code).name.lower()
        self._heard.write(EndEvent(time.monotonic(), message.request_id, code, message.error_msg))

    # Life cycles, and the end.

    def _asking(self, kind: Any, name: str) -> dict[str, Any]:
        return {
            one: self.create_client(kind, f"{full}/{name}") for one, full in self._names.items()
        }

    def _change(self, process: str, kind: str, until_s: float) -> bool:
        """Change the state of a node; return whether it is done, or the node is not there."""
        client = self._states[process]
        if not client.service_is_ready():
            return time.monotonic() > until_s
        client.call_async(ChangeState.Request(transition=Transition(id=TRANSITIONS[kind])))
        return True

    def _look(self, now: float) -> bool:
        """Ask all nodes what they serve; return whether to ask again.

        A robot may still execute a plan that no node serves any more.
        """
        if now < self._asked_s + LIST_S:
            return True
        known = len(self._served) == len(self._names)
        busy = any(self._served.values()) or any(robot.busy for robot in self.robots)
        if now < self._end_s and (not known or busy):
            self._asked_s = now
            for name, client in self._lists.items():
                if client.service_is_ready():
                    asked = client.call_async(srv.ListRequests.Request())
                    asked.add_done_callback(partial(self._on_list, name))
            return True
        for name in self._names:
            ids = self._served.get(name, ("it did not answer",))
            self._heard.write(ServingEvent(now, name, ids))
        return False

    def _on_list(self, name: str, future: Any) -> None:
        self._served[name] = tuple(one.request_id for one in future.result().requests)


def main(args: list[str] | None = None) -> int:
    """Probe until the run is over; return the exit status."""

    def work() -> None:
        with ros(args), executor_of() as executor:
            probe = KillsProbe()
            executor.add_node(probe)
            probe.begin(executor)
            spin(executor, probe.tick, poll_s=probe.pause_s)

    return exit_status("kills_probe", work)


if __name__ == "__main__":
    sys.exit(main())
