"""Memory that is short, disks that are full, files that are damaged: beside real processes."""

from __future__ import annotations

import resource
import signal
from pathlib import Path

import pytest

from test.system.conftest import Start
from test.system.outcomes import Outcomes
from test.system.ros_client import Client, serving
from test.system.test_record import WAIT_S, contents, of, record, until_it_listens
from timely_llm import msg, srv
from timely_llm.core.request import ErrorCode
from timely_llm.ros import qos

pytestmark = pytest.mark.faults
PLANS = 12
SPARE = 400
"""Tokens of KV beside those of the skill sets: fewer than the plans need at once."""
HOSTILE = """
name: cart
language: regex
prompt: go
rules: ['(?P<skill>go)\\(\\);', '(a|aa|a?)+b']
skills: {go: {description: go, duration: {polynomial: [1.0]}}}
"""


def plans_of(start: Start, domain: int, **parameters: object) -> tuple[list[msg.PlanResult], int]:
    """Return plans that were asked for at once, and the tokens of the pinned skill sets."""
    given = {"engine": "simulated", "pace": "millisecond", "stats_period_s": 0.1} | parameters
    with serving(start, Client, domain, max_requests_per_agent=PLANS, **given) as client:
        results: dict[str, msg.PlanResult] = {}

        def note(result: msg.PlanResult) -> None:
            results[result.request_id] = result

        heard = client.node.create_subscription(
            msg.PlanResult, "plan_server/results", note, qos.reliable(PLANS)
        )
        loads: list[msg.ServerLoad] = []
        client.node.create_subscription(
            msg.ServerLoad, "plan_server/load", loads.append, qos.reliable()
        )
        client.until(lambda: heard.get_publisher_count() == 1 and bool(loads))
        names = [f"plan-{number}" for number in range(PLANS)]
        for name in names:
            asked = client.call(srv.SubmitPlan, "submit_plan", request=client.request(name))
            assert asked.error_code == ErrorCode.NONE
        client.until(lambda: len(results) == PLANS)
        client.until_listed({})
        pinned = sum(one.tokens for one in loads[-1].skill_sets)
        return [results[name] for name in names], pinned


def test_plans_wait_for_kv_and_are_the_same_as_with_enough(start: Start, domain: int) -> None:
    roomy, pinned = plans_of(start, domain)
    tight, _ = plans_of(start, domain, kv_tokens=pinned + SPARE)
    assert {one.error_code for one in (*roomy, *tight)} == {ErrorCode.NONE}
    assert sum(one.prompt_tokens + one.generated_tokens for one in roomy) > SPARE
    assert [one.plan for one in tight] == [one.plan for one in roomy]


@pytest.mark.parametrize("place", ["first line", "middle"])
def test_a_damaged_journal_is_set_aside_and_the_server_serves(
    start: Start, domain: int, tmp_path: Path, place: str
) -> None:
    journal = tmp_path / "journal"
    given = {"engine": "simulated", "recovery_journal": journal}
    killed = start("plan_server", **given)
    client = Client(domain)
    client.wait_for_action()
    assert client.plan(client.goal("before"))[1].error_code == ErrorCode.NONE
    killed.popen.send_signal(signal.SIGKILL)
    killed.wait(WAIT_S)
    client.close()
    data = bytearray(journal.read_bytes())
    assert data.count(b"\n") > 2
    data[0 if place == "first line" else len(data) // 2] ^= 1
    journal.write_bytes(data)
    again = start("plan_server", **given)
    client = Client(domain)
    client.wait_for_action()
    assert client.plan(client.goal("after"))[1].error_code == ErrorCode.NONE
    client.close()
    again.stop()
    assert again.popen.returncode == 0 and "Traceback" not in again.output
    assert again.output.count("the recovery journal is set aside as") == 1
    assert (tmp_path / "journal.set_aside").read_bytes() == data


def test_an_event_log_on_a_full_disk_ends_and_serving_goes_on(
    start: Start, domain: int, outcomes: Outcomes
) -> None:
    server = start("plan_server", engine="simulated", event_log="/dev/full")
    client = Client(domain)
    client.wait_for_action()
    assert client.plan(client.goal("one"))[1].error_code == ErrorCode.NONE
    outcomes.answered("one")
    client.close()
    server.stop()
    assert server.popen.returncode == 0 and "Traceback" not in server.output
    assert server.output.count("the event log ends here: ") == 1


def test_a_recording_on_a_full_disk_ends_and_leaves_what_it_has(
    start: Start, domain: int, tmp_path: Path
) -> None:
    bag = tmp_path / "bag"
    given = {"engine": "simulated", "stats_period_s": 0.1}
    with serving(start, Client, domain, **given) as client:
        recorder = record(start, bag)
        until_it_listens(client, bag)
        size = (bag / "bag.mcap").stat().st_size
        limits = size + 20_000, resource.RLIM_INFINITY
        resource.prlimit(recorder.popen.pid, resource.RLIMIT_FSIZE, limits)
        for number in range(1000):  # until the disk is full
            assert client.plan(client.goal(f"r{number}"))[1].error_code == ErrorCode.NONE
            if recorder.popen.poll() is not None:
                break
        assert recorder.wait(WAIT_S) == 1
        assert "File too large" in recorder.output and "Traceback" not in recorder.output
        assert of(contents(bag), "stats")


@pytest.mark.parametrize("damage", ["cut", "changed", "no bag"])
def test_a_damaged_bag_is_refused_in_a_sentence(start: Start, tmp_path: Path, damage: str) -> None:
    data = Path("test/corpus/bag/chunk_zstd.mcap").read_bytes()
    middle = len(data) // 2
    made = {
        "cut": data[:middle],
        "changed": data[:middle] + bytes(64) + data[middle + 64 :],
        "no bag": b"# Mine\n",
    }
    file = tmp_path / "a.mcap"
    file.write_bytes(made[damage])
    info = start("scripts/timely-llm", "trace", "info", str(file))
    assert info.wait(WAIT_S) == 1
    *warnings, sentence = info.output.splitlines()
    assert str(file) in sentence and len(warnings) <= 1, "one cut off is read up to its end"


def test_a_hostile_rule_ends_its_plan_and_no_other(start: Start, domain: int) -> None:
    given = {"engine": "simulated", "accept_plans": True}
    with serving(start, Client, domain, **given) as client:
        registered = client.call(srv.RegisterSkillSet, "register_skill_set", yaml=HOSTILE)
        assert (registered.name, registered.error_msg) == ("cart", "")
        goal = client.goal("hostile", skill_set="cart", given_plan="a" * 4000)
        ended = client.plan(goal)[1]
        assert ended.error_code == ErrorCode.MALFORMED_PLAN
        assert "rule" in ended.error_msg and "\n" not in ended.error_msg
        assert client.plan(client.goal("sound"))[1].error_code == ErrorCode.NONE
