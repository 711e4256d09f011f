"""Times of stages: what workers record, and what the engine makes of it."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from timely_llm.core.step import StageTimes
from timely_llm.engines.vllm.stage_times import (
    RECORDS,
    StageRecord,
    StageRecorder,
    StageRecords,
    StageTimeline,
)

FIRST = StageRecord(0.1, 0.1, 0.1, 0.3, 0.5)


@pytest.mark.parametrize(
    ("second", "link_s", "blocked_s", "idle_s"),
    [
        # Waits from 0.2 on: until 0.3 for the first stage, then for the transfer.
        (StageRecord(0.1, 0.2, 0.5, 0.9, 0.9), 0.2, 0.2, 0.2),
        # The transfer took longer than the first stage was kept by it.
        (StageRecord(0.1, 0.2, 0.6, 0.9, 0.9), 0.3, 0.3, 0.2),
        # Began to look when all was there.
        (StageRecord(0.7, 0.8, 0.8, 0.9, 0.9), 0.2, 0.2, 0.5),
    ],
)
def test_a_wait_is_idle_or_a_transfer(
    second: StageRecord, link_s: float, blocked_s: float, idle_s: float
) -> None:
    times, overhead_s = StageTimeline().times([FIRST, second], 0.0, 1.0)
    assert overhead_s == pytest.approx(0.2), "0.1 before the first stage and 0.1 after the last"
    assert times is not None
    assert times.fit
    assert times.begins_s == pytest.approx((0.1, second.entered_s))
    assert times.stage_s == pytest.approx((0.2, second.compute_s))
    assert times.link_s == pytest.approx((link_s,))
    assert times.blocked_s == pytest.approx((0.2, blocked_s))
    assert times.idle_s == pytest.approx((0.1, idle_s))


def test_each_second_of_a_stage_is_counted_once() -> None:
    timeline = StageTimeline()
    steps = [
        [FIRST, StageRecord(0.1, 0.2, 0.5, 0.9, 0.9)],
        [StageRecord(0.55, 0.55, 0.55, 0.7, 0.8), StageRecord(0.95, 1.0, 1.0, 1.3, 1.3)],
        [StageRecord(0.9, 0.9, 0.9, 1.0, 1.5), StageRecord(1.35, 1.4, 1.5, 1.6, 1.6)],
    ]
    found = [timeline.times(records, 0.0, 2.0).stages for records in steps]
    sums = [0.0, 0.0]
    for times in found:
        assert times is not None
        for stage in (0, 1):
            sums[stage] += times.stage_s[stage] + times.blocked_s[stage] + times.idle_s[stage]
    assert sums == pytest.approx([1.5, 1.6])


def test_the_overhead_of_a_step_that_waited_for_the_first_stage_is_not_measured() -> None:
    timeline = StageTimeline()
    timeline.times([FIRST, StageRecord(0.1, 0.2, 0.5, 0.9, 0.9)], 0.0, 1.0)
    later = [StageRecord(0.8, 0.8, 0.8, 0.9, 1.0), StageRecord(0.95, 1.1, 1.1, 1.3, 1.3)]
    assert timeline.times(later, 0.4, 1.4).overhead_s == 0.0, "it was submitted before 0.5"
    next_one = [StageRecord(*(one + 1.0 for one in record)) for record in later]
    assert timeline.times(next_one, 1.5, 2.4).overhead_s == pytest.approx(0.3 + 0.1)


def test_a_step_without_records_has_no_times_and_the_next_begins_anew() -> None:
    timeline = StageTimeline()
    records = [FIRST, StageRecord(0.1, 0.2, 0.5, 0.9, 0.9)]
    assert timeline.times(records, 0.0, 1.0).stages
    assert timeline.times(None, 0.0, 1.0) == (None, 0.0)
    later = [StageRecord(*(9.0 + one for one in record)) for record in records]
    times = timeline.times(later, 9.0, 10.0).stages
    assert isinstance(times, StageTimes)
    assert times.idle_s == pytest.approx((0.1, 0.2))


def test_records_pass_a_file_and_old_ones_are_not_mistaken() -> None:
    path, mine = StageRecords.create(2)
    try:
        others = StageRecords(path, 2)
    finally:
        path.unlink()
    assert mine.read(1) is None
    others.write(0, 1, FIRST)
    assert mine.read(1) is None, "the second stage has written nothing"
    others.write(1, 1, FIRST)
    others.correct(1, 1, 0.75)
    assert mine.read(1) == [FIRST, FIRST._replace(sent_s=0.75)]
    assert mine.read(1 + RECORDS) is None


def test_a_recorder_times_what_it_wraps(tmp_path: Path) -> None:
    path, records = StageRecords.create(2)
    path.unlink()
    sender = StageRecorder(records, 0, last=False, link_bytes_per_s=1000.0)
    taker = StageRecorder(records, 1, last=True)
    step = SimpleNamespace(step_number=7)
    tensors = {"states": SimpleNamespace(numel=lambda: 5, element_size=lambda: 4)}
    received = SimpleNamespace(wait_for_comm=lambda: time.sleep(0.01))

    assert sender.execute(lambda *_: "made")(step) == "made"
    assert sender.send(lambda sent: sent)(tensors) is tensors
    assert taker.execute(lambda _, waits: waits.wait_for_comm())(step, received) is None
    assert records.read(7) is None, "the last stage has no token yet"
    assert taker.sample(lambda: "token")() == "token"
    found = records.read(7)
    assert found is not None
    first, second = found
    assert first.sent_s - first.computed_s >= 0.02, "20 bytes at 1,000 a second"
    assert second.received_s - second.asked_s >= 0.01
    assert second.compute_s < second.computed_s - second.entered_s
