"""Executions are read from CSV, and every mistake in it is named with its line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from test.skills.plans import DRONE
from timely_llm.core.errors import ConfigurationError
from timely_llm.profiling.measurements import MAX_BYTES, Measurement, read_csv

MEASURED = (
    Measurement("mf", (100,), 2.5),
    Measurement("tp", (), 0.0),
    Measurement("g", ("a b",), 3),
)


@pytest.mark.parametrize(
    "text",
    [
        "skill,seconds,arguments\nmf,2.5,100\ntp,0,\ng,3,'a b'\n",
        "robot,skill, Arguments ,seconds\r\nx,mf,100,2.5\r\n\r\nx,tp,,0\r\nx,g,\"'a b'\",3e0\r\n",
        "\ufeffskill,seconds,arg1\nmf,2.5,100\ntp,0\ng,3,a b",
    ],
)
def test_columns_may_come_in_any_order_and_in_two_forms(tmp_path: Path, text: str) -> None:
    (tmp_path / "m.csv").write_text(text, newline="")
    found = read_csv(tmp_path / "m.csv", DRONE)
    assert found.measurements == MEASURED
    assert found.left_out == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no column 'skill': the first line must name the columns skill, seconds and"),
        ("skill,arguments\nmf,100\n", "has no column 'seconds'"),
        ("skill;seconds\nmf;2\n", "has no column 'skill'"),
        ("skill,seconds,arguments,arg1\n", "has both the columns arguments and arg1: use one kind"),
        ("skill,seconds,arg1\n", "has no executions, only a header"),
        ("skill,seconds,arg1\nmf,2,100\nfly,2,100\n", "m.csv, line 3: unknown skill 'fly': drone"),
        ("skill,seconds,arg1\nmf,nan,100\n", "line 2: seconds must be a number from 0 to 3600"),
        ("skill,seconds,arg1\nmf,-1,100\n", "line 2: seconds must be .*, not '-1'"),
        ("skill,seconds,arg1\nmf,,100\n", "line 2: seconds must be .*, not ''"),
        ("skill,seconds,arg1\nmf,1e9,100\n", "line 2: seconds must be .*, not '1e9'"),
        ("skill,seconds,arg1\nmf,2,9\n", "line 2: mf: distance must be 10 to 500 cm, not 9"),
        ("skill,seconds,arg1\nmf,2,\n", "line 2: mf takes 1 arguments, not 0"),
        ("skill,seconds,arguments\nmf,2,'a\n", "line 2: arguments must be numbers, texts in"),
        ('skill,seconds,arg1\nmf,2,"100\n', "is no CSV file: unexpected end of data"),
        ("skill,seconds,arg1\nmf,2," + "x" * 200_000, "is no CSV file: field larger than"),
    ],
)
def test_a_mistake_gets_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "m.csv").write_text(text)
    with pytest.raises(ConfigurationError, match=message) as error:
        read_csv(tmp_path / "m.csv", DRONE)
    assert "\n" not in str(error.value)


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m.csv").write_bytes(b"skill,seconds\n\xff\xfe")
    with pytest.raises(ConfigurationError, match="is no CSV file in UTF-8"):
        read_csv(tmp_path / "m.csv", DRONE)


def test_a_huge_file_is_refused_unread(tmp_path: Path) -> None:
    (tmp_path / "m.csv").touch()
    os.truncate(tmp_path / "m.csv", MAX_BYTES + 1)
    with pytest.raises(ConfigurationError, match="has 256 MiB, at most 256 are read"):
        read_csv(tmp_path / "m.csv", DRONE)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot read .*: No such file"):
        read_csv(tmp_path / "none.csv", DRONE)


@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.binary(max_size=60) | st.text("mf,g\"'\n\r1-. ", max_size=40).map(str.encode))
def test_any_file_is_read_or_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "m.csv").write_bytes(b"skill,seconds,arguments\n" + content)
    try:
        found = read_csv(tmp_path / "m.csv", DRONE)
    except ConfigurationError as error:
        assert "\n" not in str(error)
    else:
        assert all(m.skill in DRONE.skills for m in found.measurements)
