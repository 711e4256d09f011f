"""Servers that die, return, refuse, drain and lose messages in any order behind one front."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from test.dispatch.front.fronts import SCAN, Words, kept
from test.dispatch.views import plan, question, server
from test.examples import examples
from timely_llm.core.request import (
    ErrorCode,
    ExecutionReport,
    PlanRequest,
    ReportState,
    Request,
    StreamChunk,
    StreamRequest,
)
from timely_llm.core.segment import Segment
from timely_llm.core.time_utility import NORMAL, URGENT
from timely_llm.dispatch.assign.registry import make_dispatcher
from timely_llm.dispatch.contract import Due
from timely_llm.dispatch.front.actions import (
    Action,
    Cancel,
    Deliver,
    Finish,
    Inquire,
    Send,
    Tell,
    Withdraw,
)
from timely_llm.dispatch.front.front import Front
from timely_llm.dispatch.front.leftovers import LATE_S

NAMES = "abc"
QUEUE = (Due(0.1, 8.0, 2.0, 0.3, 60),) * 12
REFUSALS = (ErrorCode.QUEUE_FULL, ErrorCode.ENGINE_FAILED, ErrorCode.INACTIVE)
ENDS = (*REFUSALS, ErrorCode.TOO_LONG, ErrorCode.CANCELED)


@dataclass
class Run:
    """A request at a server."""

    request: Request
    epoch: int = 0
    index: int = 0
    begun: bool = False
    whole: bool = False
    blocked: bool = False


@dataclass
class Host:
    """A server, and the messages on their way from it, in order."""

    name: str
    up: bool = False  # the front has heard of it and has not lost it
    active: bool = True
    deaf: bool = False  # the next request does not come
    refusal: ErrorCode | None = None
    runs: dict[str, Run] = field(default_factory=dict)
    results: dict[str, ErrorCode] = field(default_factory=dict)
    outbox: list[Callable[[], Sequence[Action] | None]] = field(default_factory=list)


@dataclass
class Client:
    """A robot, or a person: what it has got, and what its robot did with it."""

    request: Request
    epoch: int = 0
    got: list[Segment] = field(default_factory=list)
    done: int = 0
    failed: bool = False
    returned: bool = False  # and the front knows it
    free_s: float = -1e9
    tokens: int = 0

    @property
    def free(self) -> bool:
        return self.failed or self.done >= len(self.got)


class Servers(RuleBasedStateMachine):
    """A front with servers, robots and people."""

    @initialize(
        hedge=st.booleans(), moves=st.booleans(), closed=st.booleans(), made=st.integers(0, 3)
    )
    def begin(self, hedge: bool, moves: bool, closed: bool, made: int) -> None:
        self.now = 0.0
        self.front = Front(make_dispatcher("most-worth"), Words(), moves, hedge)
        self.hosts = {name: Host(name) for name in NAMES}
        self.clients: dict[str, Client] = {}  # with an open request
        self.mail: list[ExecutionReport] = []
        self.asked = 0
        for name in "ab":
            self.hear(name, False, True)
        self.ask(False, True, False)
        self.ask(True, False, closed)
        name = str(self.front.server_of("r1"))
        for _ in range(made):
            self.make(self.hosts[name], "r1", False)
        self.pass_on(name)

    @property
    def runs(self) -> list[tuple[str, str]]:
        """The servers and ids of what is served, also wrongly."""
        return sorted((host.name, key) for host in self.hosts.values() for key in host.runs)

    @property
    def busy(self) -> list[str]:
        """The robots that execute something."""
        return sorted(key for key, one in self.clients.items() if not one.free)

    # What the front asks for.

    def act(self, actions: Sequence[Action] | None) -> None:
        for action in actions or ():
            match action:
                case Send(waiting, name):
                    self.send(self.hosts[name], waiting.request)
                case Withdraw(key, name):
                    self.withdraw(self.hosts[name], key)
                case Cancel(key, name):
                    if key in self.hosts[name].runs:
                        self.end_run(self.hosts[name], key, ErrorCode.CANCELED)
                case Inquire(key, name):
                    self.inquire(self.hosts[name], key)
                case Tell(report, name):
                    self.tell(self.hosts[name], report)
                case Deliver(Segment() as segment):
                    self.deliver(segment)
                case Deliver(StreamChunk() as chunk):
                    client = self.clients[chunk.request_id]
                    assert chunk.index == client.tokens, "a gap, or a token twice"
                    client.tokens += 1
                case Finish(result):
                    del self.clients[result.request_id]  # fails if it has ended before

    def send(self, host: Host, request: Request) -> None:
        key = request.request_id
        assert host.up and host.active, "it takes no requests"
        assert key in self.clients
        assert key not in host.runs, "it still serves it"
        host.results.pop(key, None)
        if host.deaf:
            host.deaf = False
        elif host.refusal:
            self.say_end(host, key, host.refusal)
        else:
            epoch = request.epoch if isinstance(request, PlanRequest) else 0
            first = request.first_token if isinstance(request, StreamRequest) else 0
            host.runs[key] = Run(request, epoch, first)

    def withdraw(self, host: Host, key: str) -> None:
        run = host.runs.get(key)
        if run is not None and not run.begun:
            self.end_run(host, key, ErrorCode.CANCELED)
        else:
            host.outbox.append(lambda: self.front.stays(key, host.name))

    def inquire(self, host: Host, key: str) -> None:
        if key in host.results:
            self.say_end(host, key, host.results[key])
        elif key not in host.runs:
            host.outbox.append(lambda: self.front.forgotten(key, host.name, self.now))

    def tell(self, host: Host, report: ExecutionReport) -> None:
        run = host.runs.get(report.request_id)
        if run is None or not isinstance(run.request, PlanRequest) or report.epoch != run.epoch:
            return
        if report.state is ReportState.RETURNED:
            self.end_run(host, report.request_id, ErrorCode.NONE)
        elif report.state is ReportState.FAILED:
            run.epoch, run.index, run.whole, run.blocked = run.epoch + 1, 0, False, False
            run.begun = True
        elif report.state is ReportState.FINISHED and report.index == run.index - 1:
            run.blocked = False
            if run.whole:
                self.end_run(host, report.request_id, ErrorCode.NONE)

    def end_run(self, host: Host, key: str, code: ErrorCode) -> None:
        del host.runs[key]
        host.results[key] = code
        self.say_end(host, key, code)

    def say_end(self, host: Host, key: str, code: ErrorCode) -> None:
        request = plan(key).request if key[0] == "r" else question(key).request
        result = request.refused(code, "" if code is ErrorCode.NONE else "no")
        host.outbox.append(lambda: self.front.ended(host.name, result, self.now))

    def deliver(self, segment: Segment) -> None:
        client = self.clients[segment.request_id]
        request = client.request
        assert isinstance(request, PlanRequest) and not client.returned
        if segment.epoch != client.epoch:
            assert segment.epoch > client.epoch, "an older epoch"
            if client.got:
                free = client.free if request.closed_loop else self.now >= client.free_s
                assert free or client.failed, "it executes the epoch before"
            client.epoch, client.got, client.done, client.failed = segment.epoch, [], 0, False
        if client.got and segment.index == len(client.got) - 1 and segment.final:
            client.got[-1] = segment
            return
        assert segment.index == len(client.got), "a gap, or a segment twice"
        client.got.append(segment)
        client.free_s = max(self.now, client.free_s) + segment.predicted_s

    # What happens.

    @rule(seconds=st.sampled_from((0.02, 0.3, 0.5, 1.5, 70.0)))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.act(self.front.tick(self.now))

    @rule(urgent=st.booleans(), stream=st.booleans(), closed=st.booleans(), at_once=st.booleans())
    def ask(self, urgent: bool, stream: bool, closed: bool, at_once: bool = True) -> None:
        name = f"{'p' if stream else 'r'}{self.asked}"
        self.asked += 1
        one = plan(name, URGENT if urgent else NORMAL, self.now)
        one = replace(one, request=replace(one.plan, closed_loop=closed))
        if stream:
            one = replace(question(name), asked_s=self.now)
        self.clients[name] = Client(one.request)
        self.act(self.front.asked(one, self.now))
        if at_once:
            self.time_passes(0.02)

    @precondition(lambda self: len(self.clients) > 1)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.clients)))
        self.act(self.front.cancel(key, self.now))

    @rule(name=st.sampled_from(NAMES), queue=st.booleans(), active=st.booleans())
    def hear(self, name: str, queue: bool, active: bool) -> None:
        host = self.hosts[name]
        self.pass_on(name)
        host.up, host.active = True, active or not queue
        unstarted = frozenset(key for key, run in host.runs.items() if not run.begun)
        served = tuple(host.runs)
        view = server(name, due=QUEUE if queue else (), unstarted=unstarted, served=served)
        self.act(self.front.heard(replace(view, active=host.active), self.now, self.now))

    @rule(name=st.sampled_from(NAMES))
    def pass_on(self, name: str) -> None:
        outbox = self.hosts[name].outbox
        while outbox:
            self.act(outbox.pop(0)())

    @precondition(lambda self: self.runs)
    @rule(data=st.data(), dies=st.booleans())
    def lose(self, data: st.DataObject, dies: bool) -> None:
        host = self.hosts[data.draw(st.sampled_from(self.runs))[0]]
        if not host.up:
            self.hear(host.name, False, True)
            return
        host.up = False
        self.act(self.front.lost(host.name, self.now))
        if dies:
            host.runs.clear()
            host.results.clear()
            host.outbox.clear()

    @rule(name=st.sampled_from(NAMES), refusal=st.sampled_from((None, *REFUSALS)))
    def refuse(self, name: str, refusal: ErrorCode | None) -> None:
        self.hosts[name].refusal = refusal

    @rule(name=st.sampled_from(NAMES))
    def lose_next_request(self, name: str) -> None:
        self.hosts[name].deaf = True

    @precondition(lambda self: self.runs)
    @rule(
        data=st.data(), final=st.booleans(), blocking=st.booleans(), late=st.booleans(),
        count=st.integers(1, 3),
    )  # fmt: skip
    def work(
        self, data: st.DataObject, final: bool, blocking: bool, late: bool, count: int
    ) -> None:
        """Let a server make something, also one that the front has lost."""
        name, key = data.draw(st.sampled_from(self.runs))
        for place in range(count):
            self.make(self.hosts[name], key, final and place == count - 1, blocking)
        if not late:
            self.pass_on(name)

    def make(self, host: Host, key: str, final: bool, blocking: bool = False) -> None:
        run = host.runs.get(key)
        if run is None or run.whole or run.blocked:
            return
        run.begun, run.whole = True, final
        index, run.index = run.index, run.index + 1
        if isinstance(run.request, StreamRequest):
            chunk = StreamChunk(key, run.request.agent, index, " so", final)
            host.outbox.append(lambda: self.front.chunk(host.name, chunk, self.now))
        else:
            run.blocked = blocking and not final
            segment = Segment(
                key, run.request.agent, index, f"up({index});", SCAN if run.blocked else (),
                0.3, final and index % 2 == 0, run.epoch,
            )  # fmt: skip
            host.outbox.append(lambda: self.front.segment(host.name, segment, self.now))
            if final and not segment.final:
                again = replace(segment, final=True)
                host.outbox.append(lambda: self.front.segment(host.name, again, self.now))
        if final and not (isinstance(run.request, PlanRequest) and run.request.closed_loop):
            self.end_run(host, key, ErrorCode.NONE)

    @precondition(lambda self: self.runs)
    @rule(data=st.data(), code=st.sampled_from(ENDS))
    def give_up(self, data: st.DataObject, code: ErrorCode) -> None:
        name, key = data.draw(st.sampled_from(self.runs))
        self.end_run(self.hosts[name], key, code)

    @precondition(lambda self: self.busy)
    @rule(data=st.data(), what=st.sampled_from((*3 * (2,), *ReportState)), late=st.booleans())
    def execute(self, data: st.DataObject, what: int, late: bool) -> None:
        """Let a robot execute a segment, fail in it, or return."""
        client = self.clients[data.draw(st.sampled_from(self.busy))]
        state, index = ReportState(what), client.done
        if state is ReportState.FINISHED:
            client.done += 1
        elif state is ReportState.FAILED:
            client.failed = True
        elif state is ReportState.RETURNED:
            client.done = len(client.got)
        request = client.request
        self.mail.append(
            ExecutionReport(request.request_id, request.agent, state, index, epoch=client.epoch)
        )
        if not late:
            self.report(self.mail.pop())

    @precondition(lambda self: self.mail)
    @rule(data=st.data())
    def tell_front(self, data: st.DataObject) -> None:
        """Let a report arrive, in any order."""
        self.report(self.mail.pop(data.draw(st.integers(0, len(self.mail) - 1))))

    def report(self, report: ExecutionReport) -> None:
        client = self.clients.get(report.request_id)
        actions = self.front.report(report, self.now)
        if client and report.state is ReportState.RETURNED and report.epoch == client.epoch:
            client.returned = True
        self.act(actions)

    @invariant()
    def check(self) -> None:
        """Each open request is where it should be, and once."""
        front = self.front
        assert set(front.open) == self.clients.keys()
        waiting = front.waiting
        assert len(set(waiting)) == len(waiting)
        for key in front.open:
            at = [name for name in NAMES if front.serves(name, key)]
            assert all(self.hosts[name].up for name in at)
            assert bool(at) + (key in waiting) + front.is_executed(key) == 1
            assert not any(front._leftovers.bars(key, name) for name in at)
            if len(at) == 2:
                sent = front._ledger.of(key)
                assert sent is not None and not sent.begun
        if front.wake_s <= self.now:
            self.act(front.tick(self.now))
            assert front.wake_s > self.now, "it wakes for nothing"

    def teardown(self) -> None:
        """Let all servers come and all requests end: then nothing is left."""
        if not hasattr(self, "front"):
            return
        for host in self.hosts.values():
            host.deaf, host.refusal = False, None
        while self.mail:
            self.report(self.mail.pop())
        after = 4  # views that say that it has ended
        for _ in range(60):
            after -= not self.clients
            if not after:
                break
            self.time_passes(0.4)
            for name, host in self.hosts.items():
                self.hear(name, False, True)
                for key in sorted(host.runs):
                    self.make(host, key, True)
                self.pass_on(name)
            for key, client in list(self.clients.items()):
                if not client.free:
                    client.done += 1
                    agent, index = client.request.agent, client.done - 1
                    state = ReportState.FINISHED
                    report = ExecutionReport(key, agent, state, index, epoch=client.epoch)
                    self.act(self.front.report(report, self.now))
            self.check()
        assert not self.clients, "they never end"
        self.time_passes(LATE_S + 0.1)
        for name in self.hosts:
            self.hear(name, False, True)
        assert kept(self.front) == {}


TestServers = Servers.TestCase
TestServers.settings = examples(100, stateful_step_count=40)
