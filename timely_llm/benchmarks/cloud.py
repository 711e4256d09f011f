"""What a cloud that is set costs the requests that do not ask it, in pairs of runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from timely_llm.cloud.contract import CloudQuestion
from timely_llm.cloud.simulated import SimulatedCloud
from timely_llm.core.clock import WallClock
from timely_llm.core.errors import TimelyError
from timely_llm.core.request import (
    ChatMessage,
    ErrorCode,
    PlanRequest,
    Request,
    Result,
    StreamChunk,
    StreamRequest,
)
from timely_llm.core.segment import Segment
from timely_llm.core.slo import Slo
from timely_llm.core.step import StepResult
from timely_llm.engines.simulated import Profile, SimulatedEngine
from timely_llm.policies.registry import DEFAULT_POLICY, make_policy
from timely_llm.progressive.server import ProgressiveServer
from timely_llm.progressive.settings import HelpSettings
from timely_llm.resources import resource
from timely_llm.serving.limits import RequestLimits
from timely_llm.serving.loop import Loop
from timely_llm.serving.server.server import Server
from timely_llm.skills.skill_set import parse_skill_set

STEP = Profile("short", "no hardware", base_s=2e-4, row_s=0.0, prefill_token_s=0.0)
PLAN, ANSWER = "tp();->True;", "and on " * 40
LIMIT_S = 60.0
ARMS = ("none", "none again", "set")
"""No cloud; no cloud once more, as a measure of the noise; a cloud that no request asks."""


class _Sink:
    """Counts ends."""

    def __init__(self) -> None:
        self._left = self.failed = 0
        self.over = threading.Event()

    def expect(self, count: int) -> None:
        """Wait for some ends from now on."""
        self._left = count
        self.over.clear()

    def accepted(self, request: Request) -> None: ...
    def segment(self, segment: Segment) -> None: ...
    def chunk(self, chunk: StreamChunk) -> None: ...
    def stepped(self, result: StepResult) -> None: ...

    def ended(self, result: Result) -> None:
        self.failed += result.error_code is not ErrorCode.NONE
        self._left -= 1
        if not self._left:
            self.over.set()


class _Site:
    """A server, with a cloud or without."""

    def __init__(self, cloud: bool) -> None:
        clock = WallClock()
        self._sink = _Sink()
        self._help: ProgressiveServer | None = None
        if cloud:
            far = SimulatedCloud(STEP, _silent)
            self._help = ProgressiveServer(far, self._sink, HelpSettings(), clock, lambda: None)
        self._server = Server(
            lambda: Loop(SimulatedEngine(STEP, _say, clock), make_policy(DEFAULT_POLICY), clock),
            self._help or self._sink, clock,
            RequestLimits(max_requests=10_000, max_requests_per_agent=10_000),
        )  # fmt: skip
        if self._help is not None:
            self._help.attach(self._server)
        self._server.wait_ready(LIMIT_S)
        text = resource("config/skill_sets/drone.yaml").read_text()
        self._server.skill_sets.register(text, read=parse_skill_set).result(LIMIT_S)

    def serve(self, requests: int) -> float:
        """Serve plans and answers, as many of each; return the CPU seconds of this process.

        Raises:
            TimelyError: a request failed or did not end.
        """
        self._sink.expect(requests)
        face = self._help or self._server
        begun_s = time.process_time()
        for number in range(requests):
            face.submit(_request(number))
        if not self._sink.over.wait(LIMIT_S) or self._sink.failed:
            raise TimelyError(f"{self._sink.failed} requests failed, or some took {LIMIT_S:g} s")
        return time.process_time() - begun_s

    def close(self) -> None:
        """End the threads."""
        self._server.close()
        if self._help is not None:
            self._help.close()


def rows(
    requests: int = 64,
    rounds: int = 30,
    progress: Callable[[float, float], None] = lambda done, total: None,
) -> list[dict[str, Any]]:
    """Return what a request costs without a cloud, and beside a cloud that it does not ask.

    In each round three servers serve the same requests, one after another, in an order that changes
    from round to round: two without a cloud, and one with. The engine is simulated with steps of
    0.2 ms, and no request asks for help.

    Args:
        requests: in each round, half of them plans.
        rounds: at least 2; one more warms up.
        progress: called with the finished and the total number of rounds.

    Returns:
        Rows of `cloud, request_us, ratio`, three for each round: microseconds of CPU of the whole
        process for each request, and their ratio to those of the first server in the same round.
        The ratio of `none again` is the noise of the measurement.

    Raises:
        TimelyError: a request failed or did not end.
    """
    sites = {name: _Site(name == "set") for name in ARMS}
    try:
        made: list[dict[str, Any]] = []
        for number in range(rounds + 1):
            progress(number, rounds + 1)
            first = number % len(ARMS)
            order = (*ARMS[first:], *ARMS[:first])
            spent_s = {name: sites[name].serve(requests) for name in order}
            if number:  # the first round warms up
                made += [_row(name, spent_s, requests) for name in ARMS]
        progress(rounds + 1, rounds + 1)
    finally:
        for site in sites.values():
            site.close()
    return made


def _row(name: str, spent_s: Mapping[str, float], requests: int) -> dict[str, Any]:
    request_us = round(1e6 * spent_s[name] / requests, 1)
    return {"cloud": name, "request_us": request_us, "ratio": spent_s[name] / spent_s[ARMS[0]]}


def _request(number: int) -> Request:
    name = f"r{number}"
    if number % 2:
        said = (ChatMessage("user", "What do you see?"),)
        return StreamRequest(name, f"person-{number}", said, Slo(ttft_s=30.0))
    return PlanRequest(name, f"robot-{number}", "drone", "Take a picture.")


def _say(key: str, prompt: str) -> str:
    return ANSWER if "What do you see?" in prompt else PLAN


def _silent(question: CloudQuestion) -> str:
    raise TimelyError("a request that asks for no help was sent to the cloud")
