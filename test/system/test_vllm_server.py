"""The plan server on vLLM, as a client sees it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from action_msgs.msg import GoalStatus

from test.system.conftest import Start
from test.system.ros_client import LONG, Client, serving
from timely_llm.core.request import ErrorCode
from timely_llm.engines.vllm.version import installed_version

pytestmark = pytest.mark.skipif(
    installed_version() is None, reason="vLLM is not installed: see `make test-vllm`"
)
ENVIRONMENT = {"VLLM_CPU_OMP_THREADS_BIND": "nobind"}


@pytest.fixture(scope="module")
def client(start: Start, domain: int) -> Iterator[Client]:
    with serving(
        start, Client, domain, environment=ENVIRONMENT, engine="vllm", constrained="true"
    ) as made:
        made.wait_for_server()
        yield made


def test_a_goal_is_answered_in_segments(client: Client) -> None:
    status, result = client.plan(client.goal("whole", task=LONG))
    assert status == GoalStatus.STATUS_SUCCEEDED
    assert (result.error_code, result.error_msg) == (ErrorCode.NONE, "")
    client.until(lambda: len(client.feedback) == result.segments)  # feedback may come later
    assert result.segments >= 3
    assert result.recomputed_tokens < 32  # of the shared prompt, what fills no block
    assert client.listed() == {}


def test_what_vllm_does_not_take_is_an_error_of_one_line(start: Start) -> None:
    options = {"engine": "vllm", "engine_args": "[no_such_option=1]"}
    name = "__node:=misfit"  # the first server has the usual name in this domain
    server = start("plan_server", "-r", name, environment=ENVIRONMENT, **options)
    assert server.wait(60) == 1
    assert server.output.splitlines()[-1].startswith("plan_server: vLLM does not start: ")
    assert "no_such_option" in server.output
    assert "Traceback" not in server.output
