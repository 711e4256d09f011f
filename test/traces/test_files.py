"""Traces are stored and read without loss; what is no trace gets one sentence."""

from __future__ import annotations

import dataclasses
import json
import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from test.examples import examples
from test.traces.workloads import SMALL, traces
from timely_llm.traces import files, lines
from timely_llm.traces.files import read_trace, write_trace
from timely_llm.traces.model import Trace, TraceError

NAMES = ("trace.jsonl", "trace.mcap", "bag")


@pytest.mark.parametrize("name", NAMES)
@given(trace=traces())
@examples(60)
def test_any_trace_comes_back_as_it_was(name: str, trace: Trace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_trace(trace, Path(folder) / name)
        assert read_trace(Path(folder) / name) == trace


def test_a_file_is_for_people(tmp_path: Path) -> None:
    write_trace(SMALL, tmp_path / "small.jsonl")
    header, *requests = (tmp_path / "small.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(header) == {
        "kind": "trace", "version": 1, "name": "small", "source": "by hand", "jobs": 2,
        "conversations": 1,
    }  # fmt: skip
    talk, cat, dog = map(json.loads, requests)
    assert (talk["kind"], talk["arrival_s"], talk["deadline_s"]) == ("conversation", 0.05, 30.0)
    assert cat["skill_times"] == [["s", 3.7132], ["g", 2.5]]
    assert dog["time_utility"]["ert_s"] == 0.2
    assert "🐕" in requests[2]


def test_an_older_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    for name in NAMES[:2]:
        write_trace(Trace("older"), tmp_path / name)
        write_trace(SMALL, tmp_path / name)
        assert read_trace(tmp_path / name) == SMALL
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(NAMES[:2])


@pytest.mark.parametrize("name", NAMES[:2])
def test_a_file_of_another_kind_is_not_replaced(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("mine")
    with pytest.raises(TraceError, match="is there and is not"):
        write_trace(SMALL, path)
    assert path.read_text() == "mine"


def test_a_bag_needs_a_new_folder(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="exists: a bag is written to a new folder"):
        write_trace(SMALL, tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_that_is_missing_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(TraceError, match=r"cannot write .*: (No such file|.*no is not a)"):
        write_trace(SMALL, tmp_path / "no" / name)
    with pytest.raises(TraceError, match="there is no trace"):
        read_trace(tmp_path / "no" / name)


def test_the_name_says_the_kind(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"ends with \.jsonl .*, not \.txt"):
        write_trace(SMALL, tmp_path / "trace.txt")


JOB = json.loads(lines.request_line(SMALL.jobs[0]))
HEADER = lines.header_line(Trace("one", "", SMALL.jobs[:1]))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "is empty: the first line of a trace is its header"),
        ("hello", r"line 1: it is not valid JSON"),
        ("{}", r"line 1: the field 'kind' is missing"),
        (json.dumps(JOB), "line 1: the first line of a trace is its header"),
        (HEADER.replace('"version":1', '"version":2'), "of version '2', this reads version 1"),
        (HEADER, "has 0 jobs and 0 conversations, its header says 1 and 0"),
        (f"{HEADER}\n{HEADER}", "line 2: a second header"),
        (f"{HEADER}\n{json.dumps(JOB)[:-9]}", "line 2: it is not valid JSON"),
        (f"{HEADER}\n" + json.dumps(JOB | {"arrival_s": "1"}), r"line 2 at job\.arrival_s|arriv"),
        (f"{HEADER}\n" + json.dumps(JOB | {"color": 1}), r"line 2 at .*color"),
        (
            f"{HEADER}\n" + json.dumps(JOB | {"a\x1b\nb": 1}),
            r"line 2 at .*a  b: the field is unknown",
        ),
        (f"{HEADER}\n" + json.dumps(JOB | {"arrival_s": -1}), "line 2: a: arrival_s must be 0"),
        (f"{HEADER}\n" + json.dumps(JOB | {"skill_times": [["s", 1e9]]}), "line 2: s: seconds"),
        (
            f"{HEADER}\n"
            + json.dumps(JOB | {"time_utility": {"beta": -1, "alpha": 0, "ert_s": 0}}),
            "line 2: time utility: beta must be",
        ),
        (f"{HEADER}\n" + "[" * 100_000, "line 2: it is not valid JSON"),
        (f"{HEADER}\n" + "x" * 300_000, "line 2 is longer than 262144 bytes"),
        ("\xff\xfe", "line 1: it is not valid JSON"),
    ],
)
def test_a_file_that_is_no_trace_gets_one_sentence(
    tmp_path: Path, text: str, complaint: str
) -> None:
    (tmp_path / "a.jsonl").write_text(text, encoding="latin-1")
    with pytest.raises(TraceError, match=complaint) as error:
        read_trace(tmp_path / "a.jsonl")
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400


def test_files_have_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_trace(SMALL, tmp_path / "a.jsonl")
    monkeypatch.setattr(lines, "MAX_REQUESTS", 2)
    with pytest.raises(TraceError, match="a trace may have 2 requests"):
        read_trace(tmp_path / "a.jsonl")
    monkeypatch.setattr(files, "MAX_FILE_BYTES", 10)
    with pytest.raises(TraceError, match="bytes, a trace may have 10"):
        read_trace(tmp_path / "a.jsonl")


def test_a_line_that_no_reader_takes_is_not_written(tmp_path: Path) -> None:
    job = lines.request_line(SMALL.jobs[0])
    assert len(job) < lines.MAX_LINE_BYTES
    many = Trace("", "", (dataclasses.replace(SMALL.jobs[0], segment_tokens=(1,) * 200_000),))
    with pytest.raises(TraceError, match="a would take more than 262144 bytes"):
        write_trace(many, tmp_path / "a.jsonl")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", NAMES[:2])
@given(seed=st.integers(0, 2**32))
@examples(150,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
def test_damage_never_gets_further_than_a_sentence(tmp_path: Path, name: str, seed: int) -> None:
    """Bytes are changed, or the end is cut off: it is the same trace, another, or none."""
    rng = random.Random(seed)
    path = tmp_path / name
    path.unlink(missing_ok=True)  # a damaged one may be of no kind that is replaced
    write_trace(SMALL, path)
    content = bytearray(path.read_bytes())
    for _ in range(rng.randint(0, 4)):
        content[rng.randrange(len(content))] = rng.randrange(256)
    if rng.random() < 0.5:
        del content[rng.randrange(len(content)) :]
    path.write_bytes(content)
    try:
        read_trace(path)
    except TraceError as error:
        assert "\n" not in str(error)
