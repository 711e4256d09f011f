"""A robot that records its calls, and other parts of tests of executions."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from test.robots.client.random_plans import ROVER
from test.robots.client.scripted_server import ScriptedServer
from timely_llm.core.request import ErrorCode, PlanResult, ReportState
from timely_llm.core.segment import Segment
from timely_llm.robots.client.execution import Executed
from timely_llm.robots.client.pending import PlanClientError
from timely_llm.robots.client.plan_task import PlanTask
from timely_llm.skills.skill_set import SkillSet

SOON_S = 0.05
WAIT_S = 10.0


class Rover:
    """Records its calls; `values` has the values or exceptions of its skills."""

    def __init__(self, **values: object) -> None:
        self.made: list[str] = []
        self.values = values

    def _do(self, name: str, *arguments: object) -> Any:
        self.made.append(f"{name}({','.join(map(repr, arguments))})")
        value = self.values.get(name)
        if callable(value):
            return value()
        if isinstance(value, BaseException):
            raise value
        return value

    def go(self, distance: int) -> Any:
        return self._do("go", distance)

    def say(self, text: str) -> Any:
        return self._do("say", text)

    def tilt(self, pan: float, how: str) -> Any:
        return self._do("tilt", pan, how)

    def sees(self, name: str) -> Any:
        return self._do("sees", name)

    def count(self, name: str) -> Any:
        return self._do("count", name)

    def read(self) -> Any:
        return self._do("read")

    def scan(self) -> Any:
        return self._do("scan")

    def free(self, side: str) -> Any:
        return self._do("free", side)


def run(server: ScriptedServer, skills: object, **options: Any) -> Executed:
    return server.start().execute(skills, timeout_s=options.pop("timeout_s", 2.0), **options)


def made(plan: str, rover: Rover) -> list[str]:
    """Return the calls of one plan that is executed to its end."""
    run(ScriptedServer(ROVER, [plan]), rover)
    return rover.made


def reasons(server: ScriptedServer) -> list[str]:
    return [r.value for r in server.reports if r.state is ReportState.FAILED]


def states(server: ScriptedServer) -> list[tuple[str, int]]:
    return [(report.state.name, report.index) for report in server.reports]


def later(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


class Nobody:
    """A client of a silent server."""

    def report(self, report: object) -> None: ...

    def cancel(self, request_id: str) -> None: ...

    def skill_set(self, name: str) -> SkillSet:
        raise PlanClientError(f"unknown skill set {name!r}")


def offered(*texts: str, final: bool = True) -> tuple[PlanTask, list[Any]]:
    """Return a task with these segments, and its reports."""
    sent: list[Any] = []

    class Post(Nobody):
        def report(self, report: Any) -> None:
            sent.append(report)
            if report.state is ReportState.FAILED:
                task.finish(PlanResult("r", "me", ErrorCode.EXECUTION_FAILED, report.value))

    task = PlanTask("r", "me", Post(), "rover")
    for index, text in enumerate(texts):
        task.offer(Segment("r", "me", index, text, final=final and index == len(texts) - 1))
    return task, sent
