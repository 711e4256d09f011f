"""A trace replayed against a running server: simulated robots execute, simulated people hear."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from timely_llm.core.echo import quoted
from timely_llm.core.errors import ConfigurationError
from timely_llm.experiments.outcome import Run
from timely_llm.experiments.replay_script import Script, request_of
from timely_llm.experiments.workload import Work
from timely_llm.ros.asking_node import POLL_S
from timely_llm.ros.rcl_errors import reason
from timely_llm.ros.replay_node import ReplayNode
from timely_llm.ros.replayed_job import ReplayedJob
from timely_llm.ros.replayed_talk import ReplayedTalk
from timely_llm.traces.lines import header_line
from timely_llm.traces.streams import request_of as talk_request_of

CHECK_S = 1.0
"""Signs of life, and the question whom the server serves, are sent this often."""
GONE_S, SILENT_S = 3.0, 30.0
"""A server that ROS does not see, or that answers nothing, for so long has gone."""
LEAD_S = 1.0
"""From finding the server to the start: who else listens finds this node meanwhile."""
CLOSE_S = 5.0

GoOn = Callable[[], bool]
Progress = Callable[[int, int], None]
Asking = ReplayedJob | ReplayedTalk


@dataclass(frozen=True)
class Target:
    """The server that is asked.

    Attributes:
        server: name of its node.
        namespace: of the node.
        domain: ROS domain; None: ROS_DOMAIN_ID.
        by_topic: ask by its topics `plan_requests` and `stream_requests`, not by its actions.
        timeout_s: how long to wait for it.
    """

    server: str = "plan_server"
    namespace: str = ""
    domain: int | None = None
    by_topic: bool = False
    timeout_s: float = 10.0


@dataclass(frozen=True)
class Replayed:
    """What came of a replay.

    Attributes:
        run: what robots and people got for what was asked; 0 s is the start.
        late_s: of each request, how long after its time it was asked.
        results: how requests ended: names of error codes, "LOST" or "UNFINISHED".
        unasked: requests that were not asked any more.
        problem: why it ended early, if the server was the reason.
    """

    run: Run
    late_s: tuple[float, ...]
    results: Counter[str]
    unasked: int
    problem: str


def replay(
    what: Script, target: Target, go_on: GoOn = lambda: True, progress: Progress = lambda *_: None
) -> Replayed:
    """Ask a server for the plans and answers of a script; simulated robots execute the plans.

    Args:
        what: to ask.
        target: the server.
        go_on: asked often; if it says no, all requests are canceled.
        progress: called with requests that ended and all requests.

    Raises:
        ConfigurationError: there is no server, or ROS cannot be used with its names.
    """
    active: dict[str, Asking] = {}

    def job_of(request_id: str) -> ReplayedJob | None:
        found = active.get(request_id)
        return found if isinstance(found, ReplayedJob) else None

    def talk_of(request_id: str) -> ReplayedTalk | None:
        found = active.get(request_id)
        return found if isinstance(found, ReplayedTalk) else None

    lines = 1 + len(what.trace.jobs) + len(what.trace.conversations)
    try:
        node = ReplayNode(target.server, target.namespace, target.domain, job_of, talk_of, lines)
    except Exception as error:  # rclpy has a different one for each way to be wrong
        raise ConfigurationError(
            f"cannot make a client of {quoted(target.server)}: {reason(error)}"
        ) from error
    try:
        node.find(target.timeout_s, go_on)
        return _Replay(what, node, active, target.by_topic).run(go_on, progress)
    finally:
        node.close()


class _Replay:
    """One replay."""

    def __init__(
        self, what: Script, node: ReplayNode, active: dict[str, Asking], by_topic: bool
    ) -> None:
        self._what = what
        self._node = node
        self._by_topic = by_topic
        self._jobs = [
            ReplayedJob(
                number, Work(job.id, job, job.agent, job.arrival_s, True, ()), request_of(job),
                what.skill_sets[job.skill_set], node.report,
            )
            for number, job in enumerate(what.trace.jobs)
        ]  # fmt: skip
        self._talks = [ReplayedTalk(one, talk_request_of(one)) for one in what.trace.conversations]
        everybody: list[Asking] = [*self._jobs, *self._talks]
        self._all = sorted(everybody, key=lambda one: one.due_s)
        self._active = active
        self._late_s: list[float] = []
        self._missing: Counter[str] = Counter()
        self._problem = ""

    def run(self, go_on: GoOn, progress: Progress) -> Replayed:
        """Bring it to its end."""
        self._start_s = time.monotonic() + LEAD_S
        self._check_s = self._heard_s = self._start_s
        self._node.line(header_line(self._what.trace))
        while go_on() and not self._problem and (self._active or self._due_s < math.inf):
            self._ask()
            self._go_on()
            progress(len(self._late_s) - len(self._active), len(self._all))
            self._node.spin(max(self._wake_s() - time.monotonic(), 0.0))
        end_s = time.monotonic()
        asked = self._all[: len(self._late_s)]
        self._close()
        results = [one.result for one in asked if one.result is not None]
        run = Run(
            tuple(j.outcome(self._start_s, end_s) for j in self._jobs if j.asked_s < math.inf),
            0,
            0.0,
            end_s - self._start_s,
            sum(result.generated_tokens for result in results),
            tuple(t.outcome(self._start_s) for t in self._talks if t.asked_s < math.inf),
        )
        ends = Counter(map(_end, asked))
        unasked = len(self._all) - len(asked)
        return Replayed(run, tuple(self._late_s), ends, unasked, self._problem)

    @property
    def _due_s(self) -> float:
        """When the next request is asked; infinite after the last one."""
        if len(self._late_s) == len(self._all):
            return math.inf
        return self._start_s + self._all[len(self._late_s)].due_s

    def _wake_s(self) -> float:
        wakes_s = (job.wake_s for job in self._active.values())
        poll_s = time.monotonic() + POLL_S
        return min(poll_s, self._due_s, self._check_s, *wakes_s)

    def _ask(self) -> None:
        """Ask all that is due; then, for who listens, say what was asked."""
        first = len(self._late_s)
        while (due_s := self._due_s) <= time.monotonic():
            one = self._all[len(self._late_s)]
            one.ask()
            self._active[one.request.request_id] = one
            self._send(one)
            self._late_s.append(time.monotonic() - due_s)
        for one in self._all[first : len(self._late_s)]:
            self._node.line(one.line)

    def _send(self, one: Asking) -> None:
        if isinstance(one, ReplayedJob):
            if self._by_topic:
                self._node.ask_by_topic(one.request)
            else:
                self._node.send(one.request, 0, one)
        elif self._by_topic:
            self._node.converse_by_topic(one.request)
        else:
            self._node.converse(one.request)

    def _go_on(self) -> None:
        """Let robots and people go on, and do what is due from time to time."""
        now = time.monotonic()
        for request_id, job in list(self._active.items()):
            job.tick(now)
            if job.done:
                del self._active[request_id]
        if now < self._check_s:
            return
        self._check_s = now + CHECK_S
        for agent in {job.agent for job in self._active.values()}:
            self._node.alive(agent)
        there = self._node.server_is_there
        if now - self._heard_s > (SILENT_S if there else GONE_S):
            self._problem = f"the plan server {self._node.server} has gone"
        elif there:
            self._node.ask_who_is_served(partial(self._on_served, now))

    def _on_served(self, asked_s: float, served: set[str]) -> None:
        """Give up what the server knows nothing of any more, as after it was started anew."""
        self._heard_s = time.monotonic()
        for request_id, job in self._active.items():
            old = job.asked_s < asked_s - CHECK_S
            if old and job.result is None and request_id not in served:
                self._missing[request_id] += 1
                job.lost = self._missing[request_id] > 1

    def _close(self) -> None:
        """Cancel what is in work, and wait a little for the server's word."""
        end_s, cancel_s = time.monotonic() + CLOSE_S, 0.0
        while self._active and not self._problem and (now := time.monotonic()) < end_s:
            if now >= cancel_s:  # again: a request may overtake its cancellation
                cancel_s = now + CHECK_S
                for request_id in self._active:
                    self._node.cancel(request_id)
            self._node.spin(POLL_S)
            for request_id, job in list(self._active.items()):
                if job.result is not None:
                    del self._active[request_id]


def _end(one: Asking) -> str:
    if one.result is not None:
        return one.result.error_code.name
    return "LOST" if one.lost else "UNFINISHED"
