"""Several real servers behind the interface of one."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence, Sized
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from test.dispatch.local import NAME, YAML, LocalServer, Servers
from test.serving.scripted import FIND, request
from timely_llm.core.clock import WallClock
from timely_llm.core.errors import RequestError, TimelyError
from timely_llm.core.generation import State
from timely_llm.core.request import (
    ChatMessage,
    ErrorCode,
    ExecutionReport,
    PlanRequest,
    PlanResult,
    Rejected,
    ReportState,
    Result,
    StreamChunk,
    StreamRequest,
    StreamResult,
)
from timely_llm.core.segment import Segment
from timely_llm.core.time_utility import URGENT
from timely_llm.dispatch.contract import Assignment
from timely_llm.dispatch.front.placement import MoveQuestion
from timely_llm.dispatch.link import Found
from timely_llm.serving.limits import RequestLimits

LOOKS = "".join(f"mf({cm});" for cm in range(10, 30))
"""A plan of twenty segments."""
ARM = YAML.replace("name: drone", "name: glider")


@contextmanager
def servers(*names: str, **settings: Any) -> Iterator[Servers]:
    made = Servers(*names, **settings)
    try:
        yield made
    finally:
        made.close()


def question(name: str = "p", turn: int = 0, words: str = "Why?") -> StreamRequest:
    return StreamRequest(
        name, "person", (ChatMessage("user", words),), conversation="talk", turn=turn, max_tokens=64
    )


def finish(made: Servers, segment: Segment) -> None:
    """Report that the robot has executed a segment."""
    made.relay.report(
        ExecutionReport(
            segment.request_id, segment.agent, ReportState.FINISHED, segment.index, 0.1,
            epoch=segment.epoch,
        )
    )  # fmt: skip


def test_requests_are_spread_and_each_has_its_result() -> None:
    with servers("a", "b") as made:
        for number in range(6):
            made.relay.submit(request(f"r{number}"))
        for number in range(6):
            result = made.result(f"r{number}")
            assert result.error_code is ErrorCode.NONE
            assert isinstance(result, PlanResult) and result.plan == made.clients.text(f"r{number}")
        assert {len(one.sent) for one in made.servers.values()} == {3}
        assert made.clients.accepted_ids == [f"r{number}" for number in range(6)]
        assert made.relay.serving == 0


def test_servers_know_requests_by_the_dispatcher() -> None:
    with servers("a") as made:
        made.relay.submit(request("r"))
        assert made.servers["a"].sent[0].dispatcher == NAME
        made.result("r")


def test_a_dispatcher_before_the_relay_can_ask_for_its_requests() -> None:
    with servers("a", script=lambda key, prompt: LOOKS) as made:
        made.relay.submit(replace(request("r"), dispatcher="/front"))
        made.relay.submit(replace(question(), dispatcher="/front"))
        made.relay.submit(request("client's", agent="other"))
        made.until(lambda: bool(made.clients.chunks))
        plan, answer = made.relay.requests_of("/front").result()
        assert (plan.request.request_id, plan.request.dispatcher) == ("r", "/front")
        assert answer.text == "".join(one.text for one in made.clients.chunks)
        assert answer.made == len(made.clients.chunks)
        assert made.relay.so_far(answer.request.request_id).result() == answer
        assert made.relay.so_far("gone").result() is None
        assert not made.relay.requests_of("").result()
        assert {one.dispatcher for one in made.servers["a"].sent} == {NAME}


def test_without_a_server_a_request_is_refused() -> None:
    with servers() as made, pytest.raises(Rejected, match="no plan server has joined") as refused:
        made.relay.submit(request("r"))
    assert refused.value.code is ErrorCode.INACTIVE


def test_while_all_servers_are_inactive_a_request_is_refused() -> None:
    with servers("a", "b") as made:

        def accept(accepting: bool, *names: str) -> None:
            for name in names:
                made.servers[name].server.accept(accepting)
            made.until(lambda: len(made.relay.views()) == 2 - len(names) * (not accepting))

        accept(False, "a", "b")
        with pytest.raises(Rejected, match=r"all servers are inactive.*\(a, b\)") as refused:
            made.relay.submit(request("r"))
        assert refused.value.code is ErrorCode.INACTIVE
        accept(True, "a", "b")
        made.relay.submit(request("r"))
        assert made.result("r").error_code is ErrorCode.NONE
        changes = [line for line in made.said if "active" in line]
        assert sorted(changes) == [
            "server a is active again", "server a is inactive",
            "server b is active again", "server b is inactive",
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "words"),
    [("skill_set", "unknown skill set"), ("twice", "is being served already"),
     ("full", "the most allowed"), ("inactive", "the server is inactive")],
)  # fmt: skip
def test_what_is_refused_and_why(wrong: str, words: str) -> None:
    limits = RequestLimits(max_requests=1 if wrong == "full" else 8)
    with servers("a", limits=limits, script=lambda key, prompt: LOOKS) as made:
        made.relay.submit(request("first"))
        made.relay.accept(wrong != "inactive")
        name = "first" if wrong == "twice" else "second"
        with pytest.raises(Rejected, match=words):
            made.relay.submit(
                request(name, skill_set="boat") if wrong == "skill_set" else request(name)
            )


def test_a_plan_goes_on_at_another_server_after_what_its_robot_has() -> None:
    with servers("a", "b", script=lambda key, prompt: LOOKS) as made:
        made.relay.submit(request("r", closed_loop=True))
        made.until(lambda: len(made.clients.segments) >= 3)
        first = made.at("r")
        got = len(made.clients.segments)
        first.kill()
        made.until(lambda: made.relay.server_of("r") not in (None, first.name))
        second = made.at("r").sent[-1]
        assert made.clients.text("r", 0) in second.task and second.epoch == 1  # type: ignore[attr-defined]
        for _ in range(50):
            made.turn()
        assert len(made.clients.segments) <= got + 1, "the robot still executes what it has"
        old = [segment for segment in made.clients.segments if segment.epoch == 0]
        for segment in old:
            finish(made, segment)
        made.until(lambda: made.clients.segments[-1].epoch == 1)
        assert [s.index for s in made.clients.segments if s.epoch == 1][:1] == [0]
        executed = 0
        while "r" not in made.clients.results:
            made.turn()
            mine = [s for s in made.clients.segments if s.epoch == 1]
            for segment in mine[executed:]:
                finish(made, segment)
            executed = len(mine)
        result = made.clients.results["r"]
        assert isinstance(result, PlanResult) and result.error_code is ErrorCode.NONE
        assert result.epoch == 1 and result.plan == made.clients.text("r", 1)
        assert result.segments == len({(s.epoch, s.index) for s in made.clients.segments})


def test_an_answer_goes_on_at_another_server_without_a_gap() -> None:
    with servers("a", "b", script=lambda key, prompt: "word " * 60) as made:
        made.relay.submit(question())
        made.until(lambda: len(made.clients.chunks) >= 5)
        made.at("p").kill()
        result = made.result("p")
        assert isinstance(result, StreamResult) and result.error_code is ErrorCode.NONE
        chunks = made.clients.chunks
        assert [chunk.index for chunk in chunks] == list(range(len(chunks)))
        assert result.text == "".join(chunk.text for chunk in chunks)
        assert chunks[-1].final and result.completion_s >= result.ttft_s > 0.0


def test_a_request_that_has_not_begun_goes_elsewhere_as_it_was() -> None:
    with servers("a", "b", script=lambda key, prompt: LOOKS) as made:
        made.relay.submit(request("r"))
        first = made.at("r")
        first.alive = False  # what it makes does not come any more
        first.kill()
        made.until(lambda: made.relay.server_of("r") not in (None, first.name))
        sent = [one for one in first.sent if isinstance(one, PlanRequest)]
        assert made.at("r").sent == [replace(one, epoch=1) for one in sent] != []


def test_a_server_that_refuses_is_passed_over() -> None:
    with servers("a", "b") as made:
        made.servers["a"].server.accept(False)
        for number in range(4):
            made.relay.submit(request(f"r{number}"))
            assert made.result(f"r{number}").error_code is ErrorCode.NONE
        assert len(made.servers["b"].sent) == 4


def test_a_request_that_no_server_takes_ends_with_the_last_reason() -> None:
    with servers("a", "b") as made:
        for one in made.servers.values():
            one.server.accept(False)
        made.relay.submit(request("r"))
        assert made.result("r").error_code is ErrorCode.INACTIVE


def test_requests_wait_for_a_server_and_expire() -> None:
    with servers("a", queue_timeout_s=0.3, script=lambda key, prompt: LOOKS) as made:
        made.relay.submit(request("r"))
        made.servers["a"].alive = False
        made.servers["a"].kill()
        expired = made.result("r")
        assert expired.error_code is ErrorCode.EXPIRED
        assert expired.error_msg.startswith("waited 0 s: no plan server has joined")


def test_an_old_request_that_loses_its_server_waits_for_another() -> None:
    class Later(WallClock):
        def now(self) -> float:
            return super().now() + 1000.0

    with servers("a", script=lambda key, prompt: LOOKS) as made:
        made.relay.submit(request("r"))
        made.until(lambda: bool(made.clients.segments))
        made.relay._clock = Later()
        made.servers["a"].kill()
        made.until(lambda: not made.relay.servers)
        made.start("b")
        assert made.result("r").error_code is ErrorCode.NONE


def test_a_conversation_returns_to_the_server_with_its_kv() -> None:
    with servers("a", "b", rule="most-worth", script=lambda key, prompt: "Yes.") as made:
        made.relay.submit(question("p0", words="Why? " * 200))
        made.result("p0")
        keeper = next(one for one in made.servers.values() if one.sent)
        made.until(lambda: any(view.kept for view in made.relay.views()))
        made.relay.submit(question("p1", 1, "And then?"))
        result = made.result("p1")
        assert isinstance(result, StreamResult) and result.kept_tokens > 0
        again = keeper.sent[-1]
        assert isinstance(again, StreamRequest)
        assert (again.turn, len(again.messages)) == (1, 1)


def test_a_conversation_goes_on_from_its_text_when_its_server_is_lost() -> None:
    with servers("a", "b", script=lambda key, prompt: "Yes.") as made:
        made.relay.submit(question("p0"))
        made.result("p0")
        keeper = next(one for one in made.servers.values() if one.sent)
        keeper.kill()
        made.until(lambda: len(made.relay.servers) == 1)
        made.relay.submit(question("p1", 1, "And then?"))
        assert made.result("p1").error_code is ErrorCode.NONE
        (other,) = (one for one in made.servers.values() if one is not keeper)
        again = other.sent[-1]
        assert isinstance(again, StreamRequest) and again.turn == 0
        assert [message.content for message in again.messages] == ["Why?", "Yes.", "And then?"]


def test_a_server_that_forgot_a_conversation_gets_all_of_it() -> None:
    with servers("a", script=lambda key, prompt: "Yes.") as made:
        made.relay.submit(question("p0"))
        made.result("p0")
        made.servers["a"].server.call(lambda loop: loop.conversations.forget_all()).result(10.0)
        made.relay.submit(question("p1", 1, "And then?"))
        assert made.result("p1").error_code is ErrorCode.NONE
        turns = [one.turn for one in made.servers["a"].sent if isinstance(one, StreamRequest)]
        assert turns == [0, 1, 0]


def test_a_turn_of_an_unknown_conversation_is_refused() -> None:
    with servers("a") as made, pytest.raises(Rejected) as refused:
        made.relay.submit(question("p", 2))
    assert refused.value.code is ErrorCode.UNKNOWN_CONVERSATION


def test_a_skill_set_of_a_client_reaches_all_servers_and_later_ones() -> None:
    with servers("a", "b") as made:
        name, tokens = made.value(made.relay.skill_sets.register(ARM))
        assert name == "glider" and tokens > 0
        made.start("c")
        made.until(lambda: all("glider" in made.known(name) for name in "abc"))
        assert made.relay.skill_sets.names == ["drone", "glider"]
        assert made.relay.skill_sets.text("glider") == ARM
        made.value(made.relay.unregister("glider"))
        assert made.relay.skill_sets.names == ["drone"]
        assert all(one.server.skill_sets.names == ["drone"] for one in made.servers.values())


def test_a_skill_set_in_use_stays() -> None:
    with servers("a", script=lambda key, prompt: LOOKS) as made:
        made.relay.submit(request("r"))
        with pytest.raises(Rejected, match="1 request uses it"):
            made.value(made.relay.unregister("drone"))


def test_a_text_that_is_no_skill_set_is_refused() -> None:
    with servers("a") as made, pytest.raises(TimelyError):
        made.value(made.relay.skill_sets.register("no: skill set"))


def test_a_client_cancels_its_request() -> None:
    with servers("a", script=lambda key, prompt: LOOKS) as made:
        made.relay.submit(request("r"))
        made.until(lambda: bool(made.clients.segments))
        assert made.value(made.relay.cancel("r")) is True
        assert made.clients.results["r"].error_code is ErrorCode.CANCELED
        assert made.value(made.relay.cancel("r")) is False
        made.until(lambda: not made.servers["a"].server.serving)


def test_requests_that_are_served_are_listed_with_their_segments() -> None:
    with servers("a", script=lambda key, prompt: LOOKS) as made:
        made.relay.submit(request("r"))
        made.until(lambda: len(made.clients.segments) >= 2)
        (status,) = made.value(made.relay.statuses())
        assert (status.request_id, status.plan, status.state) == ("r", True, State.RUNNING)
        assert made.value(made.relay.segments("agent-r")) == made.clients.segments
        with pytest.raises(RequestError, match="is not one of 'other'"):
            made.value(made.relay.segments("other", "r"))
        with pytest.raises(RequestError, match="no request 'gone'"):
            made.value(made.relay.segments("", "gone"))


@pytest.mark.parametrize(("winner", "loser"), ["ab", "ba"])
def test_the_loser_of_a_hedge_ends_within_one_step(winner: str, loser: str) -> None:
    in_midst = threading.Event()

    def script(key: str, prompt: str) -> str:
        assert in_midst.wait(20.0)
        return FIND

    with servers(hedge=True) as made:
        for name in "ab":
            made.script = script if name == winner else lambda key, prompt: f"l('{'a ' * 1000}');"
            made.start(name)
        lost = made.servers[loser]
        made.relay.submit(request("r", URGENT, max_tokens=2000))
        assert all(one.sent for one in made.servers.values())
        lost.frozen = True  # else a view of it would have the request canceled too
        while sum("r" in keys for keys in lost.steps) < 3:
            time.sleep(0.001)
        in_midst.set()
        made.until(lambda: "r" in lost.canceled_at and not lost.server.serves("r"))
        assert made.at("r") is made.servers[winner]
        made.result("r")
        assert sum("r" in keys for keys in lost.steps[lost.canceled_at["r"] :]) <= 1


def test_a_new_relay_goes_on_with_the_requests_of_the_one_before() -> None:
    with servers("a", "b", script=lambda key, prompt: LOOKS) as made:
        made.relay.submit(request("r", closed_loop=True))
        made.relay.submit(question())
        made.until(lambda: bool(made.clients.segments and made.clients.chunks))
        made.new_relay()
        for name, one in made.servers.items():
            made.relay.joined(name, one)
        made.until(lambda: made.relay.serves("r") and made.relay.serves("p"))
        assert made.value(made.relay.segments("", "r"))[0] == made.clients.segments[0]
        made.result("p")
        indices = [chunk.index for chunk in made.clients.chunks]
        assert len(set(indices)) == len(indices), "no token comes twice"
        made.until(lambda: any(segment.final for segment in made.clients.segments))
        finish(made, made.clients.segments[-1])
        result = made.result("r")
        assert isinstance(result, PlanResult) and result.plan == LOOKS


def test_a_new_relay_goes_on_with_the_newest_run_of_a_plan() -> None:
    with servers("a", "b", script=lambda key, prompt: LOOKS) as made:
        made.relay.submit(request("r", closed_loop=True))
        made.until(lambda: len(made.clients.segments) >= 3)
        old = made.at("r")
        old.frozen = True
        made.relay.lost(old.name, "it is silent")
        made.until(lambda: made.relay.server_of("r") not in (None, old.name))
        new = made.at("r")
        made.new_relay()
        old.frozen = False
        made.relay.joined(old.name, old)
        made.until(lambda: made.relay.server_of("r") == old.name)
        made.relay.joined(new.name, new)
        made.until(lambda: made.relay.server_of("r") == new.name)
        made.until(lambda: not old.server.serves("r"))
        assert new.server.serves("r")
        made.until(lambda: made.clients.segments[-1].epoch == 1)
        made.until(lambda: made.clients.segments[-1].final)
        for segment in [one for one in made.clients.segments if one.epoch == 1]:
            finish(made, segment)
        result = made.result("r")
        assert isinstance(result, PlanResult) and result.epoch == 1
        assert result.plan == made.clients.text("r", 1)


class CutOff(LocalServer):
    """A server of which no segment comes while it is frozen."""

    def segment(self, segment: Segment) -> None:
        if not self.frozen:
            super().segment(segment)


def joined(made: Servers, name: str) -> bool:
    """Return whether a server has joined."""
    return name in made.relay.servers


@pytest.mark.parametrize("newest_first", [False, True])
def test_a_new_relay_goes_on_with_the_newest_run_of_a_plan_that_had_not_begun(
    newest_first: bool,
) -> None:
    with servers("a", "b", script=lambda key, prompt: LOOKS, kind=CutOff) as made:
        for one in made.servers.values():
            one.frozen = True
        made.relay.submit(request("r", closed_loop=True))
        old = made.at("r")
        for one in made.servers.values():
            one.frozen = one is old
        made.until(lambda: old.server.serves("r"))
        made.relay.lost(old.name, "it is silent")
        made.until(lambda: bool(made.clients.segments))
        new = made.at("r")
        assert new is not old
        made.new_relay()
        old.frozen = False
        for one in (new, old) if newest_first else (old, new):
            made.relay.joined(one.name, one)
            made.until(partial(joined, made, one.name))
        made.until(lambda: made.relay.server_of("r") == new.name)
        made.until(lambda: not old.server.serves("r"))
        made.until(lambda: made.clients.segments[-1].final)
        plan = made.value(made.relay.segments("", "r"))
        assert {segment.epoch for segment in [*made.clients.segments, *plan]} == {1}
        assert "".join(segment.text for segment in plan) == LOOKS


class Asked(LocalServer):
    """A server that answers late what it serves."""

    def find(self, answered: Callable[[Sequence[Found]], None]) -> None:
        super().find(lambda found: self.late.append(lambda: answered(found)))


def test_what_a_server_delivers_before_a_new_relay_knows_its_requests_is_not_lost() -> None:
    with servers("a", kind=Asked, script=lambda key, prompt: LOOKS) as made:
        one = made.servers["a"]
        made.relay.submit(request("r", closed_loop=True))
        made.relay.submit(question())
        made.until(lambda: bool(made.clients.segments and made.clients.chunks))
        one.late.clear()
        made.new_relay()
        made.relay.joined("a", one)
        made.until(lambda: bool(one.late))
        before = len(made.clients.chunks)
        made.until(lambda: not one.server.serves("p"))
        assert len(made.clients.chunks) == before, "the relay does not know the request"
        one.late.pop()()
        known = made.value(made.relay.segments("", "r"))  # its robot asks for them
        made.result("p")
        indices = [chunk.index for chunk in made.clients.chunks]
        assert indices == sorted(set(indices)), "no token is missing, none comes twice"
        made.until(lambda: any(segment.final for segment in made.clients.segments))
        places = [segment.index for segment in (*known, *made.clients.segments)]
        assert sorted(set(places)) == list(range(max(places) + 1))
        finish(made, made.clients.segments[-1])
        made.result("r")


class AskedLate(Asked):
    """A server that also looks late for what it serves."""

    def find(self, answered: Callable[[Sequence[Found]], None]) -> None:
        self.late.append(lambda: super(AskedLate, self).find(answered))


def test_a_request_that_ends_while_its_server_is_asked_has_one_result() -> None:
    with servers("a", kind=AskedLate, script=lambda key, prompt: LOOKS) as made:
        one = made.servers["a"]
        made.relay.submit(request("r", closed_loop=True))
        made.until(lambda: bool(made.clients.segments))
        one.late.pop()()
        made.relay.cancel("r")
        assert made.result("r").error_code is ErrorCode.CANCELED
        one.late.pop()()
        assert not made.relay.serves("r"), "it is not taken for one of an earlier dispatcher"


def test_a_server_that_comes_back_is_rid_of_what_others_serve_now() -> None:
    with servers("a", "b", script=lambda key, prompt: LOOKS) as made:
        made.relay.submit(request("r", closed_loop=True))
        made.until(lambda: bool(made.clients.segments))
        old = made.at("r")
        old.frozen = True
        made.relay.lost(old.name, "it is silent")
        assert made.relay.server_of("r") != old.name
        old.frozen = False
        made.until(lambda: not old.server.serving)
        epochs = [segment.epoch for segment in made.clients.segments]
        assert epochs == sorted(epochs)


def test_a_drained_relay_serves_what_it_has_and_no_more() -> None:
    with servers("a") as made:
        made.relay.submit(request("r"))
        drained = made.relay.drain(20.0)
        with pytest.raises(Rejected, match="the server is inactive"):
            made.relay.submit(request("s"))
        made.value(drained)
        assert made.clients.results["r"].error_code is ErrorCode.NONE


def test_a_relay_that_accepts_again_ends_nothing_of_what_it_drained() -> None:
    with servers("a", script=lambda key, prompt: LOOKS) as made:
        made.relay.submit(request("r", closed_loop=True))
        drained = made.relay.drain(0.3)
        made.relay.accept(True)
        assert drained.done()
        made.relay.submit(request("s"))
        assert made.result("s").error_code is ErrorCode.NONE
        end_s = time.monotonic() + 0.5
        made.until(lambda: time.monotonic() > end_s)
        assert made.relay.serves("r")


def test_a_closed_relay_ends_all_here_and_at_the_servers() -> None:
    with servers("a", script=lambda key, prompt: LOOKS) as made:
        made.relay.submit(request("r"))
        made.until(lambda: bool(made.clients.segments))
        made.relay.close()
        assert made.clients.results["r"].error_code is ErrorCode.SHUTTING_DOWN
        made.until(lambda: not made.servers["a"].server.serving)


def test_a_new_relay_asks_the_servers_how_a_request_ended() -> None:
    with servers("a", "b") as made:
        made.relay.submit(request("r"))
        ended = made.result("r")
        made.new_relay()
        for name, one in made.servers.items():
            made.relay.joined(name, one)
        made.until(lambda: len(made.relay.servers) == 2)
        assert made.value(made.relay.result("r")) == ended
        assert made.value(made.relay.result("never")) is None


def test_deliveries_do_not_wait_until_it_is_found_which_requests_move(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    free: list[bool] = []

    def answer(question: MoveQuestion) -> list[Assignment]:
        taken = threading.Thread(target=lambda: free.append(bool(made.relay.servers)))
        taken.start()
        taken.join(10.0)
        return []

    monkeypatch.setattr(MoveQuestion, "answer", property(answer))
    with servers("a", "b", script=lambda key, prompt: LOOKS) as made:
        made.relay.submit(request("r"))
        (view,) = (one for one in made.relay.views() if one.requests)
        made.relay.heard(replace(view, unstarted=frozenset({"r"})), made.servers[view.name].life)
        assert free and all(free)
        made.result("r")


def test_a_request_that_moved_is_not_known_by_the_server_that_it_left() -> None:
    with servers("a", "b", script=lambda key, prompt: LOOKS) as made:
        made.relay.submit(request("r", closed_loop=True))
        left = made.at("r")
        left.withdraw("r", lambda: None)
        made.until(lambda: not left.server.serving)
        (other,) = [one for one in made.servers.values() if one is not left]
        other.send(request("r", closed_loop=True))
        made.new_relay()
        made.relay.joined(left.name, left)
        made.until(lambda: len(made.relay.servers) == 1)
        assert made.value(made.relay.result("r")) is None


class Reading(LocalServer):
    """A server that answers late what its skill sets are."""

    def skill_set(self, name: str, answered: Callable[[str], None]) -> None:
        self.late.append(lambda: super(Reading, self).skill_set(name, answered))


def test_a_server_joins_when_its_skill_sets_are_read() -> None:
    with servers(kind=Reading) as made:
        one = made.servers["a"] = Reading("a", made, made.script)
        made.relay.joined("a", one)
        made.until(lambda: bool(one.late))
        assert made.relay.servers == []
        one.late.pop()()
        made.until(lambda: made.relay.servers == ["a"])
        made.relay.submit(request("r"))
        assert made.result("r").error_code is ErrorCode.NONE


def test_a_server_that_is_about_to_join_is_asked_how_a_request_ended() -> None:
    with servers(kind=Reading) as made:
        one = made.servers["a"] = Reading("a", made, made.script)
        made.relay.joined("a", one)
        made.until(lambda: bool(one.late))
        one.late.pop()()
        made.until(lambda: made.relay.servers == ["a"])
        made.relay.submit(request("r"))
        ended = made.result("r")
        made.new_relay()
        made.relay.joined("a", one)
        made.until(lambda: bool(one.late))
        assert made.relay.servers == []
        assert made.value(made.relay.result("r")) == ended


class Overtaking(LocalServer):
    """A server with results that come before the last segments and tokens."""

    def segment(self, segment: Segment) -> None:
        self.late.append(lambda: super(Overtaking, self).segment(segment))

    def chunk(self, chunk: StreamChunk) -> None:
        self.late.append(lambda: super(Overtaking, self).chunk(chunk))

    def ended(self, result: Result) -> None:
        super().ended(result)
        for send in self.late:
            send()
        self.late.clear()


def test_a_result_waits_for_what_it_has_overtaken() -> None:
    with servers(script=lambda key, prompt: LOOKS, kind=Overtaking) as made:
        made.start("a")
        made.relay.submit(request("r"))
        made.relay.submit(question())
        plan, answer = made.result("r"), made.result("p")
        assert isinstance(plan, PlanResult) and plan.plan == made.clients.text("r") == LOOKS
        assert isinstance(answer, StreamResult)
        assert answer.text == "".join(chunk.text for chunk in made.clients.chunks)


class Deaf(LocalServer):
    """A server that never answers what it is to register or to forget."""

    def register(self, text: str, answered: Callable[[str, int, str], None]) -> None: ...

    def unregister(self, name: str, answered: Callable[[str], None]) -> None: ...


def test_a_server_that_dies_without_an_answer_holds_no_client_up() -> None:
    with servers("a", kind=Deaf) as made:
        registered = made.relay.skill_sets.register(ARM)
        for _ in range(20):
            made.turn()
        assert not registered.done()
        made.servers["a"].kill()
        with pytest.raises(Rejected, match="a: it was lost"):
            made.value(registered)


def test_a_server_that_returns_with_another_text_of_a_skill_set_serves_by_that() -> None:
    changed = YAML + "\n# changed\n"
    with servers("a") as made:
        made.servers["a"].kill()
        made.until(lambda: not made.relay.servers)
        made.yaml = changed
        made.start("a")
        assert made.relay.skill_sets.text("drone") == changed
        made.relay.submit(request("r"))
        assert made.result("r").error_code is ErrorCode.NONE


def kept(made: Servers) -> dict[str, int]:
    """Return how much the relay keeps of requests."""
    relay = made.relay
    parts: dict[str, Sized] = {
        "sent": relay._sent, "waits": relay._waits_s, "cancels": relay._cancels,
        "early": relay._early._waiting, "open": relay._front.open, "gate": relay._gate,
        "ends": relay._ends._open,
    }  # fmt: skip
    return {name: len(part) for name, part in parts.items() if len(part)}


def test_nothing_is_kept_of_requests_that_have_ended() -> None:
    with servers("a", "b", script=lambda key, prompt: LOOKS) as made:
        for number in range(30):
            made.relay.submit(request(f"r{number}", agent=f"robot-{number}"))
            made.relay.submit(replace(question(f"p{number}"), agent=f"person-{number}"))
            made.turn()
            if number % 3 == 0:
                made.relay.cancel(f"r{number}")
            if number == 15:
                made.servers["a"].kill()
                made.start("c")
        made.until(lambda: len(made.clients.results) == 60, 60.0)
        made.value(made.relay.result("r1"))
        for _ in range(10):
            made.turn()
        assert kept(made) == {}
        assert made.relay._front.wake_s == math.inf
