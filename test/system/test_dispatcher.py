"""A dispatcher and two plan servers behind it: real processes, seen as one server."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from secrets import token_hex
from typing import Any

import pytest
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState

from test.system.conftest import Process, Start
from test.system.ros_client import FIND, LONG, WAIT_S
from test.system.ros_talker import SLOW, Talker
from timely_llm import msg, srv
from timely_llm.core.request import ErrorCode
from timely_llm.dispatch.settings import NO_SERVER
from timely_llm.resources import resource

AMR = resource("examples/amr.yaml").read_text(encoding="utf-8")
NAMES = ("s1", "s2")


class Site(Talker):
    """Asks the dispatcher, and looks at the servers behind it.

    Attributes:
        servers: the processes by name.
        dispatcher: its process.
    """

    def __init__(self, start: Start, domain: int) -> None:
        super().__init__(domain)
        self._start = start
        self.servers: dict[str, Process] = {}
        self.loads: dict[str, msg.ServerLoad] = {}
        for name in NAMES:
            self.begin(name)
        self.dispatcher = start("dispatch.node", name_check_s=0.0, stats_period_s=0.1)
        for name in NAMES:
            self.until_joined(name)
        self.wait_for_action()

    def begin(self, name: str, **parameters: Any) -> None:
        """Start a server in a namespace."""
        given = SLOW | {"max_rows": 4} | parameters
        self.servers[name] = self._start("plan_server", "-r", f"__ns:=/{name}", **given)
        self.node.create_subscription(
            msg.ServerLoad, f"{name}/plan_server/load",
            lambda load: self.loads.__setitem__(name, load), 10,
        )  # fmt: skip

    def until_joined(self, name: str, times: int = 1) -> None:
        """Wait until a server has joined the dispatcher a number of times."""
        said = f"server /{name}/plan_server joins"
        self.until(lambda: self.dispatcher.output.count(said) >= times)

    def kill(self, name: str) -> None:
        self.servers[name].popen.send_signal(signal.SIGKILL)
        self.servers[name].wait(WAIT_S)

    def at(self, server: str, kind: Any, name: str, **fields: Any) -> Any:
        """Call a service of a server itself."""
        client: Any = self.node.create_client(kind, f"{server}/plan_server/{name}")
        assert client.wait_for_service(WAIT_S)
        response = self.result(client.call_async(kind.Request(**fields)))
        self.node.destroy_client(client)
        return response

    def submit(self, task: str = LONG, **fields: Any) -> str:
        """Ask for a plan; return the id of the request."""
        answer = self.call(srv.SubmitPlan, "submit_plan", request=self.request("", task, **fields))
        assert (answer.error_code, answer.error_msg) == (ErrorCode.NONE, "")
        return str(answer.request_id)

    def turn(self, conversation: str, turn: int, prompt: str) -> Any:
        """Ask for an answer in a conversation, and wait for it."""
        asked = {"conversation": conversation, "turn": turn, "max_tokens": 4}
        return self.answer(f"{conversation}-{turn}", prompt, **asked)

    def having(self, request_id: str) -> str:
        """Wait until a server has a request; return its name."""
        found: list[str] = []

        def there() -> bool:
            found.extend(
                name
                for name, load in self.loads.items()
                if request_id in [one.request_id for one in load.requests]
            )
            return bool(found)

        self.until(there)
        return found[0]

    def keeping(self, conversation: str) -> str:
        """Wait until a server keeps a conversation; return its name."""
        found: list[str] = []

        def there() -> bool:
            found.extend(
                name
                for name, load in self.loads.items()
                if any(one.conversation == conversation for one in load.kept)
            )
            return bool(found)

        self.until(there)
        return found[0]

    def ended_plan(self, request_id: str) -> msg.PlanResult:
        """Wait for the result of a plan, by the service that returns it."""
        found: list[Any] = []

        def there() -> bool:
            found.append(self.call(srv.GetResult, "get_result", request_id=request_id))
            return bool(found[-1].state == srv.GetResult.Response.PLAN)

        self.until(there)
        return found[-1].plan


@pytest.fixture(scope="module")
def site(start: Start, domain: int) -> Iterator[Site]:
    made = Site(start, domain)
    yield made
    made.close()
    for process in (made.dispatcher, *made.servers.values()):
        process.stop()
        assert "Traceback" not in process.output
    assert made.dispatcher.popen.returncode == 0


def test_a_plan_comes_by_the_action_from_one_of_the_servers(site: Site) -> None:
    status, result = site.plan(site.goal(task=FIND, feedback=True))
    made = result.request_id
    assert (status, result.error_code, result.error_msg) == (4, ErrorCode.NONE, "")
    site.until(lambda: len(site.of(made)) == result.segments)
    assert "".join(one.text for one in site.of(made)) == result.plan != ""
    assert site.ended_plan(made).plan == result.plan
    others = [site.at(name, srv.GetResult, "get_result", request_id=made) for name in NAMES]
    assert sorted(one.state for one in others) == [0, 2], "one server made it"


def test_requests_being_served_are_listed_with_their_segments(site: Site) -> None:
    long = site.submit()
    site.until(lambda: bool(site.of(long)))
    assert site.listed()[long] == "running"
    assert site.having(long) in NAMES
    read = site.call(srv.GetSegments, "get_segments", agent="tester", request_id=long)
    assert read.segments[0].text == site.of(long)[0].text
    assert site.ended_plan(long).error_code == ErrorCode.NONE
    assert long not in site.listed()


def test_a_canceled_request_ends_here_and_at_its_server(site: Site) -> None:
    unwanted = site.submit()
    server = site.having(unwanted)
    refused = site.call(srv.CancelRequest, "cancel_request", request_id=unwanted, agent="stranger")
    assert not refused.canceled and "not one of agent 'stranger'" in refused.error_msg
    assert site.call(srv.CancelRequest, "cancel_request", request_id=unwanted).canceled
    assert site.ended_plan(unwanted).error_code == ErrorCode.CANCELED
    site.until(lambda: not site.loads[server].requests)
    again = site.call(srv.CancelRequest, "cancel_request", request_id=unwanted)
    assert (again.canceled, again.error_msg) == (False, f"no request '{unwanted}' is being served")


def test_a_conversation_has_two_turns(site: Site) -> None:
    name = token_hex(4)
    first = site.turn(name, 0, "Find the cat.")
    (other,) = set(NAMES) - {site.keeping(name)}
    _change(
        site, other, Transition.TRANSITION_DEACTIVATE
    )  # steps cost the same with and without KV
    site.until(lambda: not site.loads[other].active)
    second = site.turn(name, 1, "And a cup?")
    _change(site, other, Transition.TRANSITION_ACTIVATE)
    site.until(lambda: site.loads[other].active)
    assert (first.error_code, second.error_code) == (ErrorCode.NONE, ErrorCode.NONE)
    assert second.prompt_tokens > first.prompt_tokens
    assert second.kept_tokens > 0, "the server that keeps its KV got the new words only"


def test_statistics_are_those_of_all_servers(site: Site) -> None:
    before = site.stats[-1].ended
    for counted in [site.submit(FIND) for _ in range(4)]:
        assert site.ended_plan(counted).error_code == ErrorCode.NONE
    site.until(lambda: site.stats[-1].ended >= before + 4)
    site.until(lambda: site.stats[-1].running == 0)


@pytest.mark.faults
def test_a_conversation_goes_on_when_its_server_was_killed(site: Site) -> None:
    name = token_hex(4)
    first = site.turn(name, 0, "Find the cat.")
    kept = site.keeping(name)
    site.kill(kept)
    second = site.turn(name, 1, "And a cup?")
    assert (second.error_code, second.error_msg) == (ErrorCode.NONE, "")
    assert second.prompt_tokens > first.prompt_tokens
    assert second.kept_tokens == 0, "the other server had to compute all of it"
    _again(site, kept)


@pytest.mark.faults
def test_requests_of_a_killed_server_go_on_at_the_other(site: Site) -> None:
    names = [site.submit() for _ in range(4)]
    site.until(lambda: all(site.of(name) for name in names))
    lost = site.having(names[0])
    (other,) = set(NAMES) - {lost}
    site.kill(lost)
    site.until(lambda: _is_lost(site, lost))
    site.loads.pop(lost)  # its last one is old
    assert site.having(names[0]) == other
    for name in names:
        result = site.ended_plan(name)
        assert (result.error_code, result.error_msg) == (ErrorCode.NONE, "")
        segments = [(one.epoch, one.index) for one in site.of(name)]
        assert segments == sorted(set(segments)), "no segment came twice"
    assert any(one.epoch == 1 for one in site.of(names[0])), "its rest is a plan of the next epoch"
    _again(site, lost)


@pytest.mark.faults
def test_plans_go_on_when_their_server_is_frozen_and_nothing_is_executed_twice(site: Site) -> None:
    names = [site.submit() for _ in range(4)]
    site.until(lambda: all(site.of(name) for name in names))
    frozen = site.having(names[0])
    (other,) = set(NAMES) - {frozen}
    joined = site.dispatcher.output.count(f"server /{frozen}/plan_server joins")
    site.servers[frozen].popen.send_signal(signal.SIGSTOP)
    try:
        site.until(lambda: _is_lost(site, frozen))
        site.loads.pop(frozen)  # its last one is old
        assert site.having(names[0]) == other
    finally:
        site.servers[frozen].popen.send_signal(signal.SIGCONT)
    site.until_joined(frozen, joined + 1)  # it goes on with its old runs until it is asked to end
    for name in names:
        result = site.ended_plan(name)
        assert (result.error_code, result.error_msg) == (ErrorCode.NONE, "")
    site.until(lambda: not any(load.requests for load in site.loads.values()))
    for name in names:
        segments = [(one.epoch, one.index) for one in site.of(name)]
        assert segments == sorted(set(segments)), "no segment came twice, and no older epoch later"
    assert any(one.epoch == 1 for one in site.of(names[0])), "its rest is a plan of the next epoch"


def test_a_server_that_drains_gets_no_requests_and_finishes_its_own(site: Site) -> None:
    old = site.submit()
    draining = site.having(old)
    _change(site, draining, Transition.TRANSITION_DEACTIVATE)
    site.until(lambda: not site.loads[draining].active)
    new = [site.submit(FIND) for _ in range(3)]
    assert draining not in [site.having(request_id) for request_id in new]
    for request_id in (old, *new):
        assert site.ended_plan(request_id).error_code == ErrorCode.NONE
    _change(site, draining, Transition.TRANSITION_ACTIVATE)
    site.until(lambda: site.loads[draining].active)


def test_a_skill_set_reaches_all_servers_and_one_that_joins_later(site: Site) -> None:
    unknown = site.request("", "Go to bay 4.")
    unknown.skill_set = "amr"
    refused = site.call(srv.SubmitPlan, "submit_plan", request=unknown)
    assert refused.error_code == ErrorCode.UNKNOWN_SKILL_SET
    assert refused.error_msg == "unknown skill set 'amr': registered are arm, drone"
    registered = site.call(srv.RegisterSkillSet, "register_skill_set", yaml=AMR)
    assert (registered.name, registered.error_msg) == ("amr", "")
    assert registered.prompt_tokens > 0
    for name in NAMES:
        site.until(lambda name=name: "amr" in _skill_sets(site, name))  # type: ignore[misc]
    site.begin("s3")
    site.until_joined("s3")
    site.until(lambda: "amr" in _skill_sets(site, "s3"))
    answer = site.call(srv.SubmitPlan, "submit_plan", request=unknown)
    assert answer.error_code == ErrorCode.NONE
    site.until(lambda: bool(site.of(answer.request_id)))
    site.call(srv.CancelRequest, "cancel_request", request_id=answer.request_id)


def test_a_dispatcher_that_is_alone_says_that_no_server_is_there(site: Site) -> None:
    for name in list(site.servers):
        site.servers[name].stop()
    site.until(lambda: all(_is_lost(site, name) for name in site.servers))
    refused = site.call(srv.SubmitPlan, "submit_plan", request=site.request("x", FIND))
    assert refused.error_code == ErrorCode.INACTIVE
    assert refused.error_msg == NO_SERVER


def _is_lost(site: Site, name: str) -> bool:
    joins, lost = (
        site.dispatcher.output.rfind(f"server /{name}/plan_server {what}")
        for what in ("joins", "is lost")
    )
    return lost > joins


def _again(site: Site, name: str) -> None:
    """Start a killed server again, and wait until it serves."""
    times = site.dispatcher.output.count(f"server /{name}/plan_server joins")
    site.loads.pop(name, None)
    site.begin(name)
    site.until_joined(name, times + 1)
    site.until(lambda: name in site.loads)


def _skill_sets(site: Site, server: str) -> list[str]:
    return [one.name for one in site.loads[server].skill_sets] if server in site.loads else []


def _change(site: Site, server: str, transition: int) -> None:
    asked = {"transition": Transition(id=transition)}
    assert site.at(server, ChangeState, "change_state", **asked).success


# What is refused, with one sentence each. These dispatchers have names of their own.


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("--dispatcher", "nonsense", "--namespace", "wrong"),
            "dispatcher: unknown dispatcher 'nonsense': choose one of round-robin,",
        ),
        (("--", "-p", "silence_s:=0.1"), "parameter silence_s must be from 0.5 to 3600"),
        (("--", "-p", "max_requests:=0"), "parameter max_requests must be from 1 to 100000"),
        (
            ("--server", "s 1", "--namespace", "wrong"),
            "'s 1' of the parameter servers cannot be the name of a node: ",
        ),
    ],
)
def test_a_wrong_parameter_ends_a_dispatcher_with_one_sentence(
    start: Start, arguments: tuple[str, ...], words: str
) -> None:
    wrong = start("scripts/timely-llm", "dispatch", *arguments)
    assert wrong.wait(WAIT_S) == os.EX_CONFIG
    (said,) = [line for line in wrong.output.splitlines() if "WARN" not in line]
    assert words in said


def test_a_second_dispatcher_of_a_name_is_refused_as_a_server_is(start: Start) -> None:
    both = [start("dispatch.node", "-r", "__ns:=/twice") for _ in range(2)]
    while all(one.popen.poll() is None for one in both):
        assert "Traceback" not in both[0].output
    (loser,) = [one for one in both if one.popen.poll() is not None]
    (winner,) = [one for one in both if one is not loser]
    assert loser.popen.returncode in (1, os.EX_CONFIG)
    assert "another plan server has the action /twice/plan_server/plan" in loser.output
    winner.stop()
    assert winner.popen.returncode == 0


@pytest.mark.extended
def test_a_server_of_the_list_that_is_not_there_is_named(start: Start, domain: int) -> None:
    given = {"name_check_s": 0.0, "servers": "['nowhere/plan_server']"}
    dispatcher = start("dispatch.node", "-r", "__ns:=/alone", **given)
    client = Talker(domain)
    client.until(
        lambda: (
            "the server '/alone/nowhere/plan_server' of the parameter servers is not there yet"
            in dispatcher.output
        )
    )
    client.close()
    dispatcher.stop()


def test_a_server_of_another_interface_joins_no_dispatcher(start: Start, domain: int) -> None:
    arguments = ["-r", "__ns:=/other/s1", "-p", "engine:=simulated", "-p", "name_check_s:=0.0"]
    other = start("test/system/other_server.py", "7", "--ros-args", *arguments)
    dispatcher = start("dispatch.node", "-r", "__ns:=/other", name_check_s=0.0)
    client = Talker(domain)
    words = "the server /other/s1/plan_server has interface 7, and this "
    client.until(lambda: words in dispatcher.output)
    assert dispatcher.output.count(words) == 1
    assert "joins" not in dispatcher.output
    client.close()
    dispatcher.stop()
    other.stop()
