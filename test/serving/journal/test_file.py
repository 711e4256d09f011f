"""The file of a recovery journal: torn, damaged, foreign, locked, too large, on a full disk."""

import json
import logging
import math
import os
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from test.serving.scripted import request
from timely_llm.core.errors import ConfigurationError, InUseError
from timely_llm.core.generation import PlanTally
from timely_llm.core.request import (
    ChatMessage,
    ErrorCode,
    PlanRequest,
    PlanResult,
    ReportState,
    RequestMode,
    StreamRequest,
    StreamResult,
)
from timely_llm.core.segment import Segment
from timely_llm.core.slo import Slo
from timely_llm.core.time_utility import TimeUtility
from timely_llm.serving.journal import file as under_test
from timely_llm.serving.journal.file import JournalFile, line_of
from timely_llm.serving.journal.saved import (
    SavedConversation,
    fields_of,
    head_of,
    report_fields,
    segment_fields,
)

TALLY = PlanTally(segments=1, response_s=math.inf, waiting_s=-math.inf, utility=0.5)
SEGMENT = segment_fields(Segment("r", "robot", 0, "é;"), [7], TALLY)
REQUESTS = [
    request("plan", TimeUtility(2.0, -1.0, 3.0), closed_loop=True, epoch=4, seed=9),
    request("given", given_plan="mf(50);", mode=RequestMode.AUTO),
    StreamRequest("say", "ann", (ChatMessage("user", "What?"),), Slo(2.0, 0.2, 9.0), 3.0, "c"),
    StreamRequest("endless", "ann", (ChatMessage("user", "☃"),)),
]
RESULT = StreamResult("endless", "ann", ErrorCode.CANCELED, "enough", text="é", ttft_s=0.5)


def write(path: Path) -> bytes:
    """Write a journal; return its bytes."""
    journal = JournalFile(path, "model")
    for one in REQUESTS:
        skill_set = ("drone", "a: text\n") if isinstance(one, PlanRequest) else None
        journal.accepted(one, skill_set)
    journal.write("plan", SEGMENT)
    journal.write("plan", report_fields("started", 0))
    journal.write("say", fields_of({"kind": "begun"}))
    journal.ended("given")
    journal.write("given", SEGMENT)  # has ended
    journal.accepted(REQUESTS[3])
    journal.ended("endless", RESULT)
    said = ChatMessage("user", "☃")
    journal.keep(SavedConversation("endless", "ann", "c", (said, said), 1))
    journal.keep(SavedConversation("r2", "ann", "c", (said, said, said), 2))
    journal.accepted(REQUESTS[3])
    journal.close()
    return path.read_bytes()


def test_requests_come_back_as_they_were(tmp_path: Path) -> None:
    write(tmp_path / "journal")
    journal = JournalFile(tmp_path / "journal", "model")
    assert [one.request for one in journal.saved.values()] == [
        one for one in REQUESTS if one.request_id != "given"
    ]
    plan, said = journal.saved["plan"], journal.saved["say"]
    assert (plan.published, plan.steps, plan.started) == ({0: ("é;", False)}, [[7]], 0)
    assert (plan.begun, said.begun, journal.saved["endless"].begun) == (True, True, False)
    assert (plan.epoch, journal.starts, journal.skill_sets) == (4, 2, {"drone": "a: text\n"})
    assert plan.tally == (1, math.inf, -math.inf, 0.5)
    snow = ChatMessage("user", "☃")
    assert journal.conversations == {
        ("ann", "c"): SavedConversation("r2", "ann", "c", (snow, snow, snow), 2)
    }
    assert journal.earlier_results(7.0).get("endless", 7.0) == RESULT
    journal.close()


