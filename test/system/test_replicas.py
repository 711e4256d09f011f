"""A plan server with replicas: clients do not notice them, nor that one is killed."""

from __future__ import annotations

import os
import signal

import pytest

from test.system.conftest import Start
from test.system.test_engine_process import children, ended
from timely_llm.ros.client.plan import PlanClient

WAIT_S = 60.0
FIT = {"engine": "simulated", "replicas": "2"}


def test_plans_go_on_when_a_replica_is_killed_and_none_is_left(start: Start, domain: int) -> None:
    server = start("plan_server", **FIT)
    with PlanClient("rover", domain=domain, find_s=WAIT_S) as client:
        assert client.submit("Look.", closed_loop=False).result(WAIT_S).error_code == 0
        replicas = children(server.popen.pid)
        assert len(replicas) == 2
        tasks = [client.submit("Look.", closed_loop=False) for _ in range(12)]
        next(tasks[0].segments(WAIT_S))
        os.kill(replicas[0], signal.SIGKILL)
        assert [task.result(WAIT_S).error_code for task in tasks] == [0] * len(tasks)
    server.stop()
    assert server.popen.returncode == 0
    assert "replica" in server.output and "Traceback" not in server.output
    assert all(map(ended, replicas))


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
    assert server.wait(WAIT_S) == 1
    last = server.output.splitlines()[-1]
    assert last.startswith("plan_server: ") and words in last
    assert "Traceback" not in server.output
