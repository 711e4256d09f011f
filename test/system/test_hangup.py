"""A terminal that is closed ends all processes as SIGTERM does: waiting clients get results."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from test.system.conftest import ROOT, Start, ros_environment
from test.system.outcomes import Outcomes
from test.system.ros_client import PATIENT, Client, serving
from timely_llm.core.request import ErrorCode
from timely_llm.traces.recordings.bags import bag_messages

pytestmark = pytest.mark.faults

YAML = Path(__file__).with_name("patient.yaml")
WAIT_S = 30.0
IGNORING = """
import os, signal, sys
signal.signal(signal.SIGHUP, signal.SIG_IGN)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


@pytest.fixture(scope="module")
def client(start: Start, domain: int) -> Iterator[Client]:
    skill_sets = f"[{YAML},{ROOT / 'config/skill_sets/drone.yaml'}]"
    with serving(start, Client, domain, **(PATIENT | {"skill_sets": skill_sets})) as made:
        yield made


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("fleet", "--robots", "2"), 0),
        (("talkers", "--people", "2"), 0),
        (("ask", "Look.", "--skill-set", "drone", "--pretend"), 128 + signal.SIGHUP),
    ],
    ids=["fleet", "talkers", "ask"],
)
def test_requests_are_canceled_when_the_terminal_is_closed(
    client: Client, start: Start, words: tuple[str, ...], status: int
) -> None:
    process = start("scripts/timely-llm", *words)
    client.until(lambda: bool(client.listed()) or process.popen.poll() is not None)
    process.popen.send_signal(signal.SIGHUP)
    assert process.wait(WAIT_S) == status, process.output
    assert "Traceback" not in process.output
    client.until_listed({})


def test_a_bag_is_complete_when_the_terminal_is_closed(
    client: Client, start: Start, tmp_path: Path
) -> None:
    bag = tmp_path / "bag"
    recorder = start("scripts/timely-llm", "trace", "record", str(bag))
    client.until(lambda: bool(list(bag.glob("*.mcap"))) or recorder.popen.poll() is not None)
    recorder.popen.send_signal(signal.SIGHUP)
    assert recorder.wait(WAIT_S) == 0, recorder.output
    warnings: list[str] = []
    list(bag_messages(bag, warnings.append))
    assert not warnings
    assert (bag / "metadata.yaml").exists()


def test_clients_get_results_when_the_servers_terminal_is_closed(
    domain: int, client: Client, outcomes: Outcomes
) -> None:
    elsewhere = domain + 100
    terminal, theirs = pty.openpty()

    def take_terminal() -> None:
        os.setsid()
        fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)

    server = subprocess.Popen(
        [
            sys.executable, str(ROOT / "scripts/timely-llm"), "serve", "--engine", "simulated",
            "--skill-set", str(YAML), "--", "-p", "name_check_s:=0.0",
        ],
        stdin=theirs, stdout=theirs, stderr=theirs, preexec_fn=take_terminal,
        env=os.environ | ros_environment(elsewhere),
    )  # fmt: skip
    os.close(theirs)
    try:
        asking = Client(elsewhere)
        asking.wait_for_action()
        handle = asking.send(asking.goal(skill_set="patient"))
        result = handle.get_result_async()
        asking.until(lambda: bool(asking.feedback))
        os.close(terminal)
        ended = asking.result(result).result
        assert ended.error_code == ErrorCode.SHUTTING_DOWN
        outcomes.explained(ended.request_id, ended.error_msg)
        asking.close()
        assert server.wait(WAIT_S) == 0
    finally:
        server.kill()
        server.wait()


def test_a_server_under_nohup_outlives_its_terminal(
    start: Start, tmp_path: Path, outcomes: Outcomes
) -> None:
    script = tmp_path / "nohup.py"
    script.write_text(IGNORING)
    lines = [f"{name}:={value}" for name, value in (PATIENT | {"name_check_s": 0.0}).items()]
    parameters = [word for line in lines for word in ("-p", line)]
    domain = 101 + os.getpid() % 100
    server = start(
        str(script), "-m", "timely_llm.entry", "plan_server", "--ros-args", *parameters,
        environment=ros_environment(domain),
    )  # fmt: skip
    asking = Client(domain)
    asking.wait_for_action()
    server.popen.send_signal(signal.SIGHUP)
    _, result = asking.plan(asking.goal(skill_set="boat"))
    assert result.error_code == ErrorCode.UNKNOWN_SKILL_SET
    outcomes.explained(result.request_id, result.error_msg)
    asking.close()
    server.popen.send_signal(signal.SIGTERM)
    assert server.wait(WAIT_S) == 0
