from __future__ import annotations

from pathlib import Path

import pytest

from timely_llm.traces.imported.azure import read_azure
from timely_llm.traces.model import TraceError

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


def write(folder: Path, text: str) -> Path:
    (folder / "azure.csv").write_text(text, encoding="utf-8")
    return folder / "azure.csv"


@pytest.mark.parametrize(
    "times",
    [
        ("2023-11-16 18:15:46.6805900", "2023-11-16 18:15:50.9951690"),
        ("2024-05-10 23:59:58.680590+00:00", "2024-05-11 00:00:02.995169+00:00"),
    ],
    ids=["2023", "2024"],
)
def test_rows_are_conversations(tmp_path: Path, times: tuple[str, str]) -> None:
    later, sooner = f"{times[1]},374,44\n", f"{times[0]},396,109\n"
    trace = read_azure(write(tmp_path, HEADER + later + "\n" + sooner))
    assert [
        (talk.id, talk.arrival_s, talk.agent, talk.prompt_tokens, talk.output_tokens)
        for talk in trace.conversations
    ] == [("0", 0.0, "person_0", 396, 109), ("1", 4.314579, "person_1", 374, 44)]
    assert trace.jobs == ()


def test_times_keep_their_last_digit_and_their_zone(tmp_path: Path) -> None:
    rows = (
        "2023-11-16 18:15:46.0000001,1,1\n2023-11-16 20:15:47+02:00,1,1\n2023-11-16T18:15:48Z,1,1\n"
    )
    arrivals = [talk.arrival_s for talk in read_azure(write(tmp_path, HEADER + rows)).conversations]
    assert arrivals == [0.0, 0.9999999, 1.9999999]


def test_rows_without_an_answer_and_behind_the_limit_are_left_out(tmp_path: Path) -> None:
    rows = "".join(f"2024-05-10 00:00:0{n},7,{n}\n" for n in range(4))
    trace = read_azure(write(tmp_path, HEADER + rows), limit=3)
    assert [talk.output_tokens for talk in trace.conversations] == [1, 2]
    assert trace.source == "imported from azure.csv, its first 3 rows"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "lacks the column TIMESTAMP"),
        ("TIMESTAMP,ContextTokens\n", "lacks the column GeneratedTokens"),
        (HEADER, "has no conversations"),
        (HEADER + "now,1,1\n", "line 2: 'now' is not a time such as 2024"),
        (HEADER + "2023-02-30 00:00:00,1,1\n", "line 2: day is out of range"),
        (HEADER + "2023-11-16 18:15:46,one,1\n", "line 2: invalid literal for int"),
        (HEADER + "2023-11-16 18:15:46,1\n", "line 2: a column is missing"),
        (HEADER + "2023-11-16 18:15:46,-5,1\n", "conversation 0: prompt_tokens must be 0 to"),
        (HEADER + "x" * 5_000, "line 2 is longer than 1000 characters"),
        (HEADER + "1969-01-01 00:00:00,1,1\n2020-01-01 00:00:00,1,1", "arrival_s must be 0 to"),
    ],
)
def test_what_is_no_such_file_gets_one_sentence(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(TraceError, match=complaint) as error:
        read_azure(write(tmp_path, text))
    assert "\n" not in str(error.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"\xff\xfe\0\0")
    for name in ("a.csv", "b.csv"):
        with pytest.raises(TraceError, match="cannot read the trace"):
            read_azure(tmp_path / name)
