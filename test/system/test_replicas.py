"""A plan server with replicas: clients do not notice them, nor that one is killed."""

from __future__ import annotations

import os
import signal
import time

import pytest

from test.system.conftest import Process, Start
from test.system.test_engine_process import children, ended
from timely_llm.ros.client.plan import PlanClient

WAIT_S = 60.0
FIT = {"engine": "simulated", "replicas": "2"}


@pytest.mark.faults
@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGSTOP])
def test_plans_go_on_when_a_replica_is_killed_and_none_is_left(
    start: Start, domain: int, signum: signal.Signals
) -> None:
    server = start("plan_server", **FIT)
    with PlanClient("rover", domain=domain, find_s=WAIT_S) as client:
        assert client.submit("Look.", closed_loop=False).result(WAIT_S).error_code == 0
        replicas = children(server.popen.pid)
        assert len(replicas) == 2
        tasks = [client.submit("Look.", closed_loop=False) for _ in range(12)]
        next(tasks[0].segments(WAIT_S))
        os.kill(replicas[0], signum)
        assert [task.result(WAIT_S).error_code for task in tasks] == [0] * len(tasks)
    server.stop()
    assert server.popen.returncode == 0
    assert "replica" in server.output and "Traceback" not in server.output
    assert all(map(ended, replicas))


def until_said(process: Process, words: str) -> None:
    """Wait until a process that runs has printed some words."""
    end_s = time.monotonic() + WAIT_S
    while words not in process.output:
        assert process.popen.poll() is None and time.monotonic() < end_s, process.output
        time.sleep(0.02)


@pytest.mark.extended
def test_replicas_are_one_server_behind_a_dispatcher(start: Start, domain: int) -> None:
    server = start("plan_server", "-r", "__ns:=/s1", **FIT)
    dispatcher = start("dispatch.node", name_check_s=0.0)
    until_said(dispatcher, "server /s1/plan_server joins")
    with PlanClient("rover", domain=domain, find_s=WAIT_S) as client:
        tasks = [client.submit("Look.", closed_loop=False) for _ in range(12)]
        next(tasks[0].segments(WAIT_S))
        os.kill(children(server.popen.pid)[0], signal.SIGKILL)
        assert [task.result(WAIT_S).error_code for task in tasks] == [0] * len(tasks)
        next(client.submit("Look.", closed_loop=True).segments(WAIT_S))
        dispatcher.popen.kill()
        dispatcher.wait(10)
        again = start("dispatch.node", name_check_s=0.0)
        until_said(again, "server /s1/plan_server goes on with requests of an earlier dispatcher: ")
    assert "is lost" not in dispatcher.output, "the dispatcher does not notice a replica's end"
    for process in (again, server):
        process.stop()
        assert process.popen.returncode == 0 and "Traceback" not in process.output


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"replicas": "0"}, "replicas"),
        ({"replicas": "257"}, "replicas"),
        ({"replicas": "two"}, "replicas"),
        (
            {"cluster": "slurm"},
            "parameter cluster must be processes, ray or ray:HOST:PORT, not 'slurm'",
        ),
        ({"replica_resources": "[GPU=1]"}, "parameter replica_resources is for replicas in a Ray"),
        ({"use_sim_time": "true"}, "replicas do not follow /clock"),
        ({"engine": "no_such:Engine"}, "replica-"),
    ],
)
def test_bad_parameters_are_one_sentence(
    start: Start, parameters: dict[str, str], words: str
) -> None:
    server = start("plan_server", **FIT | parameters)
    assert server.wait(WAIT_S) == (1 if words == "replica-" else os.EX_CONFIG)
    last = server.output.splitlines()[-1]
    assert last.startswith("plan_server: ") and words in last
    assert "Traceback" not in server.output
