"""One history: servers, a dispatcher, robots and people in virtual time, with faults of a seed."""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from timely_llm.core.clock import Clock
from timely_llm.core.errors import EngineError, EngineLost, RequestError
from timely_llm.core.request import (
    ErrorCode,
    ExecutionReport,
    PlanRequest,
    Rejected,
    ReportState,
    Request,
    Result,
    StreamChunk,
)
from timely_llm.core.segment import Segment
from timely_llm.core.step import StepResult
from timely_llm.dispatch.assign.registry import make_dispatcher
from timely_llm.dispatch.relay import Relay
from timely_llm.dispatch.settings import DispatchSettings
from timely_llm.histories.checks import BrokenError, Checks, ensure
from timely_llm.histories.clients import Client, HistoryPerson, HistoryRobot
from timely_llm.histories.faults import FAULTS_S, OF_JOURNALS, OF_SERVERS, InjectedFault
from timely_llm.histories.host import LONGEST_WAY_S, Host
from timely_llm.histories.schedule import Schedule
from timely_llm.resources import resource
from timely_llm.robots.people import people
from timely_llm.robots.questions import QuestionSet, load_question_set
from timely_llm.robots.tasks import TaskSet, load_task_set
from timely_llm.serving.limits import RequestLimits
from timely_llm.serving.server.registration import Reading
from timely_llm.skills.skill_set import SkillSet, parse_skill_set

NAME = "/dispatcher"
SERVERS, ROBOTS, PEOPLE = 2, 3, 2
QUIET_S = 400.0
"""Time after the last fault in which everything ends, seconds."""
SILENCE_S = 2.0
"""Silence after which the dispatcher counts a server as lost, seconds."""
LOOK_S = 0.1
"""Seconds between two looks of the dispatcher at its timeouts."""
MOST_EVENTS = 60_000
"""Events after which a history counts as endless."""


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
    """

    seed: int
    events: int
    fired: Counter[str]
    requests: int
    digest: str
    broken: str = ""
    detail: str = ""
    at_s: float = 0.0


@cache
def _shipped() -> tuple[SkillSet, str, TaskSet, QuestionSet]:
    text = resource("config/skill_sets/drone.yaml").read_text()
    tasks = load_task_set(resource("config/tasks/drone.yaml"))
    questions = load_question_set(resource("config/questions/small_talk.yaml"))
    return parse_skill_set(text), text, tasks, questions


class _ReadingAtOnce(Reading):
    """Reads skill sets in the caller's thread."""

    def begin(self, read: Callable[[], SkillSet], done: Callable[[Future[SkillSet]], None]) -> None:
        """Read now."""
        outcome: Future[SkillSet] = Future()
        outcome.set_result(read())
        done(outcome)


