"""Real servers in threads of this process, behind a relay; all messages pass through a queue."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from queue import Empty, SimpleQueue
from typing import Any
from uuid import uuid4

from test.serving.scripted import FIND, PROFILE
from timely_llm.core.clock import WallClock
from timely_llm.core.errors import TimelyError
from timely_llm.core.request import ExecutionReport, Rejected, Request, Result, StreamChunk
from timely_llm.core.segment import Segment
from timely_llm.core.step import SequenceProgress, StepPlan, StepResult
from timely_llm.dispatch.assign.registry import make_dispatcher
from timely_llm.dispatch.link import Found
from timely_llm.dispatch.load import Load
from timely_llm.dispatch.relay import Relay
from timely_llm.dispatch.settings import DispatchSettings
from timely_llm.engines.simulated import SimulatedEngine
from timely_llm.policies.registry import make_policy
from timely_llm.resources import resource
from timely_llm.serving.limits import RequestLimits
from timely_llm.serving.loop import Loop
from timely_llm.serving.server.results import Results, size_of
from timely_llm.serving.server.server import Server
from timely_llm.skills.skill_set import parse_skill_set

Script = Callable[[str, str], str | Sequence[str]]
NAME = "/plan_server"
YAML = resource("config/skill_sets/drone.yaml").read_text()


class Clients:
    """The clients of the relay: they note what they get."""

    def __init__(self) -> None:
        self.segments: list[Segment] = []
        self.chunks: list[StreamChunk] = []
        self.results: dict[str, Result] = {}
        self.accepted_ids: list[str] = []

    def accepted(self, request: Request) -> None:
        self.accepted_ids.append(request.request_id)

    def segment(self, segment: Segment) -> None:
        self.segments.append(segment)

    def chunk(self, chunk: StreamChunk) -> None:
        self.chunks.append(chunk)

    def ended(self, result: Result) -> None:
        assert result.request_id not in self.results, "a request ends once"
        self.results[result.request_id] = result

    def stepped(self, result: StepResult) -> None:
        raise AssertionError("a relay has no steps")

    def text(self, request_id: str, epoch: int | None = None) -> str:
        """Return the text of a plan, of one epoch or of all; a final segment may come twice."""
        texts = {
            (s.epoch, s.index): s.text
            for s in self.segments
            if s.request_id == request_id and epoch in (None, s.epoch)
        }
        return "".join(texts.values())


class NotingEngine(SimulatedEngine):
    """Notes the requests of each step that begins."""

    def __init__(self, script: Script, steps: list[frozenset[str]]) -> None:
        super().__init__(PROFILE, script, WallClock())
        self._steps = steps

    def submit(self, plan: StepPlan) -> Mapping[str, SequenceProgress]:
        self._steps.append(plan.keys)
        return super().submit(plan)


class LocalServer:
    """A real server, the sink of its loop, and the link to it."""

    def __init__(self, name: str, servers: Servers, script: Script, **limits: Any) -> None:
        self.name, self.life = name, uuid4().hex
        self._servers = servers
        self._results: Results[Result] = Results(60.0, 64)
        self.alive = True
        self.frozen = False
        self.steps: list[frozenset[str]] = []
        self.canceled_at: dict[str, int] = {}  # number of the steps that had begun, by request

        def make_loop() -> Loop:
            return Loop(NotingEngine(script, self.steps), make_policy("deadline"), WallClock())

        self.server = Server(make_loop, self, WallClock(), RequestLimits(**limits))
        self.server.wait_ready(10.0)
        self.server.skill_sets.register(servers.yaml).result(30.0)
        self._load: Load = self.server.call(lambda loop: Load(loop, name)).result(10.0)
        self.sent: list[Request] = []
        self.late: list[Callable[[], None]] = []

    # The sink: in the loop's thread.

    def accepted(self, request: Request) -> None: ...

    def stepped(self, result: StepResult) -> None: ...

    def segment(self, segment: Segment) -> None:
        self._put(lambda relay: relay.segment(self.name, segment))

    def chunk(self, chunk: StreamChunk) -> None:
        self._put(lambda relay: relay.chunk(self.name, chunk))

    def ended(self, result: Result) -> None:
        self._results.put(result.request_id, result, size_of(result), time.monotonic())
        self._put(lambda relay: relay.ended(self.name, result))

    def show(self) -> None:
        """Send a view."""
        if self.alive and not self.frozen:
            view = self.server.call(lambda loop: self._load.view(time.monotonic())).result(10.0)
            shown = replace(view, active=self.server.accepting)
            self._put(lambda relay: relay.heard(shown, self.life))

    def kill(self) -> None:
        """End the server; nothing of it comes any more, and the relay learns it."""
        self.alive = False
        self._servers.messages.put(lambda: self._servers.relay.lost(self.name, "it died"))
        self.server.close()

    def _put(self, tell: Callable[[Relay], None]) -> None:
        if self.alive:
            self._servers.messages.put(lambda: tell(self._servers.relay) if self.alive else None)

    # The link: in the relay's thread.

    def send(self, request: Request) -> None:
        self.sent.append(request)
        try:
            self.server.submit(request)
        except Rejected as error:
            self.ended(request.refused(error.code, str(error)))

    def report(self, report: ExecutionReport) -> None:
        self.server.report(report)

    def cancel(self, request_id: str) -> None:
        self.server.cancel(request_id)
        self.canceled_at[request_id] = len(self.steps)

    def withdraw(self, request_id: str, stays: Callable[[], None]) -> None:
        asked = self.server.cancel(request_id, unless_begun=True)
        self._then(asked, lambda there: None if there else stays(), stays)

    def inquire(self, request_id: str, answered: Callable[[Result | None], None]) -> None:
        if not self.server.serves(request_id):
            answered(self._results.get(request_id, time.monotonic()))

    def find(self, answered: Callable[[Sequence[Found]], None]) -> None:
        found = []
        for one in self.server.requests_of(NAME).result(10.0):
            key = one.request.request_id
            try:
                segments = self.server.segments("", key).result(10.0)
            except TimelyError:
                segments = []
            found.append(Found(one.request, segments, one.text, one.made))
        answered(found)

    def skill_set(self, name: str, answered: Callable[[str], None]) -> None:
        answered(self.server.skill_sets.text(name))

    def register(self, text: str, answered: Callable[[str, int, str], None]) -> None:
        asked = self.server.skill_sets.register(text, read=parse_skill_set)
        self._then(
            asked, lambda done: answered(done[0], done[1], ""), lambda: answered("", 0, "refused")
        )

    def unregister(self, name: str, answered: Callable[[str], None]) -> None:
        asked = self.server.unregister(name)
        self._then(asked, lambda _: answered(""), lambda: answered("refused"))

    def close(self) -> None: ...

    def _then(
        self, future: Future[Any], done: Callable[[Any], None], failed: Callable[[], None]
    ) -> None:
        def settled(_: Future[Any]) -> None:
            if self.alive:
                self._servers.messages.put(
                    failed if future.exception() else lambda: done(future.result())
                )

        future.add_done_callback(settled)


class Servers:
    """Servers behind a relay, and the thread that turns it: that of the test."""

    def __init__(self, *names: str, script: Script = lambda key, prompt: FIND, **settings: Any):
        self.messages: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.said: list[str] = []
        self.script = script
        self.servers: dict[str, LocalServer] = {}
        self.clients = Clients()
        self.yaml = YAML
        self.kind: type[LocalServer] = settings.pop("kind", LocalServer)
        self.relay = self.new_relay(**settings)
        for name in names:
            self.start(name)

    def new_relay(self, **settings: Any) -> Relay:
        self.relay = Relay(
            make_dispatcher(settings.pop("rule", "round-robin")), self.clients, WallClock(),
            DispatchSettings(NAME, settings.pop("limits", RequestLimits()), **settings),
            parse_skill_set, self.said.append, lambda: None,
        )  # fmt: skip
        return self.relay

    def start(self, name: str, **limits: Any) -> LocalServer:
        self.servers[name] = made = self.kind(name, self, self.script, **limits)
        self.relay.joined(name, made)
        self.until(lambda: name in self.relay.servers and "drone" in self.known(name))
        return made

    def known(self, name: str) -> Sequence[str]:
        views = {view.name: view for view in self.relay.views()}
        return tuple(views[name].skill_sets) if name in views else ()

    def at(self, request_id: str) -> LocalServer:
        name = self.relay.server_of(request_id)
        assert name is not None
        return self.servers[name]

    def turn(self) -> None:
        for one in list(self.servers.values()):
            one.show()
        end_s = time.monotonic() + 0.005
        while time.monotonic() < end_s:
            with contextlib.suppress(Empty):
                self.messages.get(timeout=0.001)()
            self.relay.tick()

    def until(self, true: Callable[[], bool], limit_s: float = 20.0) -> None:
        end_s = time.monotonic() + limit_s
        while not true():
            assert time.monotonic() < end_s, "it did not happen in time"
            self.turn()

    def result(self, request_id: str) -> Result:
        self.until(lambda: request_id in self.clients.results)
        return self.clients.results[request_id]

    def value(self, future: Future[Any]) -> Any:
        self.until(future.done)
        return future.result()

    def close(self) -> None:
        self.relay.close()
        for one in self.servers.values():
            one.alive = False
            one.server.close()
