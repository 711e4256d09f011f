"""A plan server that asks a cloud over HTTP, and one that asks none, as real processes."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import psutil
import pytest

from test.system.conftest import Process, Start
from test.system.ros_client import Client
from timely_llm.core.errors import RequestError
from timely_llm.ros.client import TalkClient

SKETCH = "1. It purrs at night.\n2. It hunts for mice.\n"
KEY = "secret-of-the-cloud"


class Handler(BaseHTTPRequestHandler):
    """Streams the sketch to each question."""

    asked: ClassVar[list[tuple[str, str]]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.asked.append((str(self.headers["Authorization"]), body))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for word in SKETCH.split(" "):
            choice = {"index": 0, "delta": {"content": f"{word} "}, "finish_reason": None}
            self.wfile.write(f"data: {json.dumps({'choices': [choice]})}\n\n".encode())
        end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
        self.wfile.write(f"data: {json.dumps(end)}\n\ndata: [DONE]\n\n".encode())

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def url() -> Iterator[str]:
    Handler.asked.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    server.server_close()


@pytest.fixture
def serve(start: Start) -> Iterator[Start]:
    """Start servers of one name, each stopped with its test."""
    made: list[Process] = []

    def begin(**parameters: Any) -> Process:
        made.append(start("plan_server", engine="simulated", **parameters))
        return made[-1]

    yield begin
    for process in made:
        process.stop()


@pytest.fixture
def audited(start: Start, domain: int) -> Iterator[Start]:
    """Start servers that print what Python does with sockets; wait until they serve."""
    made: list[Process] = []

    def begin(**parameters: Any) -> Process:
        known = {"engine": "simulated", "name_check_s": 0.0, **parameters}
        pairs = (word for name, value in known.items() for word in ("-p", f"{name}:={value}"))
        made.append(start("test/system/audited_server.py", "--ros-args", *pairs))
        client = Client(domain)
        client.wait_for_action()
        client.close()
        return made[-1]

    yield begin
    for process in made:
        process.stop()


def sockets(pid: int) -> Counter[str]:
    """Return how many sockets of each kind a process has, by the kernel's tables.

    A connected one is "tcp to ADDRESS", with the address as the kernel writes it.
    """
    kinds: dict[str, str] = {}
    for name in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
            _, _, remote, *rest = line.split()
            connected = f" to {remote}" if set(remote) - set("0:") else ""
            kinds[f"socket:[{rest[6]}]"] = name + connected
    files = [file for file in Path(f"/proc/{pid}/fd").iterdir() if file.is_symlink()]
    return Counter(kinds[name] for file in files if (name := str(file.readlink())) in kinds)


def audit(server: Process) -> list[str]:
    return [line for line in server.output.splitlines() if line.startswith("audit: ")]


def test_a_cloud_sketches_and_the_server_expands(serve: Start, domain: int, url: str) -> None:
    server = serve(
        cloud_url=url, cloud_model="m",
        cloud_key_variable="MY_KEY", cloud_never_for="[eve]", environment={"MY_KEY": KEY},
    )  # fmt: skip
    with TalkClient("ann", domain=domain) as ann, TalkClient("eve", domain=domain) as eve:
        answer = ann.converse("What is a cat?", mode="progressive", max_tokens=200)
        text = "".join(answer.chunks(60.0))
        result = answer.result(60.0)
        assert result.text == text
        assert (result.mode_used, result.fallback) == (1, "")
        assert result.cloud_tokens > 0
        ((key, body),) = Handler.asked
        assert key == f"Bearer {KEY}"
        assert "What is a cat?" in body
        assert "ann" not in json.loads(body)["messages"][-1]["content"]
        mine = eve.converse("What is a cat?", mode="progressive").result(60.0)
        assert mine.fallback == "nothing of this agent's requests may leave the edge"
        assert len(Handler.asked) == 1
        with pytest.raises(RequestError, match="mode must be one of direct, progressive, auto"):
            ann.converse("What is a cat?", mode="fast")
    server.interrupt()
    assert server.wait(60.0) == 0
    assert KEY not in server.output
    assert "Traceback" not in server.output


def test_without_a_cloud_only_dds_opens_sockets_nothing_is_imported_and_the_result_says_so(
    start: Start, audited: Start, domain: int
) -> None:
    server = audited()
    with TalkClient("ann", domain=domain) as ann:
        result = ann.converse("What is a cat?", mode="auto").result(60.0)
    assert result.fallback == "this server asks no cloud"
    assert audit(server) == []
    bare = start("test/system/bare_node.py")
    while "ready" not in bare.output:
        assert bare.popen.poll() is None, bare.output
        time.sleep(0.05)
    found = sockets(server.popen.pid)
    assert found == sockets(bare.popen.pid)
    assert set(found) <= {"udp", "udp6"}
    assert not psutil.Process(server.popen.pid).children(recursive=True)


def test_with_a_cloud_the_audit_hears_its_socket_and_what_is_imported(
    audited: Start, domain: int, url: str
) -> None:
    server = audited(cloud_url=url, cloud_model="m")
    with TalkClient("ann", domain=domain) as ann:
        assert ann.converse("What is a cat?", mode="progressive").result(60.0).fallback == ""
    heard = {" ".join(line.split()[1:3]) for line in audit(server)}
    assert any(line.startswith("socket.connect ") for line in heard)
    assert {"import ('timely_llm.cloud.openai',", "import ('httpx2',"} <= heard


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"cloud_url": "ftp://x"}, "cloud_url must begin with http:// or https://"),
        ({"cloud_url": "http://x/v1"}, "cloud_model is empty"),
        (
            {"cloud_url": "https://x/v1", "cloud_model": "m", "cloud_key_variable": "NO_SUCH"},
            "the environment variable NO_SUCH, which cloud_key_variable names, is not set",
        ),
    ],
)
def test_a_wrong_setting_ends_the_server_with_one_sentence(
    serve: Start, parameters: dict[str, str], words: str
) -> None:
    server = serve(**parameters)
    assert server.wait(60.0) == os.EX_CONFIG
    assert words in server.output.splitlines()[-1]
    assert "Traceback" not in server.output


def test_a_mode_that_does_not_exist_is_refused(serve: Start, domain: int) -> None:
    serve()
    client = Client(domain)
    client.wait_for_action()
    _, result = client.plan(client.goal(skill_set="drone", mode=9))
    assert result.error_msg == "mode must be one of 0 (DIRECT), 1 (PROGRESSIVE), 2 (AUTO), not 9"
    client.close()
