"""Recorded bags that are cut off, damaged, or have impossible values."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from test.experiments.recorded_bags import FINISHED, STARTED, Bag, TalkBag, only
from test.experiments.workloads import job
from timely_llm.core.request import ErrorCode
from timely_llm.experiments.recorded import messages
from timely_llm.experiments.recorded.score import read_recording, score
from timely_llm.experiments.results.document import RunDocument
from timely_llm.experiments.sources import recorded_trace
from timely_llm.traces.files import read_trace
from timely_llm.traces.lines import request_line
from timely_llm.traces.model import Trace, TraceError
from timely_llm.traces.recordings.bags import write_bag

KINDS = ("PlanRequest", "Segment", "ExecutionReport", "PlanResult", "EngineStep")


def test_a_bag_without_an_end_is_scored_up_to_there(tmp_path: Path) -> None:
    with Bag(tmp_path / "day") as bag:
        bag.plan(0.0, "a")
    (file,) = (tmp_path / "day").glob("*.mcap")
    data = file.read_bytes()
    (tmp_path / "killed.mcap").write_bytes(data[: data.rindex(b"\x0f\x04\0\0\0\0\0\0\0")])
    document = score(tmp_path / "killed.mcap")
    assert only(document)["share_served"] == 1.0
    assert any("its end is missing" in note for note in document.notes)


def test_a_trace_is_no_recording(tmp_path: Path) -> None:
    write_bag(Trace("t", jobs=(job("a"),)), tmp_path / "bag")
    with pytest.raises(TraceError, match=r"is no recording of a plan server: it has neither"):
        score(tmp_path / "bag")


def test_segments_without_requests_are_nothing_to_score(tmp_path: Path) -> None:
    with Bag(tmp_path / "bag") as bag:
        bag.segment(0.0, "a", 0)
    with pytest.raises(TraceError, match="has nothing to score: it has no requests, neither"):
        score(tmp_path / "bag")


def test_a_damaged_message_gets_one_sentence(tmp_path: Path) -> None:
    with Bag(tmp_path / "bag") as bag:
        bag.write(0.0, "/a/segments", "timely_llm/msg/Segment", b"\0\1\0\0\xff\xff\xff\xff")
    with pytest.raises(TraceError, match="is damaged, or of another version of this type"):
        score(tmp_path / "bag")


def test_a_recording_may_not_be_larger_than_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Bag(tmp_path / "bag") as bag:
        bag.plan(0.0, "a")
    for limit in ("MAX_MESSAGES", "MAX_BYTES"):
        with monkeypatch.context() as patch:
            patch.setattr(messages, limit, 5)
            with pytest.raises(TraceError, match="larger than a recording that can be scored"):
                score(tmp_path / "bag")


def test_impossible_values_are_left_out_and_counted(tmp_path: Path) -> None:
    with Bag(tmp_path / "day") as bag:
        bag.plan(0.0, "a")
        bag.request(0.5, "no agent", agent="")
        bag.report(0.6, "a", 77)
        bag.report(0.7, "nobody", FINISHED, 3)
        bag.report(0.7, "a", FINISHED, 4_000_000_000)
        bag.report(0.7, "a", STARTED, 7, epoch=9)
        bag.report(0.8, "a", FINISHED, 1, duration=math.nan)
        bag.step(0.9, math.nan, "a")
        bag.step(0.9, -1.0, "a")
    recording = read_recording(tmp_path / "day")
    (outcome,) = recording.run.outcomes
    assert (outcome.finished, len(outcome.segments)) == (True, 2)
    assert "4 messages are left out: they have impossible values" in recording.notes


_times = st.integers(-999, 10**9).map(float)
_names = st.sampled_from(["a", "a+1", "", "b\0", "x" * 300])
_places = st.sampled_from([0, 1, 2**32 - 1])
_numbers = st.floats(allow_nan=True, allow_infinity=True)


@given(st.data())
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_no_bag_can_do_worse_than_an_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("bags") / "bag"
    with Bag(folder) as bag:
        for _ in range(data.draw(st.integers(1, 25))):
            at_s, name = data.draw(_times), data.draw(_names)
            index, epoch = data.draw(_places), data.draw(_places)
            match data.draw(st.integers(0, 6)):
                case 0:
                    topic = data.draw(st.sampled_from(["requests", "plan_requests"]))
                    bag.request(at_s, name, topic=topic, agent=data.draw(_names))
                case 1:
                    bag.segment(at_s, name, index, epoch, data.draw(st.booleans()))
                case 2:
                    state = data.draw(st.integers(0, 255))
                    bag.report(at_s, name, min(state, 9), index, epoch, data.draw(_numbers))
                case 3:
                    bag.result(at_s, name, data.draw(st.sampled_from(ErrorCode)), epoch)
                case 4:
                    bag.step(at_s, data.draw(_numbers), name, "a")
                case 5:
                    kind = data.draw(st.sampled_from(KINDS))
                    bytes_ = b"\0\1\0\0" + data.draw(st.binary(max_size=60))
                    bag.write(at_s, f"/x/{kind}", f"timely_llm/msg/{kind}", bytes_)
                case _:
                    bag.line(at_s, data.draw(st.text(max_size=20)))
    try:
        document = score(folder)
    except TraceError as error:
        assert "\n" not in str(error)
    else:
        assert only(document)["requests"] >= 1
        assert RunDocument.model_validate(document.model_dump()) == document


@given(place=st.floats(0, 1), value=st.integers(0, 255), length=st.integers(0, 8))
@settings(deadline=None, max_examples=150)
def test_no_damaged_file_can_do_worse_than_an_error(
    good: bytes, tmp_path_factory: pytest.TempPathFactory, place: float, value: int, length: int
) -> None:
    at = int(place * (len(good) - 8))
    file = tmp_path_factory.getbasetemp() / "damaged.mcap"
    file.write_bytes(good[:at] + struct.pack("B", value) * length + good[at + length :])
    try:
        score(file)
    except TraceError as error:
        assert "\n" not in str(error)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("good") / "bag"
    with Bag(folder) as bag:
        bag.line(0.0, request_line(job("a")))
        bag.plan(0.0, "a")
        bag.step(0.2, 0.1, "a")
    (file,) = folder.glob("*.mcap")
    return file.read_bytes()


@given(st.data())
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_no_bag_of_conversations_can_do_worse_than_an_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("bags") / "bag"
    index = st.sampled_from([0, 1, 7, 2**32 - 1])
    with TalkBag(folder) as bag:
        for _ in range(data.draw(st.integers(1, 25))):
            at_s, name = float(data.draw(st.integers(-999, 10**9))), data.draw(_names)
            match data.draw(st.integers(0, 4)):
                case 0:
                    number = data.draw(st.sampled_from(["ttft", "deadline", "weight", "tpot"]))
                    topic = data.draw(st.sampled_from(["streams", "stream_requests"]))
                    fields = {number: data.draw(_numbers), "agent": data.draw(_names)}
                    bag.ask(at_s, name, topic, **fields, words_per_s=data.draw(_numbers))
                case 1:
                    bag.token(at_s, name, data.draw(index), data.draw(st.text(max_size=9)))
                case 2:
                    tokens = data.draw(index)
                    bag.ended(at_s, name, data.draw(st.sampled_from(ErrorCode)), tokens)
                case 3:
                    kind = data.draw(st.sampled_from(["StreamChunk", "StreamRequest"]))
                    data_ = b"\0\1\0\0" + data.draw(st.binary(max_size=60))
                    bag.write(at_s, f"/x/{kind}", f"timely_llm/msg/{kind}", data_)
                case _:
                    bag.request(at_s, name)
    for read in (score, recorded_trace, read_trace):
        try:
            made = read(folder)
        except TraceError as error:
            assert "\n" not in str(error)
        else:
            if isinstance(made, RunDocument):
                assert RunDocument.model_validate(made.model_dump()) == made
