"""Reports of a server about itself, its end, and faults that it finds before it loads a model."""

from __future__ import annotations

import itertools
import os
import re
import signal
import time
from pathlib import Path

import pytest

from test.system.conftest import EXECUTORS, Start
from test.system.ros_client import PATIENT, Client, serving
from test.system.test_lifecycle import DRONE, Manager
from timely_llm import msg
from timely_llm.ros.server.claim import FIND_S

WAIT_S = 60.0
SLOW_STEP_S = 1.0
PERIOD_S = 0.1
PROFILE = f"""
name: slow
source: a test
base_s: {SLOW_STEP_S}
row_s: 0.0
prefill_token_s: 0.0
"""


def test_each_change_of_state_is_logged_with_what_was_ready(start: Start, domain: int) -> None:
    server = start("plan_server", **(PATIENT | {"autostart": False, "skill_sets": f"[{DRONE}]"}))
    client = Client(domain)
    client.wait_for_action()
    manager = Manager(server, client)
    for transition in ("configure", "activate", "deactivate", "cleanup", "configure"):
        assert manager.change(transition)
    facts = (
        r"deadline policy, simulated engine, no model, skill sets: drone, requests being served: 0"
    )
    lines = [
        f"configured: accepts no requests until it is activated; {facts}",
        f"active: accepts requests; {facts}",
        f"inactive: refuses new requests, finishes its own within [0-9.]+ s; {facts}",
        f"unconfigured: the model is freed, parameters can be set again; {facts}",
        f"configured: .*; {facts}",
    ]
    assert re.search(r"[\s\S]*".join(lines), server.output), server.output
    client.close()
    server.interrupt()
    assert server.wait(WAIT_S) == 0
    assert server.output.splitlines()[-1] == (
        "plan_server: ended by SIGINT; nothing is left running"
    )


@pytest.mark.parametrize("executor", EXECUTORS)
def test_stats_keep_their_rate_while_steps_are_long(
    start: Start, domain: int, tmp_path: Path, executor: str
) -> None:
    profile = tmp_path / "slow.yaml"
    profile.write_text(PROFILE)
    slow = {"engine": "simulated", "pace": f"measured:{profile}", "executor": executor,
            "stats_period_s": PERIOD_S, "skill_sets": f"[{DRONE}]"}  # fmt: skip
    with serving(start, Client, domain, **slow) as client:
        came_s: list[float] = []
        stats: list[msg.ServerStats] = []

        def take(message: msg.ServerStats) -> None:
            came_s.append(time.monotonic())
            stats.append(message)

        client.node.create_subscription(msg.ServerStats, "plan_server/stats", take, 10)
        client.until(lambda: bool(stats))
        handle = client.send(client.goal())
        client.until(lambda: stats[-1].steps >= 1, WAIT_S)
        first = len(stats)
        client.until(lambda: stats[-1].steps >= 3, WAIT_S)
        # Most of the messages come during a step: without them there would be one a step.
        assert len(stats) - first >= SLOW_STEP_S / PERIOD_S
        stamps = [message.stamp.sec + 1e-9 * message.stamp.nanosec for message in stats[first:]]
        assert all(later > earlier for earlier, later in itertools.pairwise(stamps))
        handle.cancel_goal_async()
        client.until(lambda: not client.listed())


def test_a_second_server_on_the_machine_ends_before_it_loads_a_model(
    start: Start, domain: int
) -> None:
    with serving(start, Client, domain, **PATIENT):
        late = start(
            "plan_server", name_check_s=FIND_S, engine="transformers",
            model="/no/such/model",
        )  # fmt: skip
        assert late.wait(WAIT_S) == os.EX_CONFIG, "a restart would find it too"
        assert "another plan server has the action" in late.output
        assert "/no/such/model" not in late.output, "it would have been looked for first"


def test_misspelt_parameters_are_logged(start: Start, domain: int, tmp_path: Path) -> None:
    file = tmp_path / "parameters.yaml"
    file.write_text("plan_servr: {ros__parameters: {policy: fcfs}}\n")
    server = start(
        "plan_server", "--params-file", str(file), "-p", "polcy:=fcfs", "-p", "use_sim_time:=false",
        "-p", "qos_overrides./x.publisher.depth:=3", autostart=False,
    )  # fmt: skip
    client = Client(domain)
    client.until(lambda: "unconfigured:" in server.output)
    client.close()
    assert "parameter 'polcy' is unknown and changes nothing: is 'policy' meant?" in server.output
    assert "'/plan_servr' and none of this node, /plan_server" in server.output
    assert server.output.count("[WARN]") == 2, server.output
    server.popen.send_signal(signal.SIGINT)
    assert server.wait(WAIT_S) == 0


@pytest.mark.extended
def test_robots_and_people_end_with_the_table_of_what_they_got(start: Start, domain: int) -> None:
    with serving(start, Client, domain, **(PATIENT | {"skill_sets": f"[{DRONE}]"})):
        fleet = start("scripts/timely-llm", "fleet", "--robots", "2", "--duration", "2")
        people = start("scripts/timely-llm", "talkers", "--people", "2", "--duration", "2")
        assert fleet.wait(WAIT_S) == people.wait(WAIT_S) == 0
    assert "robot_fleet: first" in fleet.output
    assert re.search(r"robot_fleet +urgent +\d+ +\d+", fleet.output), fleet.output
    assert "talkers: 0 tokens recomputed, 0 errors" in people.output
    assert re.search(r"talkers +(text|voice) +\d+ +\d+", people.output), people.output
