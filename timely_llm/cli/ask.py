"""`timely-llm ask`: one plan from a running server, segment by segment."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Protocol

import click
from rich.console import Console
from rich.text import Text

from timely_llm.cli.options import SEED, need_ros
from timely_llm.core.errors import RequestError
from timely_llm.core.request import PlanResult
from timely_llm.core.segment import Segment
from timely_llm.core.time_utility import NORMAL, URGENT

if TYPE_CHECKING:
    from timely_llm.ros.client import PlanTask

SECONDS = click.FloatRange(0.1, 86_400)


class Canceled(click.ClickException):
    """The user canceled the request."""

    exit_code = 130


@click.command()
@click.argument("task")
@click.option("--skill-set", default="drone", help="What the robot can do.")
@click.option("--scene", default="", help='What the robot sees: "chair, cat".')
@click.option("--agent", default="ask", help="The robot's name.")
@click.option("--urgent", is_flag=True, help="An emergency: worth more, and sooner nothing.")
@click.option("--pretend", is_flag=True, help="Let each segment take as long as is predicted.")
@click.option("--value", default="True", help="What every blocking skill returns.")
@click.option("--timeout", "timeout_s", type=SECONDS, default=60.0, help="Seconds a segment.")
@click.option(
    "--wait", "wait_s", type=SECONDS, default=10.0, help="Seconds until a server is there."
)
@click.option("--temperature", type=click.FloatRange(0.0, 2.0), default=0.0, help="0: no chance.")
@click.option("--seed", type=SEED, default=0, help="Of the chance.")
@click.option("--json", "as_json", is_flag=True, help="A JSON object a line, for other programs.")
@click.option("--server", default="plan_server", help="Name of the plan server's node.")
@click.option("--namespace", default="", show_default=False, help="Of the server.")
@click.option("--domain", type=click.IntRange(0, 232), help="Default: ROS_DOMAIN_ID.")
def ask(
    task: str, skill_set: str, scene: str, agent: str, urgent: bool, pretend: bool, value: str,
    timeout_s: float, wait_s: float, temperature: float, seed: int, as_json: bool, server: str,
    namespace: str, domain: int | None,
) -> None:  # fmt: skip
    """Ask a running server for a plan and show its segments as they come; nothing is executed."""
    need_ros()
    from timely_llm.ros.client import PlanClient

    printer: Printer = JsonLines() if as_json else Lines()
    with PlanClient(agent, skill_set, server, namespace, domain=domain, find_s=wait_s) as client:
        asked = client.submit(
            worded(task, scene, urgent), URGENT if urgent else NORMAL,
            temperature=temperature, seed=seed,
        )  # fmt: skip
        began_s = time.monotonic()
        try:
            follow(asked, printer, timeout_s, pretend, value)
        except KeyboardInterrupt:
            asked.cancel()
            waited_s = time.monotonic() - began_s
            raise Canceled(f"canceled the request after {waited_s:.1f} s") from None


def worded(task: str, scene: str, urgent: bool) -> str:
    """Return a task in the words that models know; one that has them already is left alone.

    Raises:
        RequestError: there is no task.
    """
    if not task.strip():
        raise RequestError("the task is empty: say what the robot should do")
    if "Task:" in task:
        return task
    return f"Scene: [{scene}]\nTask: [{'E' if urgent else 'A'}] {task}"


def follow(asked: PlanTask, printer: Printer, timeout_s: float, pretend: bool, value: str) -> None:
    """Print a plan while it is made, and let its segments be reported as done.

    Nothing is executed. Without `pretend` they are reported as skipped, with 0 seconds, so that
    neither the server nor a recording learns how long skills take from what did not happen.
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
    """Shows what comes."""

    def segment(self, segment: Segment, after_s: float) -> None:
        """Show a segment that came so long after the request."""
        ...

    def result(self, result: PlanResult) -> None:
        """Show how it ended."""
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
        )  # fmt: skip
        self._console.print(line)

    def result(self, result: PlanResult) -> None:
        """Print counts and times."""
        self._console.print(
            f"complete: {result.segments} segments, the first after {result.response_s:.2f} s,"
            f" {result.generated_tokens} tokens",
            style="green",
        )


class JsonLines:
    """Objects with the fields of the messages, for programs."""

    def segment(self, segment: Segment, after_s: float) -> None:
        """Print it with the time at which it came."""
        click.echo(json.dumps({"after_s": round(after_s, 4), **asdict(segment)}))

    def result(self, result: PlanResult) -> None:
        """Print it."""
        click.echo(json.dumps({"result": asdict(result)}))
