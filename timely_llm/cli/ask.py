"""`timely-llm ask`: one plan from a running server, segment by segment."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import click
from rich.console import Console
from rich.text import Text

from timely_llm.cli.options import (
    DRAWN,
    KEY,
    MODE,
    TEMPERATURE,
    UNSIGNED,
    WAIT,
    Option,
    SkillSetName,
    at_server,
    need_ros,
)
from timely_llm.core.errors import RequestError
from timely_llm.core.request import PlanResult
from timely_llm.core.segment import Segment
from timely_llm.core.text import count_of
from timely_llm.core.time_utility import NORMAL, URGENT

if TYPE_CHECKING:
    from timely_llm.ros.client.plan import PlanTask

SECONDS = click.FloatRange(0.1, 86_400)


class Canceled(click.ClickException):
    """The user canceled the request."""

    exit_code = 130


@click.command()
@click.argument("task", default="", metavar="TASK")
@click.option(
    "--plan", help="Send this plan, written by hand; the server must have accept_plans set."
)
@click.option("--skill-set", type=SkillSetName(), default="drone",
              help="Name of the registered skill set that says what the robot can do.")  # fmt: skip
@click.option("--scene", default="", help='What the robot sees: "chair, cat".')
@click.option("--agent", default="ask", help="The robot's name.")
@click.option(
    "--urgent",
    is_flag=True,
    help="Ask as in an emergency: the plan is worth more, and loses its worth sooner.",
)
@click.option(
    "--pretend", is_flag=True, help="Report each segment as executed in its predicted seconds."
)
@click.option("--value", default="True", help="Value that every blocking skill returns.")
@click.option(
    "--timeout",
    "timeout_s",
    type=SECONDS,
    default=60.0,
    help="How many seconds to wait for each segment.",
)
@WAIT
@TEMPERATURE
@DRAWN
@MODE
@KEY
@UNSIGNED
@click.option("--json-lines", "as_json", cls=Option, formerly=["--json"], is_flag=True,
              help="Print a JSON object a line, for other programs.")  # fmt: skip
@at_server
def ask(
    task: str, plan: str | None, skill_set: str, scene: str, agent: str, urgent: bool,
    pretend: bool, value: str, timeout_s: float, wait_s: float, temperature: float, seed: int,
    mode: str, key_file: Path | None, accept_unsigned: bool, as_json: bool, server: str,
    namespace: str, domain: int | None,
) -> None:  # fmt: skip
    """Ask a running server for a plan and show its segments as they come; nothing is executed."""
    need_ros()
    from timely_llm.ros.client.plan import PlanClient

    printer: Printer = JsonLines() if as_json else Lines()
    with PlanClient(
        agent, skill_set, server, namespace, domain=domain, find_s=wait_s, key_file=key_file,
        accept_unsigned=accept_unsigned,
    ) as client:  # fmt: skip
        asked = client.submit(
            "" if plan and not task else worded(task, scene, urgent), URGENT if urgent else NORMAL,
            temperature=temperature, seed=seed, plan=plan, mode=mode,
        )  # fmt: skip
        began_s = time.monotonic()
        try:
            follow(asked, printer, timeout_s, pretend, value)
        except KeyboardInterrupt:
            asked.cancel()
            waited_s = time.monotonic() - began_s
            raise Canceled(f"canceled the request after {waited_s:.1f} s") from None


def worded(task: str, scene: str, urgent: bool) -> str:
    """Return a task in the form of the prompts; a task that has the form stays as it is.

    Raises:
        RequestError: there is no task.
    """
    if not task.strip():
        raise RequestError("the task is empty: say what the robot should do")
    if "Task:" in task:
        return task
    return f"Scene: [{scene}]\nTask: [{'E' if urgent else 'A'}] {task}"


def follow(asked: PlanTask, printer: Printer, timeout_s: float, pretend: bool, value: str) -> None:
    """Print a plan while it is made, and report its segments as executed.

    Nothing is executed. Without `pretend` segments are reported as skipped, with 0 seconds, so that
    neither the server nor a recording learns durations from executions that did not happen.
    """
    began_s = time.monotonic()
    for segment in asked.segments(timeout_s):
        printer.segment(segment, time.monotonic() - began_s)
        if pretend:
            asked.started(segment)
            time.sleep(segment.predicted_s)
        duration_s = segment.predicted_s if pretend else 0.0
        asked.finished(segment, duration_s, value if segment.blocking else "")
    printer.result(asked.result(timeout_s))


class Printer(Protocol):
    """Shows segments and the result as they come."""

    def segment(self, segment: Segment, after_s: float) -> None:
        """Show a segment that came `after_s` seconds after the request."""
        ...

    def result(self, result: PlanResult) -> None:
        """Show the result."""
        ...


class Lines:
    """A line a segment, for people."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, soft_wrap=True)

    def segment(self, segment: Segment, after_s: float) -> None:
        """Print when it came, its text, and how long it takes."""
        line = Text.assemble(
            (f"{after_s:7.2f} s  ", "dim"), (segment.text.strip(), "bold"),
            (f"  {segment.predicted_s:.1f} s" if segment.predicted_s >= 0.1 else "", "cyan"),
            ("  written by hand" if segment.given else "", "dim"),
        )  # fmt: skip
        self._console.print(line)

    def result(self, result: PlanResult) -> None:
        """Print counts and times."""
        made = "a plan written by hand" if result.given else f"{result.generated_tokens} tokens"
        count = count_of(result.segments, "segment")
        self._console.print(
            f"complete: {count}, the first after {result.response_s:.2f} s, {made}",
            style="green",
        )
        if result.help_words:
            self._console.print(result.help_words, style="dim", markup=False)


class JsonLines:
    """Objects with the fields of the messages, for programs."""

    def segment(self, segment: Segment, after_s: float) -> None:
        """Print it with the time at which it came."""
        click.echo(json.dumps({"after_s": round(after_s, 4), **asdict(segment)}))

    def result(self, result: PlanResult) -> None:
        """Print it."""
        click.echo(json.dumps({"result": asdict(result)}))
