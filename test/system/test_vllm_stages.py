"""A stage of a server on vLLM is killed behind a dispatcher: nothing is lost."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from test.system.conftest import Start
from test.system.ros_client import FIND, LONG
from test.system.ros_talker import Talker
from test.system.test_engine_process import children, ended
from timely_llm import msg, srv
from timely_llm.core.request import ErrorCode
from timely_llm.engines.vllm.version import installed_version

pytestmark = [
    pytest.mark.skipif(
        installed_version() is None, reason="vLLM is not installed: see `make test-vllm`"
    ),
    pytest.mark.timeout(900),
]
START_S = 400.0
"""Two processes import vLLM before the server is there."""

TWO_STAGES = ("-p", "engine:=vllm", "-p", "engine_args:=[pipeline_parallel_size=2]")


def stages_of(server: int) -> list[int]:
    """Return the processes of the stages of a server."""
    return [
        child
        for child in sorted(children(server))
        if b"resource_tracker" not in Path(f"/proc/{child}/cmdline").read_bytes()
    ]


def test_requests_go_on_at_another_server_when_a_stage_is_killed(start: Start, domain: int) -> None:
    lost = start(
        "plan_server", *TWO_STAGES, "-r", "__ns:=/s1", step_timeout_s=600.0,
        environment={"VLLM_CPU_OMP_THREADS_BIND": "nobind"},
    )  # fmt: skip
    start("plan_server", "-r", "__ns:=/s2", engine="simulated")
    dispatcher = start("dispatch.node", name_check_s=0.0, dispatcher="round-robin")
    client = Talker(domain)
    there: list[str] = []
    for kind, topic in ((msg.PlanRequest, "requests"), (msg.StreamRequest, "streams")):
        client.node.create_subscription(
            kind, f"s1/plan_server/{topic}", lambda asked: there.append(asked.request_id), 10
        )
    client.until(lambda: dispatcher.output.count("/plan_server joins") == 2, START_S)
    client.wait_for_action()
    asked: Any = client.node.create_client(srv.SubmitPlan, "s1/plan_server/submit_plan")
    assert asked.wait_for_service(START_S)
    while not there:  # until the server has found this reader
        client.result(asked.call_async(srv.SubmitPlan.Request(request=client.request("", FIND))))
    stages = stages_of(lost.popen.pid)
    assert len(stages) == 2
    os.kill(stages[1], signal.SIGSTOP)  # until all requests are there
    plans = [
        client.send(client.goal(f"plan-{number}", agent=f"robot-{number}", task=LONG))
        for number in range(4)
    ]
    answers = [client.ask(f"answer-{number}", agent=f"person-{number}") for number in range(4)]
    client.until(lambda: {"plan", "answer"} <= {one.partition("-")[0] for one in there}, START_S)
    os.kill(stages[1], signal.SIGKILL)
    for handle in (*plans, *answers):
        future = handle.get_result_async()
        client.until(future.done, START_S)
        result = future.result().result
        assert (result.error_code, result.error_msg) == (ErrorCode.NONE, "")
    assert lost.wait(START_S) == 1
    # Python's tracker of shared memory warns after it: the killed process has freed nothing.
    sentence = "plan_server: a worker process of vLLM has ended, and vLLM ends with it"
    assert sentence in lost.output.splitlines()
    assert all(map(ended, stages))
    client.close()
    dispatcher.stop()
    assert dispatcher.popen.returncode == 0
    assert "Traceback" not in dispatcher.output
