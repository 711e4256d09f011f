"""Skill sets of several servers: which requests wait for them, and which are refused."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace

import pytest

from test.dispatch.local import NAME, YAML, LocalServer, Servers
from test.dispatch.test_relay import ARM, servers
from test.serving.scripted import request
from timely_llm.core.clock import WallClock
from timely_llm.core.request import ErrorCode, Rejected
from timely_llm.dispatch.assign.registry import make_dispatcher
from timely_llm.dispatch.relay import Relay
from timely_llm.dispatch.settings import DispatchSettings
from timely_llm.serving.limits import RequestLimits
from timely_llm.serving.server.registration import Read
from timely_llm.skills.skill_set import SkillSet, parse_skill_set

GLIDER = replace(request("r"), skill_set="glider")


class Telling(LocalServer):
    """A server that answers what its skill sets are when the test lets it."""

    def skill_set(self, name: str, answered: Callable[[str], None]) -> None:
        self.late.append(lambda: super(Telling, self).skill_set(name, answered))


def again(made: Servers, read: Read = parse_skill_set) -> None:
    """Start the dispatcher again: it finds the servers."""
    made.relay = Relay(
        make_dispatcher("round-robin"), made.clients, WallClock(),
        DispatchSettings(NAME, RequestLimits()), read, made.said.append, lambda: None,
    )  # fmt: skip
    for name, one in made.servers.items():
        made.relay.joined(name, one)


def test_a_server_joins_a_new_dispatcher_when_the_text_of_another_server_is_read() -> None:
    reading: Future[None] = Future()

    def read(text: str, source: str) -> SkillSet:
        reading.result(20.0)
        return parse_skill_set(text, source)

    with servers("a", "b") as made:
        again(made, read)
        for _ in range(20):
            made.turn()
        assert made.relay.servers == []
        reading.set_result(None)
        made.until(lambda: made.relay.servers == ["a", "b"])
        made.relay.submit(request("r"))
        assert made.result("r").error_code is ErrorCode.NONE


def test_a_request_waits_while_a_server_may_have_its_skill_set() -> None:
    with servers("a") as made:
        made.yaml = ARM
        late = made.servers["b"] = Telling("b", made, made.script)
        made.relay.joined("b", late)
        made.relay.submit(GLIDER)
        made.until(lambda: bool(late.late))
        assert made.relay.server_of("r") is None and made.relay.serves("r")
        late.late.pop()()
        assert made.result("r").error_code is ErrorCode.NONE
        assert late.sent


def test_a_request_is_refused_when_it_is_known_that_no_server_has_its_skill_set() -> None:
    with servers("a") as made:
        late = made.servers["b"] = Telling("b", made, made.script)
        made.relay.joined("b", late)
        made.relay.submit(GLIDER)
        made.until(lambda: bool(late.late))
        late.late.pop()()
        ended = made.result("r")
        assert ended.error_code is ErrorCode.UNKNOWN_SKILL_SET
        assert ended.error_msg == "unknown skill set 'glider': registered are drone"
        with pytest.raises(Rejected, match="unknown skill set 'glider'"):
            made.relay.submit(GLIDER)


def test_a_server_that_is_found_and_silent_is_not_awaited_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("timely_llm.dispatch.relay.UNHEARD_S", 0.1)
    with servers("a") as made:
        silent = made.servers["b"] = LocalServer("b", made, made.script)
        silent.frozen = True
        made.relay.joined("b", silent)
        made.relay.submit(GLIDER)
        assert made.result("r").error_code is ErrorCode.UNKNOWN_SKILL_SET


def test_a_request_waits_for_the_skill_set_of_a_server_that_was_started_again() -> None:
    with servers("a") as made:
        made.value(made.relay.skill_sets.register(ARM))
        made.until(lambda: "glider" in made.known("a"))
        one = made.servers["a"]
        one.frozen = True
        made.value(one.server.unregister("glider"))  # as by a new start that says nothing yet
        made.relay.submit(GLIDER)
        for _ in range(20):
            made.turn()
        assert made.relay.serves("r") and len(one.sent) == 1
        made.value(one.server.skill_sets.register(ARM, read=parse_skill_set))
        one.frozen = False
        assert made.result("r").error_code is ErrorCode.NONE


def test_servers_that_are_started_again_get_what_an_earlier_dispatcher_gave_them() -> None:
    with servers("a", "b") as made:
        made.value(made.relay.skill_sets.register(ARM))
        made.until(lambda: all("glider" in made.known(name) for name in "ab"))
        again(made)
        made.until(lambda: len(made.relay.servers) == 2)
        for name in "ab":
            made.servers[name].kill()
            made.until(lambda name=name: name not in made.relay.servers)  # type: ignore[misc]
            made.start(name)
        made.until(lambda: all("glider" in made.known(name) for name in "ab"))


def test_a_server_does_not_get_back_what_was_unregistered() -> None:
    with servers("a") as made:
        made.value(made.relay.skill_sets.register(ARM))
        made.until(lambda: "glider" in made.known("a"))
        made.servers["a"].kill()
        made.until(lambda: not made.relay.servers)
        made.value(made.relay.unregister("glider"))
        made.start("a")
        assert made.servers["a"].server.skill_sets.names == ["drone"]


def test_all_skill_sets_of_a_server_are_read_though_they_are_many() -> None:
    names = [f"drone{number}" for number in range(20)]
    with servers("a") as made:
        for name in names:
            text = YAML.replace("name: drone", f"name: {name}")
            made.value(made.servers["a"].server.skill_sets.register(text, read=parse_skill_set))
        again(made)
        made.until(lambda: set(made.known("a")) == {"drone", *names})
