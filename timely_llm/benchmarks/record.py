"""Lost messages and CPU share of `timely-llm trace record`, between two processes."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

from timely_llm.processes.children import Children, Interrupts, ProcessError, wait
from timely_llm.processes.nodes import (
    RECORD_PROBE,
    RECORDER,
    local_environment,
    random_domain,
    ros_command,
)
from timely_llm.traces.recordings.bags import bag_messages
from timely_llm.traces.recordings.mcap import BagMessage

START_LIMIT_S = 60.0
COUNTED = "counted"
"""Request id of the messages that count. Other messages wait for the recorder to subscribe."""


def rows(
    rates: tuple[float, ...] = (2000.0,),
    seconds: float = 10.0,
    progress: Callable[[float, float], None] = lambda done, total: None,
) -> list[dict[str, Any]]:
    """Return a row for each rate.

    A process publishes segments of two calls at a steady rate. The recorder of `timely-llm trace
    record` records them in another process.

    Args:
        rates: segments a second.
        seconds: seconds at each rate.
        progress: called with the passed and the total seconds.

    Returns:
        Rows of `messages_per_s` (received rate), `messages`, `lost` (messages not in the bag),
        `cpu_share` (the recorder's share of one core).

    Raises:
        ProcessError: a process could not be started or died.
        Interrupted: the user interrupted the benchmark.
    """
    found = []
    for number, rate in enumerate(rates):
        progress(number * seconds, len(rates) * seconds)
        with tempfile.TemporaryDirectory() as folder:
            found.append(_row(Path(folder), rate, max(round(rate * seconds), 2)))
    return found


def _row(folder: Path, rate: float, messages: int) -> dict[str, Any]:
    bag = folder / "bag"
    environment = local_environment(random_domain())
    recorder_command = ros_command(RECORDER, {"output": str(bag)})
    probe_command = ros_command(RECORD_PROBE, {"rate": rate, "messages": messages})
    with Interrupts() as interrupts, Children(interrupts) as children:
        recorder = children.start("recorder", recorder_command, environment, folder / "rec.log")
        probe = children.start("probe", probe_command, environment, folder / "probe.log")
        wait(
            probe, lambda: next(_messages(bag), None) is not None, interrupts,
            START_LIMIT_S, "nothing was recorded",
        )  # fmt: skip
        process = psutil.Process(recorder.pid)
        before_s = _cpu_s(process)
        probe.send(signal.SIGUSR1)
        limit_s = START_LIMIT_S + 10 * messages / rate
        wait(probe, lambda: probe.status == 0, interrupts, limit_s, "the probe was not ready")
        cpu_s = _cpu_s(process) - before_s
    counted = f"{COUNTED}\0".encode()
    times_ns = [message.time_ns for message in _messages(bag) if counted in message.data]
    if len(times_ns) < 2:
        raise ProcessError(f"{len(times_ns)} of {messages} messages were recorded")
    span_s = (times_ns[-1] - times_ns[0]) / 1e9
    return {
        "messages_per_s": round((len(times_ns) - 1) / span_s, 1),
        "messages": messages,
        "lost": messages - len(times_ns),
        "cpu_share": round(cpu_s / span_s, 3),
    }


def _messages(bag: Path) -> Iterator[BagMessage]:
    """Yield the messages that the bag has by now."""
    if list(bag.glob("*.mcap")):
        yield from bag_messages(bag, lambda warning: None)


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
