"""`timely-llm chat` without a server."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner

from timely_llm.cli import chat as command
from timely_llm.core.errors import TimelyError
from timely_llm.core.request import ErrorCode, StreamResult

RESULT = StreamResult(
    "r", "me", ErrorCode.NONE, "", "Hello.", ttft_s=0.254, tpot_s=0.1, largest_gap_s=0.3,
    slo_met=True, generated_tokens=6,
)  # fmt: skip


class Server:
    """A client and a dialogue in one: says what it hears, and fails at a word."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def wait_for_server(self, timeout_s: float) -> None:
        self.heard.append(f"waited {timeout_s:g} s at most")

    def say(self, words: str, timeout_s: float) -> Iterator[str]:
        self.heard.append(words)
        yield words.upper()
        if "fail" in words:
            raise TimelyError("it failed")
        if "stop" in words:
            raise KeyboardInterrupt

    def finish(self) -> StreamResult:
        if "late" in self.heard[-1]:
            raise KeyboardInterrupt
        return RESULT

    def begin_anew(self) -> None:
        self.heard.append("anew")


def talk(monkeypatch: pytest.MonkeyPatch, text: str) -> Server:
    """Send these lines through a pipe."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode("latin-1"))))
    server: Any = Server()
    command.Chat(server, server, timeout_s=1.0, wait_s=2.0).run()
    heard: Server = server
    return heard


def test_a_question_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server = talk(monkeypatch, "one\n\n /new \ntwo\n/quit\nthree\n")
    waited = "waited 2 s at most"
    assert server.heard == [waited, "one", "anew", waited, "two"]
    out, aside = capsys.readouterr()
    assert out == "ONE\nTWO\n"
    assert aside.splitlines() == [
        command.summary(RESULT), "a new conversation", command.summary(RESULT),
    ]  # fmt: skip


def test_the_end_of_the_input_ends_it_also_without_a_line_break(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    talk(monkeypatch, "one\ntwo")
    assert capsys.readouterr().out == "ONE\nTWO\n"


def test_bytes_that_are_no_text_do_not_end_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server = talk(monkeypatch, "\xff\n")
    assert server.heard[-1] == "\N{REPLACEMENT CHARACTER}"
    assert capsys.readouterr().out == "\N{REPLACEMENT CHARACTER}\n"


def test_an_interrupt_ends_the_answer_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    talk(monkeypatch, "stop\ntwo\n")
    assert capsys.readouterr().out == "STOP\nTWO\n"


def test_an_interrupt_that_comes_late_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    talk(monkeypatch, "late\ntwo\n")
    assert capsys.readouterr().out == "LATE\nTWO\n"


def test_the_second_interrupt_ends_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(KeyboardInterrupt):
        talk(monkeypatch, "stop, late\ntwo\n")
    assert capsys.readouterr().out == "STOP, LATE\n"


def test_without_a_terminal_an_error_ends_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(TimelyError, match="it failed"):
        talk(monkeypatch, "fail\ntwo\n")
    assert capsys.readouterr().out == "FAIL\n"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "first token 0.25 s, 10.0 tokens/s, largest gap 0.30 s, SLO met"),
        ({"slo_met": False}, "first token 0.25 s, 10.0 tokens/s, largest gap 0.30 s, SLO missed"),
        ({"tpot_s": 0.0, "cut": True, "generated_tokens": 1},
         "first token 0.25 s, SLO met, cut after 1 tokens"),
        ({"error_code": ErrorCode.CANCELED, "slo_met": False},
         "first token 0.25 s, 10.0 tokens/s, largest gap 0.30 s, canceled"),
        ({"ttft_s": -1.0}, "canceled before the first token"),
    ],
)  # fmt: skip
def test_a_line_shows_how_an_answer_came(fields: dict[str, Any], words: str) -> None:
    assert command.summary(replace(RESULT, **fields)) == words


def test_a_model_does_not_command_the_terminal() -> None:
    assert command.printable("a\x1b[2Jb\x07\r\tc\n\u202eé") == "a[2Jb\tc\né"


def test_every_option_is_described() -> None:
    shown = CliRunner().invoke(command.chat, ["--help"]).output
    for option in ("--server", "--slo-class", "--system", "--max-tokens", "--temperature"):
        assert option in shown
