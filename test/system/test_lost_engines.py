"""The engine of a server in stages dies by itself, behind a dispatcher: nothing is lost."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import pytest

from test.system.conftest import Start
from test.system.ros_client import FIND, LONG, WAIT_S
from test.system.ros_talker import Talker
from test.system.test_engine_process import children, ended
from timely_llm import msg, srv
from timely_llm.core.request import ErrorCode

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc"),
]


@pytest.mark.extended
def test_requests_go_on_at_another_server_when_the_engine_of_theirs_dies(
    start: Start, domain: int
) -> None:
    parameters = ["-p", "engine:=simulated", "-p", "name_check_s:=0.0", "-r", "__ns:=/s1"]
    lost = start("test/system/hung_server.py", "remote", "--ros-args", *parameters)
    start("plan_server", "-r", "__ns:=/s2", engine="simulated")
    dispatcher = start("dispatch.node", name_check_s=0.0, dispatcher="round-robin")
    client = Talker(domain)
    there: list[str] = []
    for kind, topic in ((msg.PlanRequest, "requests"), (msg.StreamRequest, "streams")):
        client.node.create_subscription(
            kind, f"s1/plan_server/{topic}", lambda asked: there.append(asked.request_id), 10
        )
    client.until(lambda: dispatcher.output.count("/plan_server joins") == 2)
    client.wait_for_action()
    asked: Any = client.node.create_client(srv.SubmitPlan, "s1/plan_server/submit_plan")
    assert asked.wait_for_service(WAIT_S)
    while not there:  # until the server has found this reader
        client.result(asked.call_async(srv.SubmitPlan.Request(request=client.request("", FIND))))
    (engine,) = children(lost.popen.pid)
    os.kill(engine, signal.SIGSTOP)  # until all requests are there
    plans = [client.send(client.goal(f"plan-{number}", agent=f"robot-{number}", task=LONG))
             for number in range(4)]  # fmt: skip
    answers = [client.ask(f"answer-{number}", agent=f"person-{number}") for number in range(4)]
    client.until(lambda: {"plan", "answer"} <= {one.partition("-")[0] for one in there})
    os.kill(engine, signal.SIGKILL)
    for handle in (*plans, *answers):
        result = client.result(handle.get_result_async()).result
        assert (result.error_code, result.error_msg) == (ErrorCode.NONE, "")
    assert lost.wait(WAIT_S) == 1
    assert lost.output.splitlines()[-1] == (
        "plan_server: the process of the engine letters has ended by SIGKILL"
    )
    assert "Traceback" not in lost.output
    assert ended(engine)
    client.close()
    dispatcher.stop()
    assert dispatcher.popen.returncode == 0
    assert "Traceback" not in dispatcher.output
