"""TalkClient and `timely-llm chat` against a real server: what users see."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from test.system.conftest import ROOT, Start, ros_environment
from test.system.ros_client import serving
from test.system.ros_talker import SLOW, Talker
from timely_llm.core.errors import RequestError
from timely_llm.core.request import ChatMessage, ErrorCode
from timely_llm.core.slo import Slo
from timely_llm.engines.example_script import NO_MODEL
from timely_llm.robots.client.pending import PlanClientError, PlanTimeout
from timely_llm.ros.client.talk import TalkClient

WAIT_S = 30.0
CHAT = [sys.executable, str(ROOT / "scripts" / "timely-llm"), "chat", "--wait", "30"]
HOW = r"first token \d+\.\d\d s, \d+\.\d tokens/s, largest gap \d\.\d\d s"


@pytest.fixture(scope="module")
def server(start: Start, domain: int) -> Iterator[Talker]:
    """A server with answers that take seconds, and its client."""
    with serving(start, Talker, domain, **SLOW) as made:
        yield made


@pytest.fixture
def client(server: Talker, domain: int) -> Iterator[TalkClient]:
    with TalkClient("ann", domain=domain, find_s=WAIT_S) as made:
        yield made


def test_the_text_comes_piece_by_piece(client: TalkClient) -> None:
    answer = client.converse([ChatMessage("system", "Be short."), ChatMessage("user", "Hi.")])
    pieces = list(answer.chunks(WAIT_S))
    result = answer.result(WAIT_S)
    assert "".join(pieces) == result.text == NO_MODEL
    assert len(pieces) > 5
    assert (result.error_code, result.agent) == (ErrorCode.NONE, "ann")


def test_an_answer_can_be_stopped(client: TalkClient, server: Talker) -> None:
    answer = client.converse("Hi.", conversation="stopped")
    came = next(answer.chunks(WAIT_S))
    assert answer.cancel(WAIT_S)
    assert answer.result().text.startswith(came)
    assert server.listed() == {}
    # The text so far is part of the conversation.
    later = client.converse("Go on.", conversation="stopped", turn=1, max_tokens=1)
    assert later.result(WAIT_S).kept_tokens > 0


def test_service_levels_by_name_and_of_ones_own(client: TalkClient, server: Talker) -> None:
    client.converse("Hi.", "voice", max_tokens=1, request_id="named").result(WAIT_S)
    own = Slo(ttft_s=0.5, tpot_s=0.25, deadline_s=60.0)
    client.converse("Hi.", slo=own, max_tokens=1, weight=2.0, request_id="own").result(WAIT_S)
    named, made = server.accepted("named"), server.accepted("own")
    assert (named.tpot, named.words_per_s, named.weight) == (0.125, 3.0, 1.0)
    assert (made.ttft, made.tpot, made.deadline, made.weight) == (0.5, 0.25, 60.0, 2.0)


def test_refusals_are_one_sentence(client: TalkClient) -> None:
    with pytest.raises(RequestError, match="the last message must be the user's"):
        client.converse(" ")
    with pytest.raises(RequestError, match="seed must be 0 to 4294967295, not -1"):
        client.converse("Hi.", seed=-1)
    with pytest.raises(RequestError, match=r"holds .\\ud800. at place"):
        client.converse("Hi \ud800.")
    with pytest.raises(PlanClientError, match="unknown service level 'quick'") as raised:
        list(client.converse("Hi.", "quick").chunks(WAIT_S))
    assert raised.value.code is ErrorCode.INVALID_REQUEST


def test_several_threads_may_use_one_client(client: TalkClient) -> None:
    with ThreadPoolExecutor(4) as pool:
        answers = pool.map(lambda i: client.converse(f"{i}?", max_tokens=i + 1), range(4))
        results = [answer.result(WAIT_S) for answer in answers]
    assert [result.generated_tokens for result in results] == [1, 2, 3, 4]
    assert {result.error_code for result in results} == {ErrorCode.NONE}


def test_closing_cancels_what_is_open(server: Talker, domain: int) -> None:
    client = TalkClient("leaver", domain=domain)
    client.converse("Hi.", request_id="left")
    client.close()
    assert server.ended("left").error_code == ErrorCode.CANCELED
    with pytest.raises(PlanClientError, match="the client is closed"):
        client.converse("Hi.")


def test_a_missing_server_is_named(domain: int) -> None:
    with (
        TalkClient("ann", server="absent", domain=domain) as client,
        pytest.raises(PlanTimeout, match=r"no plan server /absent answered within 0.2 s"),
    ):
        client.wait_for_server(0.2)


def chat(domain: int, words: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Say something to the chat through a pipe."""
    return subprocess.run(
        [*CHAT, *arguments], input=words, env=os.environ | ros_environment(domain),
        capture_output=True, text=True, timeout=60.0, check=False,
    )  # fmt: skip


