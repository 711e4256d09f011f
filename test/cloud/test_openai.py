"""A cloud over HTTP, and everything that a network can do to it."""

from __future__ import annotations

import json
import logging
import math
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from test.cloud.asking import BOUND_S, Asking, question
from test.cloud.bad_server import BadServer, Behaviour, Visit, words
from timely_llm.cloud import chat_completions
from timely_llm.cloud.contract import CloudWords

WHOLE = (words("Tea "), words("cools.", "stop"))
USAGE = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4, "more": None}}


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_completions, "PAUSES_S", (0.001, 0.001))


@pytest.fixture
def threads() -> Iterator[None]:
    before = threading.active_count()
    yield
    assert threading.active_count() == before


@contextmanager
def site(behaviour: Behaviour, **more: Any) -> Iterator[tuple[BadServer, Asking]]:
    """A server of one behaviour, and a client of it."""
    host = "http://127.0.0.1"
    with BadServer(behaviour) as server, Asking(f"{host}:{server.port}", **more) as asking:
        yield server, asking


def answer(behaviour: Behaviour, timeout_s: float = 30.0, **more: Any) -> tuple[str, str]:
    """Return the words of an answer, and its problem after the name of the cloud."""
    with (
        BadServer(behaviour) as server,
        Asking(f"http://127.0.0.1:{server.port}", **more) as asking,
    ):
        said, end = asking.answer(question(timeout_s=timeout_s))
        name = f"the cloud at 127.0.0.1:{server.port} "
        assert not end.error or end.error.startswith(name)
        assert end.error.isprintable() and len(end.error) < 700
        return said, end.error.removeprefix(name)


