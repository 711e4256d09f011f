"""Requests at several servers: gathered, assigned, moved, and sent on when a server is lost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from test.dispatch.views import plan, question, server
from test.examples import examples
from timely_llm.core.request import (
    MAX_TASK_CHARACTERS,
    ChatMessage,
    ErrorCode,
    ExecutionReport,
    PlanRequest,
    Rejected,
    ReportState,
    StreamChunk,
    StreamRequest,
)
from timely_llm.core.segment import Segment
from timely_llm.core.time_utility import NORMAL, URGENT
from timely_llm.dispatch.assign.registry import make_dispatcher
from timely_llm.dispatch.contract import GATHER_S, LONGEST_BURST_S, Due, ServerView, Waiting
from timely_llm.dispatch.front import Action, Finish, Front, Send, Withdraw
from timely_llm.experiments.sources import shipped_skill_sets

DRONE = next(iter(shipped_skill_sets().values()))
GO = PlanRequest("r", "robot-r", "drone", "Go.", NORMAL)
QUEUE = (Due(0.1, 8.0, 2.0, 0.3, 60),) * 12
BUSY = (Due(0.1, 1e4),)


class Words:
    """Words the rest of requests: plans as a skill set does, answers with what was said."""

    def task(self, request: PlanRequest, plan: str, done: str) -> str:
        return DRONE.recovery_text(request.task, plan, "server lost", done)

    def answer(self, request: StreamRequest, text: str, tokens: int) -> StreamRequest:
        said = (ChatMessage("assistant", text), ChatMessage("user", "Go on."))
        return replace(
            request, messages=request.messages + said, max_tokens=request.max_tokens - tokens
        )


def front(*views: ServerView, rule: str = "most-worth", moves: bool = True) -> Front:
    made = Front(make_dispatcher(rule), Words(), moves)
    for view in views or (server("a", due=BUSY), server("b", due=BUSY)):
        made.heard(view, 0.0, 0.0)
    return made


def sent(actions: Sequence[Action]) -> list[tuple[str, str]]:
    return [(one.waiting.key, one.server) for one in actions if isinstance(one, Send)]


def begun(made: Front, request: PlanRequest = GO, segments: int = 2, final: bool = False) -> str:
    """Ask for a plan and deliver some of it; return its server."""
    ((_, name),) = sent(made.asked(Waiting(request, 0.0, 760), 0.0))
    for index in range(segments):
        last = final and index == segments - 1
        made.segment(Segment("r", "robot-r", index, f"up({index});", final=last))
    return name


def rest(actions: Sequence[Action]) -> tuple[str, Waiting, PlanRequest]:
    """Return the only action: a server, and the plan request that it gets."""
    (one,) = actions
    assert isinstance(one, Send) and isinstance(one.waiting.request, PlanRequest)
    return one.server, one.waiting, one.waiting.request


def report(state: ReportState, index: int, epoch: int = 0) -> ExecutionReport:
    return ExecutionReport("r", "robot-r", state, index, epoch=epoch)


def test_a_request_goes_to_a_server_at_once_while_servers_work() -> None:
    made = front()
    assert sent(made.asked(plan("r"), 0.0)) in ([("r", "a")], [("r", "b")])
    assert made.wake_s == math.inf and made.waiting == []


def test_a_burst_is_assigned_together() -> None:
    made = front(server("a"), server("b"))
    assert made.asked(plan("r0", asked_s=1.0), 1.0) == []
    assert made.asked(plan("r1", asked_s=1.001), 1.001) == []
    assert made.wake_s == 1.001 + GATHER_S and made.waiting == ["r0", "r1"]
    assert made.tick(1.0 + GATHER_S) == []
    assert sorted(name for _, name in sent(made.tick(made.wake_s))) == ["a", "b"]
    assert made.waiting == [] and made.wake_s == math.inf


def test_a_burst_ends_though_requests_go_on_to_come() -> None:
    made = front(server("a"))
    for number in range(40):
        now = 1.0 + number * 0.001
        made.asked(plan(f"r{number}", asked_s=now), now)
    assert 1.0 + LONGEST_BURST_S <= made.wake_s < 1.001 + LONGEST_BURST_S
    assert len(sent(made.tick(made.wake_s))) == 40


def test_an_id_that_is_served_is_refused() -> None:
    made = front()
    made.asked(plan("r"), 0.0)
    with pytest.raises(Rejected, match="is being served already"):
        made.asked(plan("r"), 0.1)
    made.ended("r")
    assert len(sent(made.asked(plan("r"), 0.2))) == 1


def test_a_request_that_has_not_begun_goes_elsewhere_as_it_was() -> None:
    made, one = front(), plan("r")
    ((_, name),) = sent(made.asked(one, 0.0))
    (again,) = made.lost(name, 5.0)
    assert again == Send(one, "b" if name == "a" else "a")
    assert made.serves(again.server, "r") and not made.serves(name, "r")


def test_a_plan_that_has_begun_goes_on_with_its_next_epoch_as_an_urgent_request() -> None:
    made = front()
    name, waiting, request = rest(made.lost(begun(made), 5.0))
    task = Words().task(GO, "up(0);up(1);", "up(0);up(1);")
    assert request == replace(GO, task=task, time_utility=URGENT) and waiting.asked_s == 5.0
    assert made.segment(Segment("r", "robot-r", 0, "down();")).epoch == 1
    finished = made.report(report(ReportState.FINISHED, 0, epoch=1))
    assert finished == (name, report(ReportState.FINISHED, 0))
    late = made.report(report(ReportState.FINISHED, 1))
    assert late == (name, report(ReportState.ALIVE, 0)), "it is about the plan before"


def test_a_plan_goes_on_again_with_the_words_that_were_asked_first() -> None:
    made = front(*(server(name, due=BUSY) for name in "abc"))
    name, _, _ = rest(made.lost(begun(made), 5.0))
    made.segment(Segment("r", "robot-r", 0, "down();", epoch=2))
    _, _, request = rest(made.lost(name, 6.0))
    assert request.task == Words().task(GO, "down();", "up(0);up(1);down();")
    assert made.segment(Segment("r", "robot-r", 0, "up();")).epoch == 4


def test_a_plan_goes_on_after_what_its_robot_executed() -> None:
    made = front()
    name = begun(made, replace(GO, closed_loop=True), segments=3)
    assert made.report(report(ReportState.FINISHED, 0)) == (name, report(ReportState.FINISHED, 0))
    made.report(report(ReportState.STARTED, 1))
    _, _, request = rest(made.lost(name, 5.0))
    assert request.task == Words().task(GO, "up(0);up(1);up(2);", "up(0);")


def test_what_follows_a_failed_segment_was_not_executed() -> None:
    made = front()
    name = begun(made, segments=3)
    made.report(report(ReportState.FAILED, 1))
    made.segment(Segment("r", "robot-r", 0, "down();", epoch=1))
    _, _, request = rest(made.lost(name, 5.0))
    assert request.task == Words().task(GO, "down();", "up(0);down();")


def test_a_last_segment_that_comes_twice_counts_once() -> None:
    made = front()
    name = begun(made, segments=2)
    made.segment(Segment("r", "robot-r", 1, "up(1);}", epoch=0))
    _, _, request = rest(made.lost(name, 5.0))
    assert request.task == Words().task(GO, "up(0);up(1);}", "up(0);up(1);}")


def test_a_whole_plan_is_not_sent_again() -> None:
    made = front()
    assert made.lost(begun(made, final=True), 5.0) == [Finish("r")]
    assert made.server_of("r") is None and made.waiting == []
    assert made.report(report(ReportState.FINISHED, 1)) is None


def test_a_plan_that_returned_is_not_sent_again() -> None:
    made = front()
    name = begun(made)
    made.report(report(ReportState.RETURNED, 1))
    assert made.lost(name, 5.0) == [Finish("r")]


def test_a_given_plan_that_has_begun_ends_with_its_server() -> None:
    made = front()
    (end,) = made.lost(begun(made, replace(GO, given_plan="up(0);up(1);up(2);")), 5.0)
    assert isinstance(end, Finish) and end.code is ErrorCode.ENGINE_FAILED
    assert end.reason.startswith("its server was lost")


def test_a_rest_that_no_server_admits_ends_the_request() -> None:
    made = front()
    (end,) = made.lost(begun(made, replace(GO, task="x" * MAX_TASK_CHARACTERS)), 5.0)
    assert isinstance(end, Finish) and "could not be asked for" in end.reason


def test_an_answer_goes_on_from_its_text() -> None:
    made = front()
    ((_, name),) = sent(made.asked(question("p"), 0.0))
    for index, text in enumerate((" so", " far")):
        made.chunk(StreamChunk("p", "person", index, text))
    (again,) = made.lost(name, 5.0)
    assert isinstance(again, Send) and isinstance(again.waiting.request, StreamRequest)
    assert again.waiting.request.messages[1:] == (
        ChatMessage("assistant", " so far"), ChatMessage("user", "Go on."),
    )  # fmt: skip
    assert (again.waiting.request.max_tokens, again.waiting.answer_tokens) == (254, 98.0)
    assert made.chunk(StreamChunk("p", "person", 0, " good")).index == 2
    assert made.lost(again.server, 6.0) == [] and made.waiting == ["p"], "no server is left"


def test_without_a_server_a_request_waits_for_one() -> None:
    made = Front(make_dispatcher("round-robin"), Words())
    assert made.asked(plan("r"), 0.0) == [] or made.tick(made.wake_s) == []
    assert made.waiting == ["r"]
    assert made.heard(server("a", skill_sets={"arm": 5}), 1.0, 1.0) == []
    assert sent(made.heard(server("b"), 1.0, 1.0)) == [("r", "b")]
    assert made.waiting == [] and made.server_of("r") == "b"


def moving(now: float = 0.0) -> tuple[Front, str, str]:
    """Return a front with a request that is to move, its server and the other."""
    made = front()
    ((_, old),) = sent(made.asked(plan("r", URGENT), now))
    (one,) = made.heard(server(old, due=QUEUE, unstarted=frozenset({"r"})), 0.1, 0.1)
    assert one == Withdraw("r", old)
    return made, old, "b" if old == "a" else "a"


def test_a_request_leaves_a_long_queue_once_it_is_withdrawn() -> None:
    made, old, new = moving()
    assert made.heard(server(old, due=QUEUE, unstarted=frozenset({"r"})), 0.2, 0.2) == []
    assert made.serves(old, "r"), "it may have begun"
    made.withdrawn("r", old, 0.25)
    assert made.wake_s == 0.25 and made.waiting == ["r"] and made.server_of("r") is None
    assert made.tick(0.2) == []
    assert sent(made.tick(0.25)) == [("r", new)]
    made.withdrawn("r", old, 0.3)
    assert made.serves(new, "r"), "the old server has no say"


def test_a_request_that_began_stays_and_may_be_withdrawn_later() -> None:
    made, old, _ = moving()
    made.stays("r", old)
    assert made.serves(old, "r")
    again = made.heard(server(old, due=QUEUE, unstarted=frozenset({"r"})), 0.2, 0.2)
    assert again == [Withdraw("r", old)]


def test_a_request_moves_to_another_server_if_the_new_one_was_lost() -> None:
    made, old, new = moving()
    made.withdrawn("r", old, 0.25)
    assert made.lost(new, 0.2) == []
    assert sent(made.tick(0.25)) == [("r", old)]


def test_a_request_that_its_server_gave_back_unasked_is_assigned() -> None:
    made = front()
    ((_, name),) = sent(made.asked(plan("r"), 0.0))
    made.withdrawn("r", name, 0.1)
    assert len(sent(made.tick(0.1))) == 1 and made.waiting == []


def test_a_canceled_request_is_forgotten_wherever_it_is() -> None:
    made, old, _ = moving()
    made.withdrawn("r", old, 0.25)
    made.ended("r")
    assert made.waiting == [] and made.tick(0.25) == []


def test_requests_stay_where_moves_are_off() -> None:
    made = front(moves=False)
    ((_, old),) = sent(made.asked(plan("r", URGENT), 0.0))
    assert made.heard(server(old, due=QUEUE, unstarted=frozenset({"r"})), 0.1, 0.1) == []


class Servers(RuleBasedStateMachine):
    """A front with servers that come, die, serve, and give requests back in any order."""

    names = st.sampled_from("abcd")

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.front = Front(make_dispatcher("most-worth"), Words())
        self.up: set[str] = set()
        self.at: dict[str, str] = {}  # what the messages mean: requests and their servers
        self.withdraw: list[Withdraw] = []
        self.open: set[str] = set()
        self.streams: set[str] = set()
        self.begun: set[str] = set()  # at its present server
        self.asked = 0

    def act(self, actions: Sequence[Action]) -> None:
        for action in actions:
            match action:
                case Send(waiting, name):
                    assert name in self.up, "a lost server gets nothing"
                    assert waiting.key in self.open and waiting.key not in self.at
                    self.at[waiting.key] = name
                    self.begun.discard(waiting.key)
                case Withdraw(key, name):
                    assert self.at[key] == name
                    self.withdraw.append(action)
                case Finish(key):
                    self.open.remove(key)

    @rule(seconds=st.floats(0.0, 0.01))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.act(self.front.tick(self.now))

    @rule(urgent=st.booleans(), stream=st.booleans())
    def ask(self, urgent: bool, stream: bool) -> None:
        name = f"r{self.asked}"
        self.asked += 1
        one = plan(name, URGENT if urgent else NORMAL, self.now)
        if stream:
            self.streams.add(name)
            one = replace(question(name), asked_s=self.now)
        self.open.add(name)
        self.act(self.front.asked(one, self.now))

    @rule(name=names, queue=st.booleans())
    def hear(self, name: str, queue: bool) -> None:
        self.up.add(name)
        mine = frozenset(key for key, where in self.at.items() if where == name) - self.begun
        view = server(name, due=QUEUE if queue else (), unstarted=mine)
        self.act(self.front.heard(view, self.now, self.now))

    @precondition(lambda self: self.up)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.up)))
        self.up.remove(name)
        self.at = {key: where for key, where in self.at.items() if where != name}
        self.withdraw = [one for one in self.withdraw if one.server != name]
        self.act(self.front.lost(name, self.now))

    @precondition(lambda self: self.withdraw)
    @rule(late_s=st.floats(0.0, 0.01), stays=st.booleans())
    def answer(self, late_s: float, stays: bool) -> None:
        one = self.withdraw.pop(0)
        if self.at.get(one.request_id) != one.server:
            return  # it has ended
        if stays or one.request_id in self.begun:
            self.front.stays(one.request_id, one.server)
        else:
            del self.at[one.request_id]
            self.front.withdrawn(one.request_id, one.server, self.now + late_s)

    @precondition(lambda self: self.at)
    @rule(data=st.data(), final=st.booleans())
    def deliver(self, data: st.DataObject, final: bool) -> None:
        key = data.draw(st.sampled_from(sorted(self.at)))
        self.begun.add(key)
        if key in self.streams:
            self.front.chunk(StreamChunk(key, "person", 0, " so", final))
        else:
            self.front.segment(Segment(key, "robot", 0, "up();", final=final))

    @precondition(lambda self: self.at)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.at)))
        del self.at[key]
        self.open.remove(key)
        self.front.ended(key)

    @invariant()
    def check(self) -> None:
        """Each open request is at one server or waits in the front, and no other is."""
        waiting = self.front.waiting
        assert len(set(waiting)) == len(waiting)
        assert set(waiting) | self.at.keys() == self.open
        assert not set(waiting) & self.at.keys()
        for key in self.open:
            assert self.front.server_of(key) == self.at.get(key)


TestServers = Servers.TestCase
TestServers.settings = examples(60, stateful_step_count=40)