class _Now(Clock):
    """The dispatcher's clock: the time of the newest event."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule

    def now(self) -> float:
        """Return virtual seconds."""
        return self._schedule.now


class FaultHistory:
    """A world and its faults.

    Args:
        seed: of all randomness but that of the faults.
        faults: what goes wrong.
        folder: where servers have their recovery journals; not in all histories.
    """

    def __init__(self, seed: int, faults: Sequence[InjectedFault], folder: Path) -> None:
        self._source = random.Random(f"history {seed}")
        self._seed = seed
        self.schedule = Schedule()
        self.checks = Checks(not any(fault.kind in OF_SERVERS for fault in faults))
        self.fired: Counter[str] = Counter()
        self._digest = sha256()
        self._reports: dict[str, list[tuple[str, float]]] = {}
        self._held: dict[str, list[ExecutionReport]] = {}
        self._arrives_s: dict[tuple[str, str], float] = {}
        self._wakes_s = float("inf")
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
        self.relay = Relay(
            make_dispatcher(rule),
            self,
            _Now(self.schedule),
            settings,
            lambda text, what: self.skill_set,
            lambda said: None,
            lambda: None,
        )
        self.relay.skill_sets._of_servers = _ReadingAtOnce()
        self.hosts = [
            Host(
                f"server_{place}",
                self.schedule,
                source,
                self.relay,
                self.checks,
                NAME,
                self.skill_set,
                text,
                clock_jumps,
                self._changed,
                folder / f"server_{place}" if journals else None,
                self._fired,
            )
            for place in range(SERVERS)
        ]
        for host in self.hosts:
            self.relay.joined(host.name, host)
        self.robots = [
            HistoryRobot(
                f"robot_{place}",
                self.schedule,
                source,
                self._ask,
                self._say,
                FAULTS_S,
                self.skill_set,
                tasks,
                self.checks,
            )
            for place in range(ROBOTS)
        ]
        self.people = [
            HistoryPerson(person, self.schedule, source, self._ask, self._say, FAULTS_S)
            for person in people(PEOPLE, questions, seed, 1.0, 0.0)
        ]
        self.clients: dict[str, Client] = {c.agent: c for c in (*self.robots, *self.people)}
        for fault in faults:
            self.schedule.at(fault.at_s, partial(self._fault, fault))
        self._look()

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
            self._digest.hexdigest(),
            broken,
            detail,
            self.schedule.now,
        )

    def _run(self) -> None:
        schedule = self.schedule
        while not (schedule.now > FAULTS_S + 5.0 and self._over()):
            ensure(
                schedule.now < FAULTS_S + QUIET_S and schedule.happened < MOST_EVENTS,
                "everything ends",
                self._left(),
            )
            schedule.next()

    def _over(self) -> bool:
        served = any(host.alive and host.server.serving for host in self.hosts)
        return not (self.checks.open or served)

    def _left(self) -> str:
        open_ids = [one.request.request_id for one in self.checks.open]
        served = {host.name: sorted(host.server.request_ids) for host in self.hosts if host.alive}
        return f"{open_ids} have no result, servers serve {served}"

    # The dispatcher's sink.

    def accepted(self, request: Request) -> None:
        """Take a request that the dispatcher accepted."""
        self._note("accepted", request.request_id)
        self.checks.accepted(request, self.schedule.now)

    def segment(self, segment: Segment) -> None:
        """Send a segment to its robot."""
        self._note("segment", segment.request_id, segment.epoch, segment.index, segment.text)
        self.checks.segment(segment)
        robot = self.clients[segment.agent]
        assert isinstance(robot, HistoryRobot)
        self._tell("deliveries", segment.agent, lambda: robot.take(segment))

    def chunk(self, chunk: StreamChunk) -> None:
        """Send a token to its listener."""
        self._note("token", chunk.request_id, chunk.index, chunk.text)
        self.checks.chunk(chunk)
        person = self.clients[chunk.agent]
        assert isinstance(person, HistoryPerson)
        self._tell("deliveries", chunk.agent, lambda: person.take(chunk))

    def ended(self, result: Result) -> None:
        """Send a result to its client."""
        self._note("ended", result.request_id, result.error_code.name)
        self.checks.ended(result)
        self._finish(result)

    def stepped(self, result: StepResult) -> None:
        """Take a step: a dispatcher has none."""

    def _finish(self, result: Result) -> None:
        client = self.clients[result.agent]
        assert isinstance(client, HistoryRobot | HistoryPerson)
        self._tell("results", result.agent, lambda: client.finish(result))

    def _tell(self, topic: str, agent: str, arrive: Callable[[], None]) -> None:
        self.schedule.at(self._arrival_s(topic, agent), arrive)

    def _arrival_s(self, topic: str, agent: str) -> float:
        way = topic, agent
        at_s = self.schedule.now + self._source.uniform(0.0005, LONGEST_WAY_S)
        self._arrives_s[way] = max(at_s, self._arrives_s.get(way, 0.0))
        return self._arrives_s[way]

    def _note(self, *words: object) -> None:
        self._digest.update(f"{self.schedule.now!r} {words!r}\n".encode())

    # The dispatcher's turns.

    def _look(self) -> None:
        self.relay.tick()
        self._changed()
        self.schedule.at(self.schedule.now + LOOK_S, self._look)

    def _changed(self) -> None:
        """Check the dispatcher after an event, and wake it when it wants that."""
        self.checks.relay(self.relay, self.schedule.now)
        wakes_s = self.relay.wake_s()
        if wakes_s < self._wakes_s or self._wakes_s < self.schedule.now:
            self._wakes_s = wakes_s
            if wakes_s < float("inf"):
                self.schedule.at(wakes_s, self._tick)

    def _tick(self) -> None:
        self._wakes_s = float("inf")
        self.relay.tick()
        self._changed()

    # Clients.

    def _ask(self, request: Request) -> None:
        """Send a request to the dispatcher."""

        def arrive() -> None:
            try:
                self.relay.submit(request)
            except RequestError as error:
                code = error.code if isinstance(error, Rejected) else ErrorCode.INVALID_REQUEST
                self._finish(request.refused(code, str(error)))
            self._changed()

        self.schedule.at(self._arrival_s("requests", request.agent), arrive)

    def _say(self, report: ExecutionReport) -> None:
        """Send a report to the dispatcher, if no fault hits it."""
        agent = report.agent
        waiting = self._reports.get(agent) if report.state is not ReportState.ALIVE else None
        if not waiting:
            self._report(report)
        else:
            kind, size = waiting.pop(0)
            self.fired[kind] += 1
            if kind == "report late":
                self._report(report, 1.0 + 8.0 * size)
            elif kind == "report doubled":
                self._report(report)
                self._report(report, 2.0 * size)
            elif kind == "report reordered":
                self._held.setdefault(agent, []).append(report)
                return
        if report.state is not ReportState.ALIVE:
            for held in self._held.pop(agent, ()):
                self._report(held, 0.001)

    def _report(self, report: ExecutionReport, late_s: float = 0.0) -> None:
        def arrive() -> None:
            self.relay.report(report)
            self._changed()

        self.schedule.at(self._arrival_s("reports", report.agent) + late_s, arrive)

    # Faults.

    def _fired(self, kind: str) -> None:
        self.fired[kind] += 1

    def _fault(self, fault: InjectedFault) -> None:
        kind, place, size = fault.kind, fault.place, fault.size
        host = self.hosts[place % SERVERS]
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
            case "partition":
                host.apart_s = max(host.apart_s, now + 6.0 * size)
            case "robot dies":
                robot.alive = False
            case "robot restarts":
                robot.restart()
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

    def _unknown_report(self, robot: HistoryRobot, size: float) -> None:
        open_ids = [one.request.request_id for one in self.checks.open]
        key = open_ids[0] if open_ids and size < 0.75 else "nothing-1"
        states = ReportState.FINISHED, ReportState.FAILED, ReportState.RETURNED
        index, epoch = (10_000, 0) if size < 0.25 else (0, 77)
        agent = "stranger" if 0.5 < size < 0.75 else robot.agent
        state = states[int(1e6 * size) % 3] if size >= 0.25 else ReportState.FINISHED
        self._report(ExecutionReport(key, agent, state, index, epoch=epoch))

    def _cancel(self, place: int) -> bool:
        stories = [one for one in self.checks.open if one.canceled_s is None]
        if not stories:
            return False
        story = stories[place % len(stories)]

        def arrive() -> None:
            if story.result is None:
                story.canceled_s = self.schedule.now
            self.relay.cancel(story.request.request_id)
            self._changed()

        self.schedule.at(self._arrival_s("requests", story.request.agent), arrive)
        return True

    def _duplicate(self, place: int) -> bool:
        stories = self.checks.open
        if not stories:
            return False
        request = replace(stories[place % len(stories)].request, dispatcher="")
        try:
            self.relay.submit(request)
        except Rejected as error:
            codes = ErrorCode.DUPLICATE_REQUEST, ErrorCode.INACTIVE
            ensure(error.code in codes, "an id is served once", f"{error}")
        except RequestError:
            pass  # a later turn of a conversation that the dispatcher does not know
        else:
            ensure(False, "an id is served once", f"{request.request_id} was accepted twice")
        self._changed()
        return True

    def _refused(self, robot: HistoryRobot) -> None:
        request = PlanRequest(
            f"{robot.agent}-refused-{self.schedule.happened}", robot.agent, "submarine", "dive"
        )
        self._ask(request)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the log free of the failures that a history causes."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def simulate(seed: int, faults: Sequence[InjectedFault]) -> HistoryOutcome:
    """Return what came of a history; the same each time."""
    with _quiet(), TemporaryDirectory(prefix="history_") as folder:
        history = FaultHistory(seed, faults, Path(folder))
        try:
            return history.run()
        finally:
            for host in history.hosts:
                host.die()


def shrink(outcome: HistoryOutcome, faults: Sequence[InjectedFault]) -> list[InjectedFault]:
    """Return fewer faults with which the same invariant breaks: none of them can be left out."""
    kept = list(faults)
    for fault in reversed(faults):
        fewer = [one for one in kept if one is not fault]
        if simulate(outcome.seed, fewer).broken == outcome.broken:
            kept = fewer
    return kept
