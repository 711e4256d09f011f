"""The calls that a robot made for a plan, kept for a restarted robot: each is made once.

A server knows only reported segments. The report of a call may be lost with the process, and the
values of conditions are never reported. So the robot keeps its calls itself.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from timely_llm.core.segment import SkillCall, Value
from timely_llm.core.text import quoted
from timely_llm.robots.client.pending import PlanClientError

BEGUN, MADE, PLAN = "begun", "made", "plan"
"""Events in the file."""


@dataclass(frozen=True)
class LoggedCall:
    """A call of a skill in an earlier life of the robot.

    Attributes:
        call: the skill and its arguments, as text.
        epoch, index: the segment that contains the call.
        returned: false: the call was interrupted by the end of the process.
        value: what the call returned.
        error: why the call failed, in one sentence; empty if it did not.
        duration_s: seconds that the call took.
    """

    call: str
    epoch: int
    index: int
    returned: bool = False
    value: Value | None = None
    error: str = ""
    duration_s: float = 0.0


class CallLog:
    """The calls of the plan that is being executed, in a file that outlives the process.

    A call is on the disk before it is made, and again when it has returned. When a plan has ended,
    the file is emptied. One log at a time uses a file, until it is closed or its process ends.

    Args:
        path: the file, made if it is not there; None: in memory, for a process that outlives its
            connection to the server.
        again: a call that was interrupted by the end of the process is made again. False: it counts
            as failed, and the model makes a new plan.

    Attributes:
        again: as above.
        request_id: the plan that was not executed to its end; empty: there is none.

    Raises:
        PlanClientError: the file cannot be used, is used by another log, or is no log of calls.
    """

    def __init__(self, path: str | Path | None = None, *, again: bool = False) -> None:
        self.again = again
        self.request_id = ""
        self._calls: list[LoggedCall] = []
        self._file: IO[str] | None = None
        if path is None:
            return
        try:
            self._file = Path(path).open("a+", encoding="utf-8")  # noqa: SIM115
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._file.seek(0)
            self._read(self._file.readlines(), str(path))
        except (OSError, UnicodeDecodeError, PlanClientError) as error:
            self.close()
            if isinstance(error, PlanClientError):
                raise
            taken = isinstance(error, BlockingIOError)
            why = "another CallLog, of this or another process, uses it" if taken else error
            problem = f"cannot use the log of calls {quoted(str(path))}: {why}"
            raise PlanClientError(problem) from error

    def begin(self, request_id: str) -> None:
        """Begin a plan; forget the calls of any other plan."""
        if request_id != self.request_id:
            self._forget()
            self.request_id = request_id
            self._write({"event": PLAN, "request_id": request_id})

    def end(self) -> None:
        """End the plan and forget its calls."""
        self._forget()

    def begun(self, call: SkillCall, epoch: int, index: int) -> None:
        """Store a call that is about to be made."""
        self._calls.append(LoggedCall(str(call), epoch, index))
        self._write({"event": BEGUN, "call": str(call), "epoch": epoch, "index": index})

    def made(self, value: Value | None, error: str, duration_s: float) -> None:
        """Store the end of the newest call: its value, or why it failed."""
        end = {"value": value, "error": error, "duration_s": duration_s}
        self._end_newest(end)
        self._write({"event": MADE, **end})

    def calls(self, epoch: int) -> list[LoggedCall]:
        """Return the calls of an epoch in order."""
        return [call for call in self._calls if call.epoch == epoch]

    def drop_interrupted(self) -> None:
        """Forget the newest call, which did not end."""
        if self._calls and not self._calls[-1].returned:
            self._calls.pop()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _forget(self) -> None:
        self.request_id = ""
        self._calls.clear()
        self._cut(0)

    def _end_newest(self, end: dict[str, Any]) -> None:
        self._calls[-1] = replace(self._calls[-1], returned=True, **end)

    def _cut(self, size: int) -> None:
        if self._file is not None:
            self._file.truncate(size)

    def _write(self, entry: dict[str, Any]) -> None:
        if self._file is None:
            return
        self._file.write(json.dumps(entry) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def _read(self, lines: Iterable[str], path: str) -> None:
        good = 0
        for number, line in enumerate(lines, start=1):
            if not line.endswith("\n"):  # the process ended while it wrote this
                self._cut(good)
                return
            good += len(line.encode())
            try:
                self._take(json.loads(line))
            except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
                raise PlanClientError(
                    f"{quoted(path)} is no log of calls: line {number} is {quoted(line.strip())}"
                ) from error

    def _take(self, entry: dict[str, Any]) -> None:
        event = entry["event"]
        if event == PLAN:
            self.request_id, self._calls = str(entry["request_id"]), []
        elif event == BEGUN:
            self.drop_interrupted()  # it was made again
            epoch, index = int(entry["epoch"]), int(entry["index"])
            self._calls.append(LoggedCall(str(entry["call"]), epoch, index))
        elif event == MADE:
            self._end_newest({name: entry[name] for name in ("value", "error", "duration_s")})
        else:
            raise ValueError(event)
