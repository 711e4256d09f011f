"""The executables `robot_fleet` and `talkers`: a node, and the demo's table at its end."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from importlib import import_module

from timely_llm.core.events.history import History
from timely_llm.core.events.log import EventLog
from timely_llm.core.events.run_event import RunEvent
from timely_llm.core.events.schema import (
    AnsweredEvent,
    AskEvent,
    DoneEvent,
    PersonEvent,
    QuestionEvent,
    RobotEvent,
)

KEPT = RobotEvent | PersonEvent | AskEvent | DoneEvent | QuestionEvent | AnsweredEvent
"""Events that the table needs: a fleet may ask for a day, and keeps no more of it."""


class EventCollector:
    """Keeps the events of a client that the table needs."""

    def __init__(self) -> None:
        self.history = History()

    def write(self, event: RunEvent) -> None:
        """Take an event."""
        if isinstance(event, KEPT):
            self.history.add(event)

    def close(self) -> None:
        """Do nothing: the table follows the node's end."""


def main_of(name: str) -> Callable[[list[str] | None], int]:
    """Return a function that runs a node, prints the table, and returns the exit status."""

    def main(args: list[str] | None = None) -> int:
        collector = EventCollector()
        run: Callable[[list[str] | None, EventLog], int]
        run = import_module(f"timely_llm.ros.fleet.{name}").main
        status = run(args, collector)
        show(name, collector.history)
        return status

    return main


robot_fleet = main_of("robot_fleet")
talkers = main_of("talkers")


def show(name: str, history: History) -> None:
    """Print the table if anything was asked, and if the library that draws it is installed."""
    if not (history.asked or history.questions):
        return
    with contextlib.suppress(ImportError, OSError):  # the terminal may be gone
        from rich.console import Console

        from timely_llm.demo.report import print_clients

        print_clients(Console(), name, history)
