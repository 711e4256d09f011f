"""Far more requests than a server is made for, and a model with a folder that disappears."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from test.system.conftest import Start
from test.system.ros_client import FIND, LONG, Client, serving
from timely_llm import msg, srv
from timely_llm.core.request import ErrorCode
from timely_llm.resources import EMBEDDED_MODEL, resource
from timely_llm.ros import qos

pytestmark = pytest.mark.faults
WAIT_S = 60.0
SERVED, ROBOTS = 4, 32
"""Requests that the overloaded server takes at a time, and robots that ask it."""
PERIOD_S = 0.01
"""Time between two requests of the overload, seconds: ten times what is served."""
TOLD_WHY = {ErrorCode.QUEUE_FULL, ErrorCode.BUSY, ErrorCode.EXPIRED}


def submitted(client: Client, request_id: str, task: str = FIND) -> ErrorCode:
    """Ask for a plan; return the code of the answer."""
    request = client.request(request_id, task)
    return ErrorCode(client.call(srv.SubmitPlan, "submit_plan", request=request).error_code)


@pytest.mark.parametrize("overload_s", [10.0, 60.0])
def test_of_ten_times_too_many_requests_each_has_one_result(
    start: Start, domain: int, overload_s: float
) -> None:
    given = {"engine": "simulated", "max_requests": SERVED, "queue_timeout_s": 5.0}
    with serving(start, Client, domain, **given, max_requests_per_agent=SERVED) as client:
        results: dict[str, list[int]] = {}

        def note(result: msg.PlanResult) -> None:
            results.setdefault(result.request_id, []).append(result.error_code)

        depth = round(2 * overload_s / PERIOD_S)
        heard = client.node.create_subscription(
            msg.PlanResult, "plan_server/results", note, qos.reliable(depth)
        )
        sender = client.node.create_publisher(
            msg.PlanRequest, "plan_server/plan_requests", qos.reliable(depth)
        )
        client.until(lambda: heard.get_publisher_count() == sender.get_subscription_count() == 1)
        # It lasts: the discovery of a new one is no work of the server's.
        lists: Any = client.node.create_client(srv.ListRequests, "plan_server/list_requests")
        assert lists.wait_for_service(WAIT_S)
        sent: list[str] = []
        listed_s: list[float] = []
        end_s = time.monotonic() + overload_s
        next_s, control_s = time.monotonic(), 0.0
        while (now := time.monotonic()) < end_s:
            if now >= control_s:
                control_s = now + 0.5
                client.result(lists.call_async(srv.ListRequests.Request()))
                listed_s.append(time.monotonic() - now)
            while next_s <= now:
                next_s += PERIOD_S
                request = client.request(f"r{len(sent)}", LONG)
                request.agent = f"robot-{len(sent) % ROBOTS}"
                sender.publish(request)
                sent.append(request.request_id)
            wake_s = min(next_s, control_s, end_s)
            client.until(lambda wake_s=wake_s: time.monotonic() >= wake_s)  # type: ignore[misc]
        client.until(lambda: results.keys() >= set(sent))
        assert all(len(codes) == 1 for codes in results.values()), "one result each"
        codes = {ErrorCode(code) for one in results.values() for code in one}
        assert ErrorCode.NONE in codes and codes - {ErrorCode.NONE}, "it was overloaded"
        assert codes <= {ErrorCode.NONE, *TOLD_WHY}
        client.until_listed({})
        answered = sum(one == [0] for one in results.values())
        median_s, p95_s = np.percentile(listed_s, (50, 95))
        print(
            f"{answered} of {len(sent)} answered; {len(listed_s)} calls of list_requests take"
            f" {median_s:.3f} s at the median, {p95_s:.3f} s at p95, {max(listed_s):.3f} s at most"
            f" (load {os.getloadavg()[0]:.1f})"
        )
        assert submitted(client, "after") is ErrorCode.NONE


def test_a_server_serves_on_when_the_folder_of_its_model_disappears(
    start: Start, domain: int, tmp_path: Path
) -> None:
    model = tmp_path / "model"
    shutil.copytree(resource(EMBEDDED_MODEL), model)
    with serving(start, Client, domain, engine="transformers", model=model) as client:
        assert client.plan(client.goal(task=FIND))[1].error_code == ErrorCode.NONE
        shutil.rmtree(model)
        for task in (FIND, LONG):
            assert client.plan(client.goal(task=task))[1].error_code == ErrorCode.NONE
        yaml = resource("examples/amr.yaml").read_text(encoding="utf-8")
        registered = client.call(srv.RegisterSkillSet, "register_skill_set", yaml=yaml)
        assert (registered.name, registered.error_msg) == ("amr", "")
        client.until_listed({})
    again = start("plan_server", engine="transformers", model=model)
    assert again.wait(WAIT_S) == os.EX_CONFIG, "a restart does not help"
    assert str(model) in again.output and "Traceback" not in again.output