def test_an_answer_comes_word_by_word_with_its_counts(threads: None) -> None:
    go_on = threading.Event()

    def behaviour(visit: Visit) -> None:
        visit.stream(words(None), words("Tea "), end=False)
        assert go_on.wait(BOUND_S)
        visit.events(words("cools."), words(None, "stop"), USAGE, "[DONE]")

    with BadServer(behaviour) as server, Asking(f"http://localhost:{server.port}") as asking:
        asking.ask(question())
        asking.wait(lambda: bool(asking.events))
        assert [event.text for event in asking.events if isinstance(event, CloudWords)] == ["Tea "]
        go_on.set()
        asking.wait(lambda: bool(asking.ends))
        assert asking.cloud.next_s() == math.inf
    [end] = asking.ends
    assert (end.error, end.prompt_tokens, end.tokens) == ("", 9, 4)
    assert [event.at_s for event in asking.events] == sorted(event.at_s for event in asking.events)
    [visit] = server.visits
    assert visit.head.startswith("POST /v1/chat/completions HTTP/1.1")
    assert visit.body == {
        "model": "large",
        "messages": [{"role": "user", "content": "Why?"}],
        "max_tokens": 32,
        "temperature": 0.0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_words_are_counted_where_the_cloud_does_not() -> None:
    with site(lambda visit: visit.stream(*WHOLE)) as (_, asking):
        said, end = asking.answer()
    assert (said, end.error, end.prompt_tokens, end.tokens) == ("Tea cools.", "", 0, 2)


@pytest.mark.parametrize(
    ("line", "retried"),
    [
        ("400 Bad Request", False),
        ("401 Unauthorized", False),
        ("404 Not Found", False),
        ("408 Request Timeout", True),
        ("429 Too Many Requests", True),
        ("500 Internal Server Error", True),
        ("503 Service Unavailable", True),
    ],
)
def test_a_refusal_has_the_cloud_s_words(line: str, retried: bool) -> None:
    def behaviour(visit: Visit) -> None:
        visit.status(line, '{"error": {"message": "no\\nsuch \\u202e thing"}}')

    said, problem = answer(behaviour)
    tries = "; it was asked 3 times" if retried else ""
    shown = "'no\\nsuch \\u202e thing'"
    assert (said, problem) == ("", f"refused the question (HTTP {line[:3]}): {shown}{tries}")


@pytest.mark.parametrize("line", ["429 Busy", "500 Broken", ""])
def test_a_cloud_that_recovers_is_asked_again(line: str) -> None:
    def behaviour(visit: Visit) -> None:
        if visit.number == 2:
            visit.stream(*WHOLE)
        elif line:
            visit.status(line, retry_after="0")

    assert answer(behaviour) == ("Tea cools.", "")


@pytest.mark.parametrize("after", ["100", "1e99", "inf", "Fri, 31 Dec 2100 23:59:59 GMT"])
def test_a_pause_beyond_the_question_s_time_ends_it_at_once(after: str) -> None:
    _, problem = answer(lambda visit: visit.status("429 Busy", "later", retry_after=after))
    assert problem == "refused the question (HTTP 429): 'later'"


@pytest.mark.parametrize(
    "after", ["-1", "nan", "soon", "", "Fri, 31 Dec 1999 23:59:59 GMT", "1 2 3"]
)
def test_a_pause_that_is_none_is_not_waited_for(after: str) -> None:
    def behaviour(visit: Visit) -> None:
        if visit.number:
            visit.stream(*WHOLE)
        visit.status("503 Busy", retry_after=after)

    assert answer(behaviour) == ("Tea cools.", "")


def test_after_its_first_word_nothing_is_asked_again() -> None:
    with site(lambda visit: visit.stream(words("Tea "), end=False)) as (server, asking):
        said, end = asking.answer()
    assert said == "Tea " and end.tokens == 1
    assert end.error.endswith("ended its answer without a reason, so a part may be missing")
    assert len(server.visits) == 1


def slow_bytes(visit: Visit) -> None:
    visit.stream(end=False)
    while not visit.over.wait(0.01):
        visit.send(": still here\n\n")


def slow_headers(visit: Visit) -> None:
    visit.send("HTTP/1.1 200 OK\r\n")
    while not visit.over.wait(0.01):
        visit.send("x")


def never_begins(visit: Visit) -> None:
    visit.stream(words(None), words(""), end=False)
    visit.hang()


def stops(visit: Visit) -> None:
    visit.stream(words("Tea "), end=False)
    visit.hang()


def goes_on(visit: Visit) -> None:
    visit.stream(end=False)
    while not visit.over.wait(0.01):
        visit.events(words("tea "))


@pytest.mark.parametrize(
    ("behaviour", "more", "problem"),
    [
        (Visit.hang, {"first_token_s": 0.1}, "did not begin its answer within 0.1 s"),
        (Visit.hang, {"timeout_s": 0.1}, "did not answer within 0.1 s"),
        (slow_headers, {"first_token_s": 0.1}, "did not begin its answer within 0.1 s"),
        (slow_bytes, {"first_token_s": 0.1}, "did not begin its answer within 0.1 s"),
        (never_begins, {"first_token_s": 0.1}, "did not begin its answer within 0.1 s"),
        (stops, {"silence_s": 0.1}, "went silent for 0.1 s within its answer"),
        (goes_on, {"timeout_s": 0.3}, "did not answer within 0.3 s"),
    ],
)
def test_time_is_bounded(behaviour: Behaviour, more: dict[str, float], problem: str) -> None:
    assert answer(behaviour, **more)[1] == problem


def test_the_question_s_own_time_is_bounded() -> None:
    assert answer(Visit.hang, timeout_s=0.1)[1] == "did not answer within 0.1 s"
    assert answer(Visit.hang, timeout_s=0.0)[1] == "did not answer within 0 s"


def endless_headers(visit: Visit) -> None:
    visit.send("HTTP/1.1 200 OK\r\n")
    for _ in range(100_000):
        visit.send("x-more: " + "y" * 1000 + "\r\n")


def endless_line(visit: Visit) -> None:
    visit.stream(end=False)
    for _ in range(100_000):
        visit.send("data: " + "y" * 1000)


def endless_words(visit: Visit) -> None:
    visit.stream(end=False)
    for _ in range(100_000):
        visit.events(words("tea " * 100))


def endless_events(visit: Visit) -> None:
    visit.stream(end=False)
    for _ in range(100_000):
        visit.events({"choices": [], "filler": "y" * 1000})


def body_of_100_mb(visit: Visit) -> None:
    visit.send("HTTP/1.1 500 X\r\ncontent-length: 100000000\r\n\r\n")
    for _ in range(100):
        visit.send(b"y" * 1_000_000)


@pytest.mark.parametrize(
    ("behaviour", "problem"),
    [
        (endless_headers, "broke off before its answer: "),
        (endless_line, "sent an event of more than 262,144 bytes"),
        (endless_words, "sent more characters than max_tokens can have"),
        (endless_events, "sent more than 393,216 bytes"),
        (body_of_100_mb, "refused the question (HTTP 500): 'yyy"),
    ],
)
def test_what_is_read_is_bounded(behaviour: Behaviour, problem: str) -> None:
    assert answer(behaviour)[1].startswith(problem)


def redirects(visit: Visit) -> None:
    visit.status("307 Elsewhere", location="http://127.0.0.1:9/v1/chat/completions")


def zipped(visit: Visit) -> None:
    visit.send(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-encoding: gzip\r\n\r\n"
    )


@pytest.mark.parametrize(
    ("behaviour", "problem"),
    [
        (
            redirects,
            "redirects (HTTP 307), which is not followed: cloud_url must name the server itself",
        ),
        (
            lambda visit: visit.status("200 OK", "<p>Log in</p>", content_type="text/html"),
            "answered with 'text/html', not with an event stream: '<p>Log in</p>'",
        ),
        (
            lambda visit: visit.status("200 OK", "[" * 50_000),
            "answered with 'application/json', not with an event stream: '[[[",
        ),
        (zipped, "answered with 'text/event-stream in gzip', not with an event stream"),
        (lambda visit: visit.send("hello\r\n\r\n"), "broke off before its answer: "),
        (lambda visit: visit.send(b"\x00" * 100), "broke off before its answer: "),
        (
            lambda visit: visit.stream("{tea"),
            "sent '{tea', which is no chunk of a chat completion",
        ),
        (lambda visit: visit.stream("[" * 9_000), "sent '[[["),
        (lambda visit: visit.stream({"choices": 5}), "sent '{\"choices\": 5}', which is no chunk"),
        (
            lambda visit: visit.stream({"choices": [], "usage": {"completion_tokens": -1}}),
            "sent '{",
        ),
        (
            lambda visit: visit.stream(words("Tea"), {"error": {"message": "no memory"}}),
            "failed within its answer: 'no memory'",
        ),
        (
            lambda visit: visit.stream({"error": "no memory"}),
            "failed within its answer: 'no memory'; it was asked 3 times",
        ),
        (
            lambda visit: visit.stream(words("Tea"), words(None, "content_filter")),
            "ended its answer early: 'content_filter'",
        ),
        (lambda visit: visit.stream(words(None, "stop")), "answered without a word"),
        (lambda visit: visit.stream(words("Tea")), "ended its answer without a reason"),
    ],
)  # fmt: skip
def test_nonsense_is_named(behaviour: Behaviour, problem: str) -> None:
    assert answer(behaviour)[1].startswith(problem)


def test_words_have_no_control_characters() -> None:
    def behaviour(visit: Visit) -> None:
        visit.stream(kind="text/event-stream; charset=utf-16", end=False)
        visit.send(
            'data: {"choices": [{"delta": {"content": "T\\u0000ee \\u001b[1m für\\n"}}]}\r\n\r\n'
        )
        visit.send(
            b'data: {"choices": [{"delta": {"content": "\xff"}, "finish_reason": "stop"}]}\n\n'
        )

    said, problem = answer(behaviour)
    assert (said, problem) == ("Tee [1m für\n\ufffd", "")


@pytest.mark.parametrize("end", [True, False])
def test_an_end_that_was_announced_is_the_end(end: bool) -> None:
    """A stream that stays open after the reason of its end."""

    def behaviour(visit: Visit) -> None:
        visit.stream(*WHOLE, end=end)
        visit.hang()

    assert answer(behaviour, silence_s=0.2) == ("Tea cools.", "")


def test_a_stream_to_its_end_keeps_the_connection() -> None:
    def behaviour(visit: Visit) -> None:
        while True:
            visit.send("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n")
            visit.send("transfer-encoding: chunked\r\n\r\n")
            for event in (*(json.dumps(chunk) for chunk in WHOLE), "[DONE]"):
                visit.send(f"{len(event) + 8:x}\r\ndata: {event}\n\n\r\n")
            visit.send("0\r\n\r\n")
            visit.read()

    with site(behaviour) as (server, asking):
        assert [asking.answer()[1].error for _ in range(5)] == [""] * 5
        assert len(server.visits) == 1


def test_a_server_that_counts_unasked_is_asked_without_stream_options() -> None:
    def behaviour(visit: Visit) -> None:
        if "stream_options" in visit.body:
            visit.status("422 Unprocessable", '{"detail": "Unexpected fields: stream_options"}')
        else:
            visit.stream(*WHOLE, USAGE)

    with site(behaviour) as (server, asking):
        for _ in range(2):
            said, end = asking.answer()
            assert (said, end.error, end.tokens) == ("Tea cools.", "", 4)
    assert len(server.visits) == 3


def test_a_cloud_that_is_not_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with Asking(f"http://127.0.0.1:{port}") as asking:
        _, end = asking.answer()
    assert end.error.startswith(f"the cloud at 127.0.0.1:{port} cannot be reached: ")
    assert end.error.endswith("; it was asked 3 times")


def test_a_full_backlog_takes_no_connection() -> None:
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for waiting in (first, second):
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        with Asking(f"http://127.0.0.1:{full.getsockname()[1]}", connect_s=0.1) as asking:
            _, end = asking.answer()
    assert "took no connection within 0.1 s; it was asked 3 times" in end.error


def test_a_name_that_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*args: Any, **options: Any) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with Asking("https://cloud.example") as asking:
        _, end = asking.answer()
    assert "cannot be reached: " in end.error and "Name or service not known" in end.error


