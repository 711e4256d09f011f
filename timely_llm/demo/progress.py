"""A run of the demo as lines of text, for pipes and log files."""

from __future__ import annotations

import time

from rich.console import Console

from timely_llm.core.events.history import History
from timely_llm.demo.cloud import DemoHistory
from timely_llm.demo.help_rows import help_line
from timely_llm.demo.settings import DemoSettings


class ProgressLines:
    """Prints a line every few seconds."""

    def __init__(
        self, settings: DemoSettings, policy: str, console: Console, every_s: float = 5.0
    ) -> None:
        self._settings = settings
        self._policy = policy
        self._console = console
        self._every_s = every_s
        self._next_s = 0.0

    def __enter__(self) -> ProgressLines:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def starting(self, elapsed_s: float) -> None:
        """Say that the server is not ready yet."""
        if self._due():
            self._say(f"{self._policy}: loading {self._settings.model_name}, {elapsed_s:.0f} s")

    def update(self, history: DemoHistory, now_s: float) -> None:
        """Say how far the run is."""
        if (history.asked or history.questions) and self._due():
            works = (*history.asked, *history.questions)
            running = sum(work.generation(now_s) == "running" for work in works)
            self._say(
                f"{self._policy}: {now_s - history.origin_s:.0f} s, {len(history.asked)} requests, "
                f"{history.served} served, {_answered(history)}{running} generating, "
                f"{step_rate(history, now_s)}{_servers(history)}{self._cloud(history, now_s)}"
            )

    def _cloud(self, history: DemoHistory, now_s: float) -> str:
        return f", {help_line('', history, now_s).plain.strip()}" if self._settings.cloud else ""

    def _due(self) -> bool:
        now_s = time.monotonic()
        if now_s < self._next_s:
            return False
        self._next_s = now_s + self._every_s
        return True

    def _say(self, line: str) -> None:
        self._console.print(line, highlight=False, soft_wrap=True)


def _answered(history: History) -> str:
    if not history.people:
        return ""
    questions = history.questions
    answered = sum(talk.answered for talk in questions)
    kept = sum(bool(talk.outcome and talk.outcome.slo_met) for talk in questions)
    return f"{len(questions)} questions, {answered} answered, {kept} SLO met, "


def _servers(history: History) -> str:
    """Return the requests of each of several servers, in words."""
    words = (
        f", {name} {'lost' if server.is_gone else len(history.made_by(name))}"
        for name, server in sorted(history.servers.items())
    )
    return "".join(words)


def step_rate(history: History, now_s: float, window_s: float = 2.0) -> str:
    """Return steps a second and the mean step time of the last `window_s` seconds, in words."""
    steps = history.recent_steps(now_s - window_s)
    if not steps:
        return "engine idle"
    mean_ms = 1000 * sum(step.duration_s for step in steps) / len(steps)
    return f"{len(steps) / window_s:.0f} steps/s of {mean_ms:.0f} ms"