def test_results_are_bounded_in_number_and_age(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(under_test, "SPARE_BYTES", 4000)
    path = tmp_path / "journal"
    journal = JournalFile(path, "model", 60.0, 2)
    ends = [PlanResult(f"r{n}", "rover", ErrorCode.NONE, "", plan="mf(50);") for n in range(40)]
    ends.append(PlanResult("busy", "rover", ErrorCode.BUSY, "later"))
    for one in ends:
        journal.accepted(request(one.request_id))
        journal.ended(one.request_id, one)
        assert path.stat().st_size < 8000
    journal.close()
    again = JournalFile(path, "model", 60.0, 2)
    results = again.earlier_results(0.0)
    assert results.values(0.0) == [ends[38], ends[39]]
    again.close()
    now = time.time()
    later = JournalFile(path, "model", 60.0, 2, wall_s=lambda: now + 50.0)
    assert len(later.earlier_results(0.0)) == 2
    assert later.earlier_results(0.0).get("r39", 30.0) is None, "60 s in all"
    later.close()
    gone = JournalFile(path, "model", 60.0, 2, wall_s=lambda: now + 70.0)
    assert not gone.earlier_results(0.0)
    gone.close()
    none = JournalFile(tmp_path / "none", "model", 0.0)
    none.accepted(request("r"))
    none.ended("r", RESULT)
    assert b"enough" not in (tmp_path / "none").read_bytes()
    none.close()


def test_a_conversation_takes_as_much_of_the_file_as_its_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(under_test, "SPARE_BYTES", 4000)
    path, said = tmp_path / "journal", tuple(ChatMessage("user", f"m{n}") for n in range(60))
    journal = JournalFile(path, "model")
    for n in range(1, 61):
        journal.keep(SavedConversation(f"r{n}", "ann", "c", said[:n], n))
        journal.keep(SavedConversation(f"s{n}", "ann", f"d{n}", said[:1], 1))
        journal.keep_only([("ann", "c")])
    assert path.read_bytes().count(b'"m7"') == 1
    journal.close()
    again = JournalFile(path, "model")
    assert list(again.conversations) == [("ann", "c")]
    assert again.conversations["ann", "c"].messages == said
    again.close()


@settings(deadline=None)
@given(st.data())
def test_a_start_never_fails_whatever_the_file_has(
    tmp_path_factory: Any, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("journal") / "file"
    whole = write(path)
    place = data.draw(st.integers(0, len(whole) - 1))
    torn = data.draw(st.booleans())
    if torn:
        path.write_bytes(whole[:place])
    else:
        flipped = whole[place] ^ (1 << data.draw(st.integers(0, 7)))
        path.write_bytes(whole[:place] + bytes([flipped]) + whole[place + 1 :])
    journal = JournalFile(path, "model")
    aside = Path(f"{path}.set_aside").exists()
    first = whole.index(b"\n") + 1
    if torn:
        assert aside == (0 < place < first - 1)
    elif aside:
        assert not journal.saved
    else:  # the last end of a line is the only byte that may be missing
        assert place == len(whole) - 1
    journal.accepted(request("new"))
    journal.close()
    again = JournalFile(path, "model")
    assert "new" in again.saved
    again.close()


def half_a_character(text: bytes) -> bytes:
    """Return a record with a right checksum that no program can write again as UTF-8."""
    record = b'{"kind":"skill_set","name":"arm","text":"' + text + b'"}'
    return b"%08x %s\n" % (zlib.crc32(record), record)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"notes of mine\n", "it does not begin like a recovery journal"),
        (b"\x00" * 9000, "it does not begin like a recovery journal"),
        (line_of({"kind": "journal", "format": 99}), "another release has written it"),
        (
            line_of({"kind": "journal", "format": 1, "made_with": "other"}),
            "another engine or model",
        ),
        (
            line_of({"kind": "journal", "format": 1, "made_with": "model", "starts": "x"}),
            "its first record is incomplete",
        ),
        (
            line_of({"kind": "journal", "format": 1, "made_with": "model", "starts": 1})
            + line_of({"kind": "plan", "id": "r", "request": {"mode": 7}}),
            "a record cannot be read",
        ),
        (
            line_of({"kind": "journal", "format": 1, "made_with": "model", "starts": 1})
            + half_a_character(rb"\ud800"),
            "surrogates not allowed",
        ),
        (
            line_of({"kind": "journal", "format": 1, "made_with": "model", "starts": 1})
            + half_a_character(b"\xed\xa0\x80"),
            "it is damaged",
        ),
    ],
)
def test_a_file_of_others_is_set_aside_in_one_sentence(
    text: bytes, reason: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "journal"
    path.write_bytes(text)
    with caplog.at_level(logging.ERROR):
        journal = JournalFile(path, "model")
    assert not journal.saved
    assert Path(f"{path}.set_aside").read_bytes() == text
    (record,) = caplog.records
    assert record.getMessage().startswith("the recovery journal is set aside as ")
    assert reason in record.getMessage()
    journal.close()


def test_two_servers_cannot_share_a_journal(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    first = JournalFile(path, "model")
    with pytest.raises(InUseError, match="is in use by another process: give each"):
        JournalFile(path, "model")
    first.close()
    JournalFile(path, "model").close()


@pytest.mark.parametrize("path", ["", "file/journal"])
def test_a_file_that_cannot_be_written_is_refused(path: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match=r"the recovery journal .* cannot be used: "):
        JournalFile(tmp_path / path, "model")


def test_a_full_disk_is_logged_once_and_leaves_no_incomplete_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "journal"
    journal = JournalFile(path, "model")
    journal.accepted(request("r"))
    write_some = os.write
    monkeypatch.setattr(os, "write", lambda fd, text: write_some(fd, text[: len(text) // 2]))
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            journal.write("r", SEGMENT)
    (record,) = caplog.records
    assert record.getMessage().startswith("the recovery journal ends here, and no request goes on")
    assert record.getMessage() == journal.problem
    assert not path.exists()
    monkeypatch.undo()
    journal.close()
    again = JournalFile(path, "model")
    assert not again.saved
    again.close()


def test_records_that_wait_are_written_with_one_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal"
    journal = JournalFile(path, "model")
    writes: list[bytes] = []
    write_all = os.write

    def write(fd: int, text: bytes) -> int:
        writes.append(text)
        return write_all(fd, text)

    monkeypatch.setattr(os, "write", write)
    journal.accepted(request("r"))
    journal.hold()
    journal.write("r", SEGMENT)
    journal.write("r", report_fields("started", 0))
    assert len(writes) == 1, "they wait"
    journal.flush()
    journal.flush()
    assert [one.count(b"\n") for one in writes] == [1, 2]
    journal.write("r", report_fields("finished", 0))
    journal.accepted(request("s"))
    assert [one.count(b"\n") for one in writes] == [1, 2, 2], "an accepted request never waits"
    journal.write("s", SEGMENT)
    journal.release()
    journal.write("s", report_fields("started", 0))
    assert [one.count(b"\n") for one in writes] == [1, 2, 2, 1, 1]
    journal.close()
    again = JournalFile(path, "model")
    assert (again.saved["r"].finished, again.saved["s"].started) == (0, 0)
    again.close()


@pytest.mark.parametrize("sync", [False, True])
def test_with_sync_each_record_is_on_the_disk_when_it_counts(
    sync: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal"
    flushed: list[int] = []
    for name in ("fsync", "fdatasync"):
        flush = getattr(os, name)

        def note(fd: int, flush: Callable[[int], None] = flush) -> None:
            flush(fd)
            flushed.append(path.stat().st_size if path.exists() else 0)

        monkeypatch.setattr(os, name, note)
    journal = JournalFile(path, "model", sync=sync)
    assert len(flushed) == 2 * sync, "the new file, and its name"
    journal.accepted(request("r"))
    journal.write("r", SEGMENT)
    assert flushed[-1:] == [path.stat().st_size] * sync
    journal.ended("r")
    assert flushed[-1:] == [path.stat().st_size] * sync
    journal.close()


def test_the_file_is_as_small_as_what_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(under_test, "SPARE_BYTES", 4000)
    path = tmp_path / "journal"
    journal = JournalFile(path, "model")
    journal.accepted(request("stays"))
    journal.write("stays", SEGMENT)
    for number in range(500):
        journal.accepted(request(f"r{number}"))
        journal.write(f"r{number}", SEGMENT)
        journal.ended(f"r{number}")
        assert path.stat().st_size < 8000
    journal.close()
    again = JournalFile(path, "model")
    assert list(again.saved) == ["stays"]
    assert again.saved["stays"].published == {0: ("é;", False)}
    again.close()


def test_skill_sets_that_no_open_request_uses_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(under_test, "MOST_SKILL_SETS", 3)
    path = tmp_path / "journal"
    journal = JournalFile(path, "model")
    journal.accepted(request("stays"), ("drone", "first"))
    for number in range(20):
        journal.accepted(request(f"r{number}"), (f"set{number}", "text"))
        journal.ended(f"r{number}")
    journal.close()
    again = JournalFile(path, "model")
    assert list(again.skill_sets) == ["drone", "set16", "set17", "set18", "set19"]
    again.close()


NUMBERS = st.integers(0, 1 << 40)
SECONDS = st.floats(allow_nan=False) | st.just(math.inf)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


@given(
    key=TEXTS,
    text=TEXTS,
    tokens=st.lists(NUMBERS, max_size=4),
    final=st.booleans(),
    tally=st.none() | st.builds(PlanTally, segments=NUMBERS, response_s=SECONDS, utility=SECONDS),
)
def test_segments_are_written_as_any_json_encoder_writes_them(
    key: str, text: str, tokens: list[int], final: bool, tally: PlanTally | None
) -> None:
    segment = Segment("r", "robot", 3, text, final=final)
    record: dict[str, Any] = {
        "id": key, "kind": "segment", "epoch": 0, "index": 3, "text": text, "final": final,
        "tokens": tokens,
    }  # fmt: skip
    written = json.loads(head_of(key) + segment_fields(segment, tokens, tally))
    if tally is not None:
        numbers = tally.segments, tally.response_s, tally.waiting_s, tally.utility
        assert written.pop("tally") == pytest.approx(numbers, rel=1e-8)
    assert written == record


@given(key=TEXTS, state=st.sampled_from(ReportState), index=NUMBERS)
def test_reports_are_written_as_any_json_encoder_writes_them(
    key: str, state: ReportState, index: int
) -> None:
    record = {"id": key, "kind": "report", "state": state.name.lower(), "index": index}
    assert json.loads(head_of(key) + report_fields(state.name.lower(), index)) == record
    assert json.loads(head_of(key) + fields_of({"kind": "value"})) == {"id": key, "kind": "value"}
