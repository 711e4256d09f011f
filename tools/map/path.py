"""The path of a plan through the code, from its request to its first segment, as it is run."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import FrameType

from timely_llm.core.clock import VirtualClock
from timely_llm.core.request import PlanRequest
from timely_llm.core.time_utility import NORMAL
from timely_llm.engines.paces import step_time_profile
from timely_llm.engines.simulated import DEFAULT_PROFILE, SimulatedEngine
from timely_llm.policies.registry import DEFAULT_POLICY, make_policy
from timely_llm.resources import resource
from timely_llm.serving.loop import Loop
from timely_llm.serving.publisher import EventPublisher
from timely_llm.skills.skill_set import load_skill_set
from tools.map.code import PACKAGE, MapError, sentence

PLAN = "tc(180);mf(120);->True;"
MOST_TURNS = 100


@dataclass(frozen=True)
class Station:
    """A function on the path.

    Attributes:
        verb: of the loop: admit, step or deliver; empty: outside of the loop.
        path: of its file, in the package.
        name: of the function.
        in_loop: it runs in the loop's thread, where the run is watched; others belong to ROS.
    """

    verb: str
    path: str
    name: str
    in_loop: bool = True


STATIONS = (
    Station("", "ros/server/endpoints.py", "RequestEndpoint.submit", in_loop=False),
    Station("", "serving/server/server.py", "Server.submit", in_loop=False),
    Station("admit", "serving/loop.py", "Loop.admit"),
    Station("admit", "serving/admission.py", "Admission.begin"),
    Station("admit", "serving/prompts.py", "SkillSetPrompts.build"),
    Station("admit", "engines/ledger_engine.py", "LedgerEngine.add"),
    Station("step", "serving/loop.py", "Loop.turn"),
    Station("step", "policies/deadline/policy.py", "Deadline.plan"),
    Station("step", "policies/packing.py", "pack"),
    Station("step", "serving/step.py", "Stepper.step"),
    Station("step", "engines/ledger_engine.py", "KvLedger.admit"),
    Station("step", "serving/step.py", "Stepper.collect"),
    Station("step", "engines/ledger_engine.py", "LedgerEngine.collect"),
    Station("deliver", "serving/delivery.py", "PlanDelivery.push"),
    Station("deliver", "skills/minispec/checker.py", "MiniSpecChecker.feed"),
    Station("deliver", "serving/publisher.py", "EventPublisher.deliver"),
    Station("", "ros/server/endpoints.py", "PlanInterface.segment", in_loop=False),
)

AGAIN = ("Loop.turn", "MiniSpecChecker.feed")
"""The first and the last function that each further step calls."""


class _Sink:
    """A sink that only counts segments."""

    def __init__(self) -> None:
        self.segments = 0

    def segment(self, segment: object) -> None:
        self.segments += 1

    def chunk(self, chunk: object) -> None:
        pass

    def stepped(self, result: object) -> None:
        pass

    def ended(self, result: object) -> None:
        pass


Function = tuple[str, str]
"""The path of a file in the package, and the name of a function in it."""


@cache
def called() -> Mapping[Function, str]:
    """Return the functions that a plan passes through in the loop, in the order of first calls.

    Returns:
        The file of the station in which each one was first called; empty: it was called in none.
    """
    clock, sink = VirtualClock(), _Sink()
    engine = SimulatedEngine(step_time_profile(DEFAULT_PROFILE), lambda key, prompt: PLAN, clock)
    loop = Loop(engine, make_policy(DEFAULT_POLICY), clock)
    publisher = EventPublisher(loop, sink)
    loop.register(load_skill_set(resource("config/skill_sets/drone.yaml")))
    found: dict[Function, str] = {}
    package, stations = f"{PACKAGE}/", {(one.path, one.name) for one in STATIONS}

    def note(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(package):
            return
        function = code.co_filename.removeprefix(package), code.co_qualname
        if function not in found:
            found[function] = next(callers(frame), "")

    def callers(frame: FrameType) -> Iterator[str]:
        while (caller := frame.f_back) is not None:
            frame = caller
            function = frame.f_code.co_filename.removeprefix(package), frame.f_code.co_qualname
            if function in stations:
                yield function[0]

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        loop.admit(PlanRequest("a", "robot", "drone", "Find the cat.", NORMAL))
        for _ in range(MOST_TURNS):
            if sink.segments:
                break
            turn = loop.turn()
            publisher.publish(turn.events)
            if not turn.stepped:  # the policy waits for the rest of a burst
                clock.advance(max(turn.wake_s - clock.now(), 0.0))
    finally:
        sys.setprofile(before)
    return found


def check(stations: tuple[Station, ...] = STATIONS) -> None:
    """Find out whether a plan passes through the stations in their order.

    Raises:
        MapError: it does not.
    """
    order = {function: place for place, function in enumerate(called())}
    latest = -1
    for station in stations:
        if not station.in_loop:
            continue
        place = order.get((station.path, station.name))
        if place is None:
            raise MapError(f"a plan does not pass through {station.name} of {station.path}")
        if place < latest:
            raise MapError(f"a plan passes through {station.name} of {station.path} earlier")
        latest = place


def table() -> str:
    """Return the path as rows.

    Raises:
        MapError: a station is no function with a docstring, or not on the path.
    """
    check()
    rows = ["| | file | function | what it does |", "|---|---|---|---|"]
    for number, station in enumerate(STATIONS, 1):
        words = sentence(PACKAGE / station.path, station.name).replace("|", "\\|")
        file = f"[{station.path}](../timely_llm/{station.path})"
        rows.append(f"| {number} | {file} | `{station.name}` | {words} |")
    return "\n".join(rows)


def picture() -> str:
    """Return the path as a Mermaid sequence diagram of rooms, with an arrow for each station."""
    callers = called()
    robot, verb, lines = "robot", "", list[str]()
    for number, station in enumerate(STATIONS, 1):
        room = _room(station.path)
        if station.in_loop:
            caller = _room(callers[station.path, station.name]) or room
        else:
            caller = _room(STATIONS[number - 2].path) if number > 1 else robot
        if station.name == AGAIN[0]:
            lines.append("loop each step")
        if station.verb not in ("", verb):
            verb = station.verb
            lines.append(f"Note over {room}: {verb}")
        lines.append(f"{caller}->>{room}: {number} {station.name}")
        if station.name == AGAIN[1]:
            lines.append("end")
    lines.append(f"{_room(STATIONS[-1].path)}->>{robot}: Segment")
    members = dict.fromkeys([robot, *(_room(station.path) for station in STATIONS)])
    head = [f"participant {name}" for name in members]
    inner = "\n".join(f"    {line}" for line in (*head, *lines))
    return f"```mermaid\nsequenceDiagram\n{inner}\n```"


def _room(path: str) -> str:
    return path.partition("/")[0]
