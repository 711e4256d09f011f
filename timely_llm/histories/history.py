"""One history: servers, a dispatcher, robots and people in virtual time, with faults of a seed."""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory

from timely_llm.core.errors import EngineError, EngineLost
from timely_llm.core.request import (
    ErrorCode,
    ExecutionReport,
    PlanRequest,
    Rejected,
    ReportState,
    Request,
    StreamRequest,
)
from timely_llm.core.segment import Segment
from timely_llm.dispatch.settings import DispatchSettings
from timely_llm.histories.checks import BrokenError, Checks, ensure
from timely_llm.histories.clients import Client, HistoryPerson, HistoryRobot
from timely_llm.histories.dispatcher import DispatcherFate, DispatcherMachine
from timely_llm.histories.faults import (
    LASTS_S,
    OF_JOURNALS,
    OF_SERVERS,
    REST_S,
    InjectedFault,
    faults_s,
)
from timely_llm.histories.host import NAME, Host
from timely_llm.histories.lone import LoneServer
from timely_llm.histories.machine import ServerMachine
from timely_llm.histories.schedule import Schedule
from timely_llm.resources import resource
from timely_llm.robots.client.taking_up import RequestFate
from timely_llm.robots.people import people
from timely_llm.robots.questions import QuestionSet, load_question_set
from timely_llm.robots.tasks import TaskSet, load_task_set
from timely_llm.serving.limits import RequestLimits
from timely_llm.skills.skill_set import SkillSet, parse_skill_set

SERVERS, ROBOTS, PEOPLE = 2, 3, 2
ALONE_SHARE = 0.3
"""Share of histories with one server, its recovery journal, and no dispatcher."""
QUIET_S = 400.0
"""Time after the last fault in which everything ends, seconds."""
SILENCE_S = 2.0
"""Silence after which the dispatcher counts a server as lost, seconds."""
MOST_EVENTS_PER_S = 2_500
"""Events a second of virtual time after which a history counts as endless."""


@dataclass(frozen=True)
class HistoryOutcome:
    """What came of a history.

    Attributes:
        seed: of the history.
        events: number of events.
        fired: faults that happened, by kind.
        requests: accepted requests.
        digest: of all that clients got; two runs of a seed have the same.
        broken: the invariant that does not hold; empty: all do.
        detail: about what it does not hold.
        at_s: when it ended, virtual seconds.
        alone: it had one server with a journal, and no dispatcher.
    """

    seed: int
    events: int
    fired: Counter[str]
    requests: int
    digest: str
    broken: str = ""
    detail: str = ""
    at_s: float = 0.0
    alone: bool = False


@cache
def _shipped() -> tuple[SkillSet, str, TaskSet, QuestionSet]:
    text = resource("config/skill_sets/drone.yaml").read_text()
    tasks = load_task_set(resource("config/tasks/drone.yaml"))
    questions = load_question_set(resource("config/questions/small_talk.yaml"))
    return parse_skill_set(text), text, tasks, questions


def most_events(lasts_s: float) -> int:
    """Return the events after which a history counts as endless.

    Args:
        lasts_s: time after which it may end, seconds. A short one may need longer for its rest.
    """
    return int(MOST_EVENTS_PER_S * max(lasts_s, LASTS_S))


def is_alone(seed: int) -> bool:
    """Return whether a history has one server with a journal, and no dispatcher."""
    return random.Random(f"servers of {seed}").random() < ALONE_SHARE


