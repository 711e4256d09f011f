"""A trace replayed against a running server: asked at its times, executed by simulated robots."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from timely_llm.core.errors import ConfigurationError
from timely_llm.experiments.outcome import Run
from timely_llm.experiments.replay_script import Script, request_of
from timely_llm.experiments.workload import Work
from timely_llm.ros.rcl_errors import reason
from timely_llm.ros.replay_node import ReplayNode
from timely_llm.ros.replayed_job import ReplayedJob
from timely_llm.traces.lines import header_line, request_line

POLL_S = 0.1
"""Whether the replay shall go on is asked at least this often."""
CHECK_S = 1.0
"""Signs of life, and the question whom the server serves, are sent this often."""
GONE_S, SILENT_S = 3.0, 30.0
"""A server that ROS does not see, or that answers nothing, for so long has gone."""
ANSWER_S = 0.5
"""A server that is just being discovered may lose a question: ask again after so long."""
LEAD_S = 1.0
"""From finding the server to the start: who else listens finds this node meanwhile."""
CLOSE_S = 5.0

GoOn = Callable[[], bool]
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Target:
    """The server that is asked.

    Attributes:
        server: name of its node.
        namespace: of the node.
        domain: ROS domain; None: ROS_DOMAIN_ID.
        by_topic: ask by its topic `plan_requests`, not by its action.
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
        run: what robots got for what was asked; 0 s is the start.
        late_s: of each request, how long after its time it was asked.
        results: how requests ended: names of error codes, "LOST" or "UNFINISHED".
        unasked: jobs that were not asked any more.
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
    """Ask a server for the plans of a script, and let simulated robots execute them.

    Args:
        what: to ask.
        target: the server.
        go_on: asked often; if it says no, all requests are canceled.
        progress: called with requests that ended and all requests.

    Raises:
        ConfigurationError: there is no server, or ROS cannot be used with its names.
    """
    active: dict[str, ReplayedJob] = {}
    try:
        node = ReplayNode(
            target.server, target.namespace, target.domain, active.get, 1 + len(what.trace.jobs)
        )
    except Exception as error:  # rclpy has a different one for each way to be wrong
        raise ConfigurationError(
            f"cannot make a client of {target.server!r}: {reason(error)}"
        ) from error
    try:
        _find(node, target.timeout_s, go_on)
        return _Replay(what, node, active, target.by_topic).run(go_on, progress)
    finally:
        node.close()


def _find(node: ReplayNode, timeout_s: float, go_on: GoOn) -> None:
    """Wait until the server answers, and what both say reaches the other.

    Raises:
        ConfigurationError: it does not in time.
    """
    answers: list[set[str]] = []
    end_s, ask_s = time.monotonic() + timeout_s, 0.0
    while not answers and go_on():
        now = time.monotonic()
        if now >= end_s:
            raise ConfigurationError(
                f"no plan server {node.server} answered within {timeout_s:g} s: is it running, "
                "in the same ROS_DOMAIN_ID?"
            )
        if now >= ask_s and node.server_is_there:
            node.ask_who_is_served(answers.append)
            ask_s = now + ANSWER_S
        node.spin(min(POLL_S, end_s - now))


class _Replay:
    """One replay."""

    def __init__(
        self, what: Script, node: ReplayNode, active: dict[str, ReplayedJob], by_topic: bool
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
        self._active: dict[str, ReplayedJob] = active
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
            progress(len(self._late_s) - len(self._active), len(self._jobs))
            self._node.spin(max(self._wake_s() - time.monotonic(), 0.0))
        end_s = time.monotonic()
        asked = self._jobs[: len(self._late_s)]
        self._close()
        outcomes = tuple(job.outcome(self._start_s, end_s) for job in asked)
        tokens = sum(job.result.generated_tokens for job in asked if job.result is not None)
        run = Run(outcomes, 0, 0.0, end_s - self._start_s, tokens)
        results = Counter(_end(job) for job in asked)
        unasked = len(self._jobs) - len(asked)
        return Replayed(run, tuple(self._late_s), results, unasked, self._problem)

    @property
    def _due_s(self) -> float:
        """When the next job is asked; infinite after the last one."""
        if len(self._late_s) == len(self._jobs):
            return math.inf
        return self._start_s + self._jobs[len(self._late_s)].work.arrival_s

    def _wake_s(self) -> float:
        wakes_s = (job.wake_s for job in self._active.values())
        poll_s = time.monotonic() + POLL_S
        return min(poll_s, self._due_s, self._check_s, *wakes_s)

    def _ask(self) -> None:
        """Ask all that is due; then, for who listens, say what was asked."""
        first = len(self._late_s)
        while (due_s := self._due_s) <= time.monotonic():
            job = self._jobs[len(self._late_s)]
            job.ask()
            self._active[job.request.request_id] = job
            if self._by_topic:
                self._node.ask_by_topic(job.request)
            else:
                self._node.send(job.request, 0, job)
            self._late_s.append(time.monotonic() - due_s)
        for job in self._jobs[first : len(self._late_s)]:
            self._node.line(request_line(job.work.job))

    def _go_on(self) -> None:
        """Let robots go on, and do what is due from time to time."""
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


def _end(job: ReplayedJob) -> str:
    if job.result is not None:
        return job.result.error_code.name
    return "LOST" if job.lost else "UNFINISHED"