def test_a_resolver_that_is_silent_holds_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    over, asked = threading.Event(), []

    def silent(*args: Any, **options: Any) -> None:
        asked.append(args)
        over.wait(BOUND_S)

    monkeypatch.setattr(socket, "getaddrinfo", silent)
    before = threading.active_count()
    with Asking("https://cloud.example", connect_s=0.05) as asking:
        for _ in range(3):
            _, end = asking.answer()
            assert "took no connection within 0.05 s" in end.error
        assert threading.active_count() <= before + 2
    assert len(asked) == 1
    over.set()


def test_plain_text_where_tls_was_expected() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def reply() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                connection.recv(65536)

        thread = threading.Thread(target=reply)
        thread.start()
        with Asking(f"https://127.0.0.1:{server.getsockname()[1]}") as asking:
            _, end = asking.answer()
        thread.join(BOUND_S)
    assert "cannot be trusted: " in end.error and "asked" not in end.error


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate of cloud.test that signs itself, with its key."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl for a certificate")
    made = tmp_path / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-keyout", made, "-out", tmp_path / "public.pem", "-days", "2",
         "-subj", "/CN=cloud.test", "-addext", "subjectAltName=DNS:cloud.test"],
        check=True, capture_output=True,
    )  # fmt: skip
    made.write_text(made.read_text() + (tmp_path / "public.pem").read_text())
    return made


