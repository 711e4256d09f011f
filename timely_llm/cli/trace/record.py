"""`timely-llm trace record`: the messages on a running server's topics, to a bag."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich import box
from rich.console import Console
from rich.filesize import decimal
from rich.live import Live
from rich.text import Text

from timely_llm.cli.options import (
    DURATION,
    FOLDER,
    at_server,
    enter_domain,
    need_ros,
)
from timely_llm.processes.nodes import in_namespace, ros_command
from timely_llm.report.fitted_table import FittedTable

if TYPE_CHECKING:
    from timely_llm.ros.bags.recorder import Recorder

TERMINAL_S, PIPE_S = 0.25, 5.0
"""Seconds between two looks at the recording."""


@click.command()
@click.argument("output", type=FOLDER)
@at_server
@click.option(
    "--duration",
    "duration_s",
    type=DURATION,
    show_default="until Ctrl-C",
    help="How many seconds to record.",
)
def record(
    output: Path, server: str, namespace: str, domain: int | None, duration_s: float | None
) -> None:
    """Record the topics of a running plan server to OUTPUT, the folder of a new bag.

    The bag can be read however the recording ends, even if its process is killed. `ros2 bag info`
    and `ros2 bag play` read such bags; docs/bags.md lists their contents.
    """
    if output.suffix in (".mcap", ".jsonl"):
        raise click.BadParameter(
            f"{output} is the name of a file: a bag is recorded to a folder", param_hint="OUTPUT"
        )
    need_ros()
    from timely_llm.ros.bags.recorder import run

    parameters = {"output": str(output), "server": server, "duration_s": duration_s}
    enter_domain(domain)
    args = [*ros_command((), parameters), *in_namespace(namespace)]
    console = Console()
    with View(console) as view:
        recorder = run(args, view.show)
    console.print(summary(recorder))
    console.print(Text(f"Wrote {output}"), soft_wrap=True)
    if not recorder.server_found:
        console.print(Text(f"The plan server {recorder.server} was not there."), soft_wrap=True)


class View:
    """One line that is always up to date or, in a pipe, a line every few seconds."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._began_s = time.monotonic()
        self._next_s = 0.0

    def __enter__(self) -> View:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, recorder: Recorder) -> None:
        """Show how far the recording is, if it is time to."""
        now = time.monotonic()
        if now < self._next_s:
            return
        line = Text(f"{now - self._began_s:5.0f} s  {words(recorder)}")
        if self._console.is_terminal:
            self._next_s = now + TERMINAL_S
            self._live.update(line, refresh=True)
        else:
            self._next_s = now + PIPE_S
            self._console.print(line, soft_wrap=True)


def words(recorder: Recorder) -> str:
    """Return how far a recording is."""
    recording = recorder.recording
    if not (recorder.server_found or recording.written):
        return f"waits for the plan server {recorder.server}; Ctrl-C ends it"
    counts = ", ".join(
        f"{count} {topic.rpartition('/')[2]}" for topic, count in sorted(recording.written.items())
    )
    return f"{_size(recorder)}, {recorder.lost} lost: {counts or 'nothing yet'}"


def summary(recorder: Recorder) -> FittedTable:
    """Return what was recorded, as a table."""
    table = FittedTable("topic", box=box.SIMPLE)
    table.add_column("messages", justify="right")
    for topic, count in sorted(recorder.recording.written.items()):
        table.add_row(Text(topic), str(count))
    table.add_section()
    table.add_row(_size(recorder), str(recorder.recording.written.total()))
    table.add_row("lost", str(recorder.lost))
    if recorder.unnumbered:  # of topics with several publishers, before Kilted
        table.add_row("not checked for losses", str(recorder.unnumbered))
    return table


def _size(recorder: Recorder) -> str:
    return decimal(recorder.recording.written_bytes)
