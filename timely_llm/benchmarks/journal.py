"""The cost of a recovery journal in the loop's thread: a turn with many rows, beside SQLite."""

from __future__ import annotations

import heapq
import math
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path
from typing import Any

from timely_llm.core.clock import VirtualClock
from timely_llm.core.events.run_event import RunEvent
from timely_llm.core.events.schema import ReportEvent
from timely_llm.core.request import (
    ExecutionReport,
    PlanRequest,
    ReportState,
    Request,
    Result,
    StreamChunk,
)
from timely_llm.core.segment import Segment
from timely_llm.core.step import StepResult
from timely_llm.engines.sequences import EngineLimits
from timely_llm.engines.simulated import DEFAULT_PROFILE, PROFILES, SimulatedEngine
from timely_llm.policies.fcfs import Stream
from timely_llm.resources import resource
from timely_llm.serving.journal.file import JournalFile
from timely_llm.serving.journal.sink import JournalSink
from timely_llm.serving.loop import Loop
from timely_llm.serving.publisher import EventPublisher
from timely_llm.skills.skill_set import parse_skill_set

PLANS = (
    "tc(180);mf(120);tp();->True;",
    "mf(50);tc(90);mu(20);mf(50);tc(90);tp();->True;",
    "mu(100);mb(50);->True;",
)
TASK = "Scene: [chair]\nTask: [A] Look."
SKILL_SET = "config/skill_sets/drone.yaml"


class _File(JournalFile):
    """The journal that the server writes, counted."""

    records = 0

    def _write(self, line: bytes) -> None:
        self.records += 1
        self._store(line)

    def _store(self, line: bytes) -> None:
        super()._write(line)

    def turned(self) -> None:
        """Do what is due after a turn."""


class _SqliteRecords(_File):
    """The same records in a table of SQLite with a write-ahead log, a commit for each."""

    def __init__(self, path: Path, made_with: str) -> None:
        super().__init__(path, made_with)
        self._base = sqlite3.connect(f"{path}.sqlite", isolation_level=None)
        self._base.execute("pragma journal_mode=wal")
        self._base.execute("pragma synchronous=normal")  # as the file: no flush for a record
        self._base.execute("create table records (line blob)")

    def _store(self, line: bytes) -> None:
        self._base.execute("insert into records values (?)", (line,))

    def close(self) -> None:
        """Close the table and the file."""
        self._base.close()
        super().close()


class _SqliteTurns(_SqliteRecords):
    """The same, with a commit for each turn: segments would have to wait for it."""

    def _store(self, line: bytes) -> None:
        if not self._base.in_transaction:
            self._base.execute("begin")
        super()._store(line)

    def turned(self) -> None:
        """Commit what a turn has written."""
        if self._base.in_transaction:
            self._base.execute("commit")


JOURNALS: dict[str, type[_File]] = {
    "file": _File,
    "sqlite, a commit a record": _SqliteRecords,
    "sqlite, a commit a turn": _SqliteTurns,
}


def rows(
    number: int = 64,
    turns: int = 2000,
    progress: Callable[[float, float], None] = lambda done, total: None,
) -> list[dict[str, Any]]:
    """Return the cost of each way to write a journal.

    A loop with a simulated engine serves plans on the virtual clock. A new plan replaces each one
    that ends. Robots report the beginning and the end of each segment. In some rows a
    robot executes a segment in its predicted time. In the others it needs no time: all plans are
    rows of each step, and no policy makes more segments. The records are those of a server.

    Args:
        number: plans in service.
        turns: measured turns; an eighth of them more warm up.
        progress: called with the finished and the total number of rows.

    Returns:
        Rows of `journal`, `robots` (their time for a segment), `rows` (mean of a step),
        `segments_per_s` (robots' seconds), `records` (a turn), `us` (CPU microseconds of the loop's
        thread a turn, with all that makes the records), `share` (of all time that they take),
        `submit_us` (the same of the threads that submit requests). What the stopwatch takes itself
        is measured too, and not counted.
    """
    cases = [(predicted, name) for predicted in (True, False) for name in JOURNALS]
    made = []
    for done, (predicted, name) in enumerate(cases):
        progress(done, len(cases))
        with tempfile.TemporaryDirectory() as folder:
            site = _JournalSite(JOURNALS[name](Path(folder) / "journal", ""), number, predicted)
            made.append({"journal": name, **site.row(turns)})
    progress(len(cases), len(cases))
    return made


class _Stopwatch:
    """Adds up the CPU time of this thread between enterings and exits."""

    def __init__(self) -> None:
        self._start_s = self._all_s = 0.0
        self._times = 0

    def __enter__(self) -> None:
        self._times += 1
        self._start_s = time.thread_time()

    def __exit__(self, *error: object) -> None:
        self._all_s += time.thread_time() - self._start_s

    @property
    def spent_s(self) -> float:
        """Seconds without those of the stopwatch."""
        times = 2000
        empty = _Stopwatch()
        for _ in range(times):
            with empty:
                pass
        return self._all_s - self._times * empty._all_s / times