def test_chat_through_a_pipe(server: Talker, domain: int) -> None:
    told = chat(domain, "Hi.\nAnd now?\n", "--max-tokens", "4", "--slo-class", "voice")
    assert (told.returncode, told.stdout) == (0, "This is \nThis is \n")
    for line in told.stderr.splitlines():
        assert re.fullmatch(HOW + r", SLO (met|missed), cut after 4 tokens", line)

    def kept() -> list[int]:
        return [r.kept_tokens for r in server.results if r.agent.startswith("chat-")]

    server.until(lambda: len(kept()) == 2)
    assert kept()[0] == 0 < kept()[1]


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["--slo-class", "quick"], 1, "unknown service level 'quick': choose one of text, voice"),
        (["--server", "absent", "--wait", "0.5"], 1, "no plan server /absent answered within 0.5"),
        (["--max-tokens", "-1"], 2, "-1 is not in the range"),
    ],
)
def test_what_chat_cannot_do_gets_one_sentence(
    server: Talker, domain: int, arguments: list[str], status: int, words: str
) -> None:
    told = chat(domain, "Hi.\n", *arguments)
    assert (told.returncode, told.stdout) == (status, "")
    assert told.stderr.startswith("timely-llm: ")
    assert words in told.stderr
    assert len(told.stderr.splitlines()) == 1


class Terminal:
    """A chat in a terminal of its own."""

    def __init__(self, domain: int) -> None:
        self.shown = ""
        self._pid, self._terminal = pty.fork()
        if not self._pid:
            os.execve(CHAT[0], CHAT, {**os.environ, **ros_environment(domain), "TERM": "dumb"})

    def type(self, words: str) -> None:
        self.shown = ""
        os.write(self._terminal, words.encode())

    def until(self, pattern: str) -> None:
        """Wait until the terminal shows something new."""
        end_s = time.monotonic() + WAIT_S
        while not re.search(pattern, self.shown):
            assert time.monotonic() < end_s, self.shown
            if select.select([self._terminal], [], [], 0.1)[0]:
                self.shown += os.read(self._terminal, 4096).decode(errors="replace")

    def status(self, key: str = "") -> int:
        """Wait for the end, pressing a key now and then, and return the exit status.

        Python hears an interrupt between the prompt and the wait for a key only after the next key.
        """
        now = press_s = time.monotonic()
        end_s = now + WAIT_S
        while not (ended := os.waitpid(self._pid, os.WNOHANG))[0]:
            now = time.monotonic()
            assert now < end_s, self.shown
            if key and now >= press_s:  # not while it ends: that takes half a second
                press_s = now + 3.0
                os.write(self._terminal, key.encode())
            if select.select([self._terminal], [], [], 0.1)[0]:
                with contextlib.suppress(OSError):  # its end
                    self.shown += os.read(self._terminal, 4096).decode(errors="replace")
        self._pid = 0
        return os.waitstatus_to_exitcode(ended[1])

    def close(self) -> None:
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        os.close(self._terminal)


@pytest.fixture
def terminal(server: Talker, domain: int) -> Iterator[Terminal]:
    made = Terminal(domain)
    made.until("> $")
    yield made
    made.close()


def test_an_interrupt_ends_the_answer_and_not_the_chat(terminal: Terminal, server: Talker) -> None:
    terminal.type("Tell me.\n")
    terminal.until("This")
    terminal.type("\x03")
    terminal.until(HOW + ", canceled")
    assert server.listed() == {}
    terminal.type("Go on.\n")
    terminal.until(re.escape(NO_MODEL))
    terminal.until(r"SLO (met|missed)[^>]*> $")
    assert terminal.status("\x03") == 0


@pytest.mark.parametrize("end", ["\x04", "/quit\n"])
def test_the_ways_to_end_a_chat(terminal: Terminal, end: str) -> None:
    terminal.type(end)
    assert terminal.status() == 0
