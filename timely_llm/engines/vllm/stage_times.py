"""Times of the pipeline stages of vLLM, from its worker processes to the engine's process.

Each stage writes what it did in a step into a file that both processes map: no message, no lock.
All times are of the monotonic clock, which the processes of a machine share.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from timely_llm.core.step import StageTimes

RECORDS = 64
"""Steps with times that are kept, more than can be in flight."""


class StageRecord(NamedTuple):
    """What a stage did in one step; times in seconds.

    Attributes:
        entered_s: it had the order of the step.
        asked_s, received_s: it waited in between for the tensors of the stage before.
        computed_s: it had computed its layers; on the last stage, the new tokens.
        sent_s: it could do something else.
    """

    entered_s: float
    asked_s: float
    received_s: float
    computed_s: float
    sent_s: float

    @property
    def compute_s(self) -> float:
        """Seconds in which the stage computed."""
        return self.asked_s - self.entered_s + self.computed_s - self.received_s


class StageRecords:
    """Records of all stages in a mapped file.

    Args:
        path: the file.
        stages: number of stages.
    """

    def __init__(self, path: Path, stages: int) -> None:
        shape = stages, RECORDS, 1 + len(StageRecord._fields)
        self._file = np.memmap(path, dtype=np.float64, mode="r+", shape=shape)

    @classmethod
    def create(cls, stages: int) -> tuple[Path, StageRecords]:
        """Return a new file, which the caller removes when all processes have mapped it."""
        descriptor, name = tempfile.mkstemp(prefix="timely_llm_stages_")
        size = 8 * stages * RECORDS * (1 + len(StageRecord._fields))
        os.truncate(descriptor, size)
        os.close(descriptor)
        return Path(name), cls(Path(name), stages)

    def write(self, stage: int, number: int, record: StageRecord) -> None:
        """Write the record of a step; its number, from 1 on, is written last."""
        row = self._file[stage, number % RECORDS]
        row[0] = 0.0
        row[1:] = record
        row[0] = number

    def correct(self, stage: int, number: int, sent_s: float) -> None:
        """Write `sent_s` of a record again."""
        self._file[stage, number % RECORDS, -1] = sent_s

    def read(self, number: int) -> list[StageRecord] | None:
        """Return the records of a step, one for each stage; None: one is not there yet."""
        rows = self._file[:, number % RECORDS].tolist()
        if any(row[0] != number for row in rows):
            return None
        return [StageRecord(*row[1:]) for row in rows]


class StepTimes(NamedTuple):
    """Times of a step in the stages, and outside of them.

    Attributes:
        stages: in each stage; None: not known.
        overhead_s: as `StepResult.overhead_s`.
    """

    stages: StageTimes | None = None
    overhead_s: float = 0.0


class StageTimeline:
    """Composes the records of consecutive steps to what each stage did all the time."""

    def __init__(self) -> None:
        self._free_s: list[float] | None = None

    def times(
        self, records: list[StageRecord] | None, submitted_s: float, ended_s: float
    ) -> StepTimes:
        """Return the times of the next step.

        A transfer lasts until the next stage has it, or, if that stage was busy, until the sending
        stage was free. The overhead is the time before the first stage and after the last one. It
        is not measured if the first stage had another step when this one was submitted.

        Args:
            records: of the step; None: not known. Idle times then begin anew.
            submitted_s: when the step was submitted, seconds.
            ended_s: when its tokens were there, seconds.
        """
        if records is None:
            self._free_s = None
            return StepTimes()
        free_s = self._free_s or [submitted_s] * len(records)
        self._free_s = [record.sent_s for record in records]
        sends = [
            (before.computed_s, max(before.sent_s, after.received_s))
            if after.asked_s <= before.sent_s
            else (before.computed_s, before.sent_s)
            for before, after in pairwise(records)
        ]
        blocked, idle = [], []
        for stage, record in enumerate(records):
            waits = (free_s[stage], record.entered_s), (record.asked_s, record.received_s)
            waited_s = sum(max(end - begin, 0.0) for begin, end in waits)
            in_s = sum(_overlap(wait, sends[stage - 1]) for wait in waits) if stage else 0.0
            blocked.append(in_s + record.sent_s - record.computed_s)
            idle.append(waited_s - in_s)
        stages = StageTimes(
            tuple(max(record.entered_s - submitted_s, 0.0) for record in records),
            tuple(record.compute_s for record in records),
            tuple(end - begin for begin, end in sends),
            tuple(blocked),
            tuple(max(one, 0.0) for one in idle),
        )
        if free_s[0] > submitted_s:
            return StepTimes(stages)
        before_s, after_s = records[0].entered_s - submitted_s, ended_s - records[-1].computed_s
        return StepTimes(stages, max(before_s + after_s, 0.0))


class StageRecorder:
    """Records in a worker what its stage does, by wrapping functions of vLLM.

    Args:
        records: where the records go.
        stage: number of the stage.
        last: whether it is the last one, which samples tokens and sends nothing.
        link_bytes_per_s: rate to which the sends are slowed; 0: they are not.
    """

    def __init__(
        self, records: StageRecords, stage: int, last: bool, link_bytes_per_s: float = 0.0
    ) -> None:
        self._records, self._stage, self._last = records, stage, last
        self._rate = link_bytes_per_s
        self._number = 0
        self._entered_s = self._asked_s = self._received_s = self._computed_s = 0.0

    def execute(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return the model runner's `execute_model` with times."""

        def execute_model(
            scheduler_output: Any, received: Any = None, *args: Any, **kw: Any
        ) -> Any:
            self._number = getattr(scheduler_output, "step_number", 0)
            self._entered_s = self._asked_s = self._received_s = time.monotonic()
            if received is not None:
                self._watch(received)
            made = call(scheduler_output, received, *args, **kw)
            self._computed_s = time.monotonic()
            return made

        return execute_model

    def sample(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return the model runner's `sample_tokens` with times."""

        def sample_tokens(*args: Any, **kw: Any) -> Any:
            made = call(*args, **kw)
            if self._last:
                self._computed_s = time.monotonic()
                self._write(self._computed_s)
            return made

        return sample_tokens

    def send(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return the group's `isend_tensor_dict` with times, and slowed."""

        def isend_tensor_dict(tensors: Any, *args: Any, **kw: Any) -> Any:
            if self._rate:
                sent = sum(one.numel() * one.element_size() for one in tensors.values())
                time.sleep(sent / self._rate)
            # Before the next stage can have it: the step may end before this call returns.
            self._write(time.monotonic())
            handles = call(tensors, *args, **kw)
            if self._number:
                self._records.correct(self._stage, self._number, time.monotonic())
            return handles

        return isend_tensor_dict

    def _watch(self, received: Any) -> None:
        wait = received.wait_for_comm

        def wait_for_comm() -> None:
            self._asked_s = time.monotonic()
            wait()
            self._received_s = time.monotonic()
            received.wait_for_comm = wait

        received.wait_for_comm = wait_for_comm

    def _write(self, sent_s: float) -> None:
        if self._number:
            record = StageRecord(
                self._entered_s, self._asked_s, self._received_s, self._computed_s, sent_s
            )
            self._records.write(self._stage, self._number, record)


def _overlap(one: tuple[float, float], other: tuple[float, float]) -> float:
    """Return the seconds that two spans share."""
    return max(min(one[1], other[1]) - max(one[0], other[0]), 0.0)
