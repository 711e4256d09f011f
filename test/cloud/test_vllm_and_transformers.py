"""Clouds that others wrote: `vllm serve` and `transformers serve` with the embedded model."""

from __future__ import annotations

import http.client
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from test.cloud.asking import Asking, question
from timely_llm.cloud.contract import CloudEnd, CloudWords
from timely_llm.core.request import ChatMessage
from timely_llm.progressive.grounding import grounded
from timely_llm.progressive.plan import steps_question
from timely_llm.progressive.sketch import SketchReader
from timely_llm.resources import EMBEDDED_MODEL, resource
from timely_llm.skills.skill_set import load_skill_set

MODEL = str(resource(EMBEDDED_MODEL))
START_S = 300.0
"""Longest time that a server may take to start, seconds."""
COMMANDS = {
    # `vllm serve` is this module; the command itself does not find the version of vLLM's CPU build.
    "vllm": ["vllm.entrypoints.openai.api_server", "--model", MODEL, "--enforce-eager"],
    "transformers": ["transformers.cli.transformers", "serve", MODEL, "--device", "cpu"],
}
PACKAGES = {
    "vllm": ("vllm", "fastapi", "uvicorn", "watchfiles", "model_hosting_container_standards"),
    "transformers": ("transformers", "torch", "accelerate", "fastapi", "openai", "uvicorn"),
}
pytestmark = pytest.mark.timeout(START_S + 120)


@pytest.fixture(scope="module", params=COMMANDS)
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """URL of a server that runs."""
    name = request.param
    missing = [found for found in PACKAGES[name] if importlib.util.find_spec(found) is None]
    if missing:
        pytest.skip(f"the server of {name} needs {', '.join(missing)}: see `make test-vllm`")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = {
        **os.environ, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_CPU_KVCACHE_SPACE": "1",
    }  # fmt: skip
    place = ["--host", "127.0.0.1", "--port", str(port)]
    process = subprocess.Popen(
        [sys.executable, "-m", *COMMANDS[name], *place], env=environment, start_new_session=True
    )
    try:
        _wait_until_it_serves(process, port)
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)


def _wait_until_it_serves(process: subprocess.Popen[bytes], port: int) -> None:
    for _ in range(int(START_S)):
        assert process.poll() is None, "the server has ended"
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as line:
            try:
                line.request("GET", "/v1/models")
                line.getresponse()
                return
            except OSError:
                time.sleep(1)
    pytest.fail("the server did not start")


def test_it_is_a_cloud(url: str) -> None:
    with Asking(url, model=MODEL) as asking:
        robot = replace(question(), messages=(ChatMessage("user", "What is a robot?"),))
        said, end = asking.answer(robot)
        assert (end.error, end.tokens) == ("", 32) and end.prompt_tokens > 0
        assert len(said.split()) > 10
        assert asking.answer(robot)[0] == said

        asking.ask(replace(robot, key="canceled", max_tokens=1000))
        asking.wait(lambda: bool(asking.events))
        asking.cloud.cancel("canceled")
        asking.events.clear()
        keys = [f"{number}" for number in range(4)]
        for key in keys:
            asking.ask(replace(robot, key=key))
        asking.wait(lambda: len(asking.ends) == len(keys))
        assert {end.key for end in asking.ends if not end.error} == set(keys)
        words = [event for event in asking.events if isinstance(event, CloudWords)]
        assert all("".join(e.text for e in words if e.key == key) == said for key in keys)
        assert all(event.at_s <= end.at_s for end in asking.ends for event in words
                   if event.key == end.key)  # fmt: skip


def test_it_names_the_steps_of_a_plan_that_an_edge_takes(url: str) -> None:
    drone = load_skill_set(resource("config/skill_sets/drone.yaml"))
    task = "Scene: [chair, red cup]\nTask: [A] Go to the chair and take a picture. Then rise 40 cm."
    with Asking(url, model=MODEL) as asking:
        chat = steps_question(task, drone)
        said, end = asking.answer(replace(question(), messages=chat, max_tokens=64))
    assert end.error == ""
    reader = SketchReader()
    steps = [part.text for part in (*reader.feed(said), *reader.end())]
    assert len(steps) > 1
    assert all(grounded(step, task, drone.skills.values()) for step in steps)


def test_what_it_does_not_take_is_named(url: str) -> None:
    with Asking(url, model="no/such-model", first_token_s=30.0) as asking:
        said, end = asking.answer()
        assert isinstance(end, CloudEnd) and not said
        assert "refused the question (HTTP 4" in end.error