@pytest.mark.parametrize("trusted", [True, False])
def test_a_certificate_is_trusted_or_the_question_is_not_sent(
    certificate: Path, trusted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    resolve = socket.getaddrinfo

    def here(host: Any, *args: Any, **options: Any) -> Any:
        return resolve("127.0.0.1" if host == b"cloud.test" else host, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", here)
    server = BadServer(lambda visit: visit.stream(*WHOLE), tls)
    with server, Asking(f"https://cloud.test:{server.port}") as asking:
        said, end = asking.answer()
    if trusted:
        assert (said, end.error) == ("Tea cools.", "")
    else:
        assert "cannot be trusted: " in end.error and "asked" not in end.error
        assert not server.visits


def test_a_proxy_is_not_used_on_the_same_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert answer(lambda visit: visit.stream(*WHOLE)) == ("Tea cools.", "")


def test_cancel_closes_the_connection_and_says_nothing_more() -> None:
    gone = threading.Event()

    def behaviour(visit: Visit) -> None:
        visit.stream(words("Tea "), end=False)
        if visit.number == 0:
            if visit.gone():
                gone.set()
        else:
            visit.events(words("cools.", "stop"), "[DONE]")

    with site(behaviour) as (_, asking):
        asking.ask(question("a"))
        asking.wait(lambda: bool(asking.events))
        asking.cloud.cancel("a")
        asking.cloud.cancel("a")
        asking.cloud.cancel("unknown")
        assert gone.wait(BOUND_S)
        asking.events.clear()
        said, end = asking.answer(question("a"))  # the same key once more
        assert (said, end.error) == ("Tea cools.", "")


def test_a_key_is_open_once() -> None:
    with site(Visit.hang) as (server, asking):
        asking.ask(question("a"))
        with pytest.raises(ValueError, match="'a' is open already"):
            asking.ask(question("a"))
        server.over.set()


def test_beyond_the_most_questions_one_ends_at_once() -> None:
    with site(Visit.hang, max_questions=2) as (server, asking):
        for key in "abc":
            asking.ask(question(key))
        asking.wait(lambda: bool(asking.ends))
        [end] = asking.ends
        assert end.key == "c"
        assert end.error.startswith("2 questions are open at the cloud, which is the most")
        asking.cloud.cancel("a")
        asking.ask(question("d"))
        assert not asking.cloud.poll(0.0)
        server.over.set()


def test_close_ends_everything(threads: None) -> None:
    with BadServer(Visit.hang) as server:
        asking = Asking(f"http://127.0.0.1:{server.port}")
        for key in "abc":
            asking.ask(question(key))
        asking.cloud.close()
        asking.cloud.close()
        assert not [thread for thread in threading.enumerate() if thread.name == "cloud"]
        assert not asking.cloud.poll(0.0)
        _, end = asking.answer(question("a"))
        assert "is closed" in end.error
        asking.cloud.cancel("a")
        server.over.set()


def test_a_wake_up_that_fails_ends_no_question(caplog: pytest.LogCaptureFixture) -> None:
    with site(lambda visit: visit.stream(*WHOLE)) as (_, asking):
        wake = asking.cloud._wake

        def fail() -> None:
            wake()
            raise RuntimeError("no")

        asking.cloud._wake = fail
        assert asking.answer()[0] == "Tea cools."
    assert "a wake-up by the cloud failed" in caplog.text


def test_the_key_is_in_one_header_and_nowhere_else(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    key = "sk-1234567890"
    monkeypatch.setenv("MY_KEY", key)
    caplog.set_level(logging.DEBUG)

    def behaviour(visit: Visit) -> None:
        if visit.number == 0:
            visit.status("401 No", json.dumps({"error": f"{'x' * 190} is wrong: {key}"}))
        else:
            visit.stream(f"{{{key}")

    with site(behaviour, key_variable="MY_KEY") as (server, asking):
        errors = [asking.answer()[1].error for _ in range(2)]
        shown = repr(vars(asking.cloud)) + repr(vars(asking.cloud._completions._client))
    assert f"authorization: bearer {key}" in server.visits[0].head.lower()
    assert "(key)" in errors[1]
    assert not [text for text in (*errors, caplog.text, shown) if key[:6] in text]


def test_text_that_no_message_takes_ends_the_question() -> None:
    from timely_llm.cloud.contract import CloudQuestion
    from timely_llm.core.request import ChatMessage

    asked = CloudQuestion("q", (ChatMessage("user", "\ud800"),), 8, 5.0)
    with Asking("http://127.0.0.1:9") as asking:
        _, end = asking.answer(asked)
    assert end.error.startswith("the question cannot be sent to the cloud: ")


def many(questions: int) -> None:
    """Ask, cancel and fail; threads and sockets are as many as before."""

    def behaviour(visit: Visit) -> None:
        if visit.number % 3 == 0:
            visit.status("404 No")
        else:
            visit.stream(*WHOLE)

    process = psutil.Process()
    with site(behaviour) as (server, asking):
        asking.answer()
        held = process.num_threads(), process.num_fds()
        for number in range(questions):
            if number % 4 == 0:
                asking.ask(question("canceled"))
                asking.cloud.cancel("canceled")
            asking.answer()
            server.visits.clear()
        assert process.num_threads() <= held[0] + 4 and process.num_fds() <= held[1] + 8


def test_threads_and_sockets_stay_as_many() -> None:
    many(100)


@pytest.mark.long
def test_threads_and_sockets_stay_as_many_for_10_000_questions() -> None:
    many(10_000)