class _JournalSite:
    """A loop with a journal, and its robots; the journal's sink and event log, with a stopwatch."""

    def __init__(self, journal: _File, number: int, predicted: bool) -> None:
        text = resource(SKILL_SET).read_text()
        self._clock = VirtualClock()
        engine = SimulatedEngine(
            PROFILES[DEFAULT_PROFILE], self._plan, self._clock, EngineLimits(max_rows=number)
        )
        self._loop = Loop(engine, Stream(), self._clock)
        self._loop.register(parse_skill_set(text, SKILL_SET))
        self._journal = journal
        self._robots = _Robots(self._clock, predicted)
        self._sink = JournalSink(journal, self._robots)
        self._sink.record_loop(self._loop, lambda _: text)
        self._publisher = EventPublisher(self._loop, self, self)
        self._number = number
        self._ids = count()
        self._loops, self._submits = _Stopwatch(), _Stopwatch()
        self._steps = self._rows = 0

    @staticmethod
    def _plan(key: str, prompt: str) -> str:
        return PLANS[int(key[1:]) % len(PLANS)] if key.startswith("r") else ""

    def row(self, turns: int) -> dict[str, Any]:
        """Turn, and return the costs."""
        while self._steps < turns // 8:
            self._turn()
        self._steps = self._rows = 0
        self._loops, self._submits = _Stopwatch(), _Stopwatch()
        records, segments, start_s = self._journal.records, self._robots.segments, self._clock.now()
        while self._steps < turns:
            self._turn()
        elapsed_s = self._clock.now() - start_s
        self._journal.close()
        return {
            "robots": "as predicted" if self._robots.predicted else "in no time",
            "rows": round(self._rows / self._steps, 1),
            "segments_per_s": round((self._robots.segments - segments) / elapsed_s, 1),
            "records": round((self._journal.records - records) / self._steps, 2),
            "us": round(1e6 * self._loops.spent_s / self._steps, 1),
            "share": f"{self._loops.spent_s / elapsed_s:.2%}",
            "submit_us": round(1e6 * self._submits.spent_s / self._steps, 1),
        }

    def _turn(self) -> None:
        """Admit what is missing, report what was executed, and turn."""
        while len(self._loop.generations) < self._number:
            name = f"r{next(self._ids)}"
            request = PlanRequest(name, f"agent-{name}", "drone", TASK, closed_loop=True)
            with self._submits:
                self._sink.accepted(request)
            self._loop.admit(request)
        for report in self._robots.due():
            self._loop.report(report)
        self._publisher.publish(self._loop.take_events())
        turn = self._loop.turn()
        self._publisher.publish(turn.events)
        with self._loops:
            self._journal.turned()
        if not turn.stepped and not turn.events:
            wake_s = min(turn.wake_s, self._robots.next_s)
            self._clock.advance(max(wake_s - self._clock.now(), 0.0))

    def accepted(self, request: Request) -> None:
        """Pass a request on."""
        self._sink.accepted(request)

    def coming(self, segments: Iterable[Segment]) -> None:
        """Let segments be recorded."""
        with self._loops:
            self._sink.coming(segments)

    def written(self) -> None:
        """Let the records be written that wait."""
        with self._loops:
            self._sink.written()

    def segment(self, segment: Segment) -> None:
        """Pass a segment on."""
        with self._loops:
            self._sink.segment(segment)

    def chunk(self, chunk: StreamChunk) -> None:
        """Pass a piece of an answer on."""
        self._sink.chunk(chunk)

    def ended(self, result: Result) -> None:
        """Pass an end on."""
        with self._loops:
            self._sink.ended(result)

    def stepped(self, result: StepResult) -> None:
        """Count a step."""
        self._steps += 1
        self._rows += len(result.computed)

    def write(self, event: RunEvent) -> None:
        """Pass a report on; nothing of the other events is recorded here."""
        if isinstance(event, ReportEvent):
            with self._loops:
                self._sink.write(event)

    def close(self) -> None:
        """Do nothing: the journal is closed by itself."""


class _Robots:
    """Robots that execute segments one after the other.

    Args:
        clock: theirs.
        predicted: a segment takes as long as it is predicted to, not no time.

    Attributes:
        segments: number of segments that they got.
    """

    def __init__(self, clock: VirtualClock, predicted: bool) -> None:
        self._clock = clock
        self._reports: list[tuple[float, int, ExecutionReport]] = []  # a heap, by time
        self._new: list[Segment] = []
        self._free_s: dict[str, float] = {}
        self._number = count()
        self.predicted = predicted
        self.segments = 0

    @property
    def next_s(self) -> float:
        """When the next report is due, infinity if none is."""
        return self._reports[0][0] if self._reports else math.inf

    def due(self) -> list[ExecutionReport]:
        """Execute the new segments, each after those before it; return the reports that are due."""
        for segment in self._new:
            self._execute(segment)
        self._new.clear()
        now, found = self._clock.now(), []
        while self.next_s <= now:
            found.append(heapq.heappop(self._reports)[2])
        return found

    def accepted(self, request: Request) -> None:
        """Do nothing."""

    def segment(self, segment: Segment) -> None:
        """Count a segment; the next call of `due` begins to execute it."""
        self.segments += 1
        self._new.append(segment)

    def _execute(self, segment: Segment) -> None:
        begin_s = max(self._free_s.get(segment.agent, 0.0), self._clock.now())
        end_s = begin_s + (segment.predicted_s if self.predicted else 0.0)
        self._free_s[segment.agent] = end_s
        for time_s, state in ((begin_s, ReportState.STARTED), (end_s, ReportState.FINISHED)):
            report = ExecutionReport(segment.request_id, segment.agent, state, segment.index, 1.0)
            heapq.heappush(self._reports, (time_s, next(self._number), report))

    def chunk(self, chunk: StreamChunk) -> None:
        """Do nothing."""

    def ended(self, result: Result) -> None:
        """Forget the robot."""
        self._free_s.pop(result.agent, None)

    def stepped(self, result: StepResult) -> None:
        """Do nothing."""