class FaultHistory:
    """A world and its faults; it is its clients' way to what serves them.

    Args:
        seed: of all randomness but that of the faults.
        faults: what goes wrong.
        folder: where servers have their recovery journals; not in all histories.
        lasts_s: time after which it may end, seconds.
        alone: one server has no dispatcher; None: as `is_alone` says.
    """

    def __init__(
        self,
        seed: int,
        faults: Sequence[InjectedFault],
        folder: Path,
        lasts_s: float = LASTS_S,
        alone: bool | None = None,
    ) -> None:
        self._source = random.Random(f"history {seed}")
        self._seed = seed
        self._faults_s, self._most_events = faults_s(lasts_s), most_events(lasts_s)
        self.schedule = Schedule()
        self.checks = Checks(not any(fault.kind in OF_SERVERS for fault in faults))
        self.fired: Counter[str] = Counter()
        self._reports: dict[str, list[tuple[str, float]]] = {}
        self._asked: dict[str, Collection[str]] = {}  # lives of servers, by request asked for
        self._held: dict[str, list[ExecutionReport]] = {}
        self.skill_set, text, tasks, questions = _shipped()
        clock_jumps = any(fault.kind == "clock jump" for fault in faults)
        source = self._source
        settings = DispatchSettings(
            NAME,
            RequestLimits(),
            queue_timeout_s=20.0,
            silence_s=SILENCE_S,
            moves=source.random() < 0.7,
            hedge=source.random() < 0.3,
        )
        rule = source.choice(("round-robin", "most-worth"))
        journals = source.random() < 0.7
        self.dispatcher: DispatcherMachine | None = None
        self.lone: LoneServer | None = None
        self.hosts: list[ServerMachine] = []
        if is_alone(seed) if alone is None else alone:
            self.lone = LoneServer(
                "server_0", self.schedule, source, self.checks, self.skill_set, text, clock_jumps,
                folder / "server_0", self._fired,
            )  # fmt: skip
            self.hosts.append(self.lone)
            self.way: DispatcherMachine | LoneServer = self.lone
        else:
            self.way = self.dispatcher = DispatcherMachine(
                self.schedule, source, self.checks, settings, rule, self.skill_set
            )
            hosts = [
                Host(
                    f"server_{place}", self.schedule, source, self.dispatcher, self.checks,
                    self.skill_set, text, clock_jumps,
                    folder / f"server_{place}" if journals else None, self._fired,
                )
                for place in range(SERVERS)
            ]  # fmt: skip
            self.hosts.extend(hosts)
        self._tasks = tasks
        deaths = sum(fault.kind == "person dies" for fault in faults)
        self._people = iter(people(PEOPLE + deaths, questions, seed, 1.0, 0.0))
        self._clients: dict[str, Client] = {}
        self.robots = [self._new_robot() for _ in range(ROBOTS)]
        self.people = [self._new_person() for _ in range(PEOPLE)]
        if self.lone is not None:
            self.lone.connect(self._clients)
        elif self.dispatcher is not None:
            self.dispatcher.begin({host.name: host for host in hosts}, self._clients, self.lose)
        for fault in faults:
            self.schedule.at(fault.at_s, partial(self._fault, fault))

    def _new_robot(self) -> HistoryRobot:
        place = sum(isinstance(one, HistoryRobot) for one in self._clients.values())
        robot = HistoryRobot(
            f"robot_{place}", self.schedule, self._source, self, self._faults_s, self.skill_set,
            self._tasks, self.checks,
        )  # fmt: skip
        self._clients[robot.agent] = robot
        return robot

    def _new_person(self) -> HistoryPerson:
        person = HistoryPerson(
            next(self._people), self.schedule, self._source, self, self._faults_s
        )
        self._clients[person.agent] = person
        return person

    def run(self) -> HistoryOutcome:
        """Let everything happen; return what came of it."""
        broken = detail = ""
        try:
            self._run()
        except BrokenError as error:
            broken, detail = error.invariant, error.detail
        except Exception as error:
            broken = "no error leaves the server or the dispatcher"
            detail = f"{type(error).__name__}: {error}"
        return HistoryOutcome(
            self._seed,
            self.schedule.happened,
            self.fired,
            len(self.checks.stories),
            self.way.network.digest,
            broken,
            detail,
            self.schedule.now,
            self.lone is not None,
        )

    def _run(self) -> None:
        schedule = self.schedule
        while not (schedule.now > self._faults_s + REST_S and self._over()):
            if schedule.now >= self._faults_s + QUIET_S or schedule.happened >= self._most_events:
                ensure(False, "everything ends", self._left())
            schedule.next()
        for host in self.hosts:
            if host.alive:
                host.check_counts()

    def _over(self) -> bool:
        served = any(host.alive and host.server.serving for host in self.hosts)
        return not (self.checks.open or served or self._waiting())

    def _waiting(self) -> list[str]:
        """Return the requests of which clients do not know how they ended."""
        clients = [one for one in self._clients.values() if one.alive]
        return [one.request.request_id for one in clients if one.request is not None]

    def _left(self) -> str:
        open_ids = [one.request.request_id for one in self.checks.open]
        served = {host.name: sorted(host.server.request_ids) for host in self.hosts if host.alive}
        waiting = self._waiting()
        return f"{open_ids} have no result, servers serve {served}, clients wait for {waiting}"

    # The clients' way to what serves them.

    @property
    def ready(self) -> bool:
        """Whether what serves clients is there."""
        return self.way.ready

    @property
    def problem(self) -> str:
        """Why clients cannot use it; empty: they can."""
        return self.way.problem

    @property
    def replaces_plans(self) -> bool:
        """Whether it replaces plans that did not fail."""
        return self.way.replaces_plans

    def ask(self, request: Request) -> None:
        """Send a request."""
        self.way.ask(request)

    def cancel(self, request: Request) -> None:
        """Send a client's cancel."""
        key = request.request_id
        self.way.cancel(request, lambda: self.checks.canceled(key, self.schedule.now))

    def ask_segments(
        self, request: Request, answered: Callable[[Sequence[Segment] | None], None]
    ) -> None:
        """Ask for the segments of a plan."""
        self.way.ask_segments(request, answered)

    def ask_result(self, request: Request, answered: Callable[[RequestFate], None]) -> None:
        """Ask what became of a request."""

        def take(fate: RequestFate) -> None:
            if fate.result is not None:
                self.checks.fetched(fate.result)
            if isinstance(fate, DispatcherFate) and not fate.served:
                self._asked[request.request_id] = fate.lives
            answered(fate)

        self.way.ask_result(request, take)

    def lose(self, request: Request, unknown: bool) -> None:
        """Record that a client gives a request up.

        A server may join while the answer that no server knows the request is on its way.
        """
        self.checks.lost(request, self._served_by(request.request_id) if unknown else [])
        self._asked.pop(request.request_id, None)

    def _served_by(self, key: str) -> list[str]:
        """Return the servers that serve a request, and that what serves clients has asked."""
        if self.lone is not None:
            here = self.lone.alive and not self.lone.foreign and self.lone.server.serves(key)
            return [self.lone.name] if here else []
        assert self.dispatcher is not None
        there = self.dispatcher.relay.servers
        hosts = [one for one in self.hosts if isinstance(one, Host) and one.name in there]
        serving = [one for one in hosts if one.serves(key)]
        asked = self._asked.get(key, [one.life for one in serving])
        return [one.name for one in serving if one.life in asked]

    def say(self, report: ExecutionReport) -> None:
        """Send a report, if no fault hits it."""
        agent = report.agent
        if report.state is ReportState.ALIVE:
            self.checks.alive(agent)
            self.way.report(report)
            return
        if not (waiting := self._reports.get(agent)):
            self.way.report(report)
        else:
            kind, size = waiting.pop(0)
            self.fired[kind] += 1
            if kind == "report late":
                self.way.report(report, 1.0 + 8.0 * size)
            elif kind == "report doubled":
                self.way.report(report)
                self.way.report(report, 2.0 * size)
            elif kind == "report reordered":
                self._held.setdefault(agent, []).append(report)
                return
        for held in self._held.pop(agent, ()):
            self.way.report(held, 0.001)

    # Faults.

    def _fired(self, kind: str) -> None:
        self.fired[kind] += 1

    def _fault(self, fault: InjectedFault) -> None:
        kind, place, size = fault.kind, fault.place, fault.size
        host = self.hosts[place % len(self.hosts)]
        robot = self.robots[place % ROBOTS]
        now = self.schedule.now
        if kind in OF_JOURNALS:
            if host.journal is not None:
                host.journal.hit(kind, size)
            return
        match kind:
            case "report lost" | "report late" | "report doubled" | "report reordered":
                self._reports.setdefault(robot.agent, []).append((kind, size))
                return
            case "unknown report":
                self._unknown_report(robot, size)
            case "engine raises":
                host.engine.failure = EngineError("a fault of this history")
            case "engine ends":
                host.engine.failure = EngineLost("a fault of this history")
            case "engine hangs":
                host.hang(8.0 * size)
            case "engine loses sequence":
                host.engine.lose = place
            case "server dies":
                host.die()
                self.schedule.at(now + 0.2 + 5.0 * size, host.begin)
            case "dispatcher dies":
                if self.dispatcher is None or not self.dispatcher.alive:
                    return
                self.dispatcher.die()
                self.schedule.at(now + 0.2 + 5.0 * size, self.dispatcher.restart)
            case "other release":
                host.exchange()
                self.schedule.at(now + 1.0 + 7.0 * size, host.exchange)
            case "memory exhausted":
                if not host.alive:
                    return
                host.exhaust(6.0 * size)
            case "person dies":
                if not self._person_dies(place % PEOPLE, now + 10.0 * size):
                    return
            case "client apart":
                clients = [*self.robots, *self.people]
                self.way.network.part(clients[place % len(clients)], 8.0 * size)
            case "partition":
                if self.dispatcher is None:
                    return
                host.apart_s = max(host.apart_s, now + 6.0 * size)
            case "robot dies":
                if not self._robot_dies(place % ROBOTS, now + 10.0 * size):
                    return
            case "robot restarts":
                robot.forget()
            case "clock jump":
                for one in self.hosts:
                    one.leap((size - 0.5) * 4000.0)
            case "cancel":
                if not self._cancel(place):
                    return
            case "duplicate id":
                if not self._duplicate(place):
                    return
            case "refused request":
                self._refused(robot)
        self.fired[kind] += 1

    def _robot_dies(self, place: int, next_s: float) -> bool:
        """Silence a robot for ever, and let another one come; return whether it lived."""
        lived, self.robots[place].alive = self.robots[place].alive, False

        def come() -> None:
            self.robots[place] = self._new_robot()

        if lived:
            self.schedule.at(next_s, come)
        return lived

    def _person_dies(self, place: int, next_s: float) -> bool:
        """Silence a person for ever, and let another one come; return whether the first lived."""
        person = self.people[place]
        lived, person.alive = person.alive, False

        def come() -> None:
            self.people[place] = self._new_person()

        if lived:
            self.checks.died(person.agent, self.schedule.now)
            self.schedule.at(next_s, come)
        return lived

    def _unknown_report(self, robot: HistoryRobot, size: float) -> None:
        open_ids = [one.request.request_id for one in self.checks.open]
        key = open_ids[0] if open_ids and size < 0.75 else "nothing-1"
        states = ReportState.FINISHED, ReportState.FAILED, ReportState.RETURNED
        index, epoch = (10_000, 0) if size < 0.25 else (0, 77)
        agent = "stranger" if 0.5 < size < 0.75 else robot.agent
        state = states[int(1e6 * size) % 3] if size >= 0.25 else ReportState.FINISHED
        self.way.report(ExecutionReport(key, agent, state, index, epoch=epoch))

    def _cancel(self, place: int) -> bool:
        keys = [one.request.request_id for one in self.checks.open if one.canceled_s is None]
        clients = [
            client for key in keys for client in self._clients.values() if client.waits_for(key)
        ]
        if not clients:
            return False
        clients[place % len(clients)].cancel()
        return True

    def _duplicate(self, place: int) -> bool:
        stories = [one for one in self.checks.open if not one.orphaned]
        if not stories or not self.way.alive:
            return False
        request = replace(stories[place % len(stories)].request, dispatcher="")
        try:
            self.way.submit(request)
        except Rejected as error:
            codes = [ErrorCode.DUPLICATE_REQUEST, ErrorCode.INACTIVE]
            if isinstance(request, StreamRequest) and request.turn:
                # A new dispatcher does not know the earlier turns.
                codes.append(ErrorCode.UNKNOWN_CONVERSATION)
            ensure(error.code in codes, "an id is served once", f"{error}")
        else:
            ensure(False, "an id is served once", f"{request.request_id} was accepted twice")
        return True

    def _refused(self, robot: HistoryRobot) -> None:
        request = PlanRequest(
            f"{robot.agent}-refused-{self.schedule.happened}", robot.agent, "submarine", "dive"
        )
        self.ask(request)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the log free of the failures that a history causes."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def simulate(
    seed: int,
    faults: Sequence[InjectedFault],
    lasts_s: float = LASTS_S,
    alone: bool | None = None,
) -> HistoryOutcome:
    """Return what came of a history; the same each time.

    Args:
        seed: of all randomness but that of the faults.
        faults: what goes wrong.
        lasts_s: time after which it may end, seconds.
        alone: one server has no dispatcher; None: as the seed says.
    """
    with _quiet(), TemporaryDirectory(prefix="history_") as folder:
        history = FaultHistory(seed, faults, Path(folder), lasts_s, alone)
        try:
            return history.run()
        finally:
            for host in history.hosts:
                host.die()
