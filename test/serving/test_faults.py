"""Engines, sinks and event logs that raise, die and hang: every request has exactly one end."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from test.serving.scripted import FIND, request
from timely_llm.core.clock import WallClock
from timely_llm.core.errors import EngineLost
from timely_llm.core.events.log import MemoryEventLog
from timely_llm.core.events.run_event import RunEvent
from timely_llm.core.request import (
    ChatMessage,
    ErrorCode,
    ExecutionReport,
    Rejected,
    ReportState,
    Request,
    Result,
    StreamChunk,
    StreamRequest,
)
from timely_llm.core.segment import Segment
from timely_llm.core.step import Capacity, SequenceProgress, StepPlan, StepResult
from timely_llm.engines.contract import GREEDY, Decoding, Prefix
from timely_llm.engines.simulated import PROFILES, SimulatedEngine
from timely_llm.policies.timely import Timely
from timely_llm.resources import resource
from timely_llm.serving import removals
from timely_llm.serving.loop import Loop
from timely_llm.serving.server.inbox import Inbox, InboxItem
from timely_llm.serving.server.server import Server

YAML = resource("config/skill_sets/drone.yaml").read_text()
LIMIT_S = 20.0
UNSHRUNK = (Phase.explicit, Phase.reuse, Phase.generate)
"""Threads race: a smaller example need not fail."""
Fails = Callable[[str], None]
"""Called with the name of a method before it does its work; may raise, or not return."""


def never(method: str) -> None:
    """Let everything work."""


class Faulty(SimulatedEngine):
    """An engine on the wall clock with methods that fail as `fails` says."""

    def __init__(self, fails: Fails, plan: str) -> None:
        super().__init__(PROFILES["millisecond"], lambda key, prompt: plan, WallClock())
        self.fails = fails

    @property
    def capacity(self) -> Capacity:
        self.fails_at("capacity")
        return super().capacity

    def fails_at(self, method: str) -> None:
        if hasattr(self, "fails"):
            self.fails(method)

    def pin_prefix(self, token_ids: Sequence[int]) -> Prefix:
        self.fails("pin_prefix")
        return super().pin_prefix(token_ids)

    def add(
        self,
        key: str,
        token_ids: Sequence[int],
        prefix: Prefix | None = None,
        decoding: Decoding = GREEDY,
    ) -> SequenceProgress:
        self.fails("add")
        progress = super().add(key, token_ids, prefix, decoding)
        self.fails("added")
        return progress

    def submit(self, plan: StepPlan) -> Mapping[str, SequenceProgress]:
        self.fails("submit")
        return super().submit(plan)

    def collect(self) -> StepResult:
        result = super().collect()
        self.fails("collect")
        return result

    def take_back(self, key: str, tokens: int) -> SequenceProgress:
        self.fails("take_back")
        return super().take_back(key, tokens)

    def append(self, key: str, token_ids: Sequence[int], drop: int = 0) -> SequenceProgress:
        self.fails("append")
        return super().append(key, token_ids, drop)

    def remove(self, key: str) -> None:
        self.fails("remove")
        super().remove(key)

    def close(self) -> None:
        self.fails("close")
        super().close()


class Tellers:
    """A sink that fails as `fails` says, and keeps how each request ended."""

    def __init__(self, fails: Fails = never) -> None:
        self.fails = fails
        self.ends: dict[str, list[Result]] = {}
        self.late: list[str] = []
        self.segments: list[Segment] = []
        self.changed = threading.Condition()

    def accepted(self, request: Request) -> None:
        self.fails("accepted")

    def segment(self, segment: Segment) -> None:
        self.fails("segment")
        self._tell(segment.request_id)
        self.segments.append(segment)

    def chunk(self, chunk: StreamChunk) -> None:
        self.fails("chunk")
        self._tell(chunk.request_id)

    def stepped(self, result: StepResult) -> None:
        self.fails("stepped")

    def ended(self, result: Result) -> None:
        with self.changed:
            self.ends.setdefault(result.request_id, []).append(result)
            self.changed.notify_all()
        self.fails("ended")

    def _tell(self, request_id: str) -> None:
        with self.changed:
            self.changed.notify_all()
            if request_id in self.ends:
                self.late.append(request_id)

    def until(self, condition: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, LIMIT_S)

    def code(self, request_id: str) -> ErrorCode:
        """Wait for a request's end, and return how it ended."""
        self.until(lambda: request_id in self.ends)
        return self.ends[request_id][0].error_code


class FaultyJournal(MemoryEventLog):
    """An event log that fails as `fails` says."""

    def __init__(self, fails: Fails) -> None:
        super().__init__()
        self.fails = fails

    def write(self, event: RunEvent) -> None:
        self.fails("write")
        super().write(event)


class Made:
    """A server of faulty parts."""

    def __init__(
        self,
        engine: Fails = never,
        sink: Fails = never,
        event_log: Fails = never,
        plan: str = FIND,
        step_timeout_s: float = LIMIT_S,
        policy: Timely | None = None,
    ) -> None:
        clock = WallClock()
        self.sink = Tellers(sink)
        self.engine = Faulty(never, plan)
        self.event_log = FaultyJournal(event_log)

        def make_loop() -> Loop:
            self.loop = Loop(self.engine, policy or Timely(lead_s=0.01), clock)
            return self.loop

        self.server = Server(
            make_loop, self.sink, clock, step_timeout_s=step_timeout_s, event_log=self.event_log
        )
        self.server.skill_sets.register(YAML).result(LIMIT_S)
        self.engine.fails = engine

    def until_problem(self) -> str:
        end_s = time.monotonic() + LIMIT_S
        while not self.server.problem:
            assert time.monotonic() < end_s
            time.sleep(0.01)
        return self.server.problem


def once(method: str, error: BaseException) -> Fails:
    """Raise an error at the first call of a method."""
    left = [error]

    def fails(name: str) -> None:
        if name == method and left:
            raise left.pop()

    return fails


def always(method: str, error: BaseException) -> Fails:
    """Raise an error at each call of a method."""

    def fails(name: str) -> None:
        if name == method:
            raise error

    return fails


def conversation(name: str) -> StreamRequest:
    said = (ChatMessage("user", "Tell me more."),)
    return StreamRequest(name, f"agent-{name}", messages=said, conversation="c")


METHODS = (
    "capacity", "pin_prefix", "add", "added", "submit", "collect", "take_back", "append", "remove",
    "close",
)  # fmt: skip
TOLD = ("accepted", "segment", "chunk", "stepped", "ended")
ERRORS = (RuntimeError, KeyError, MemoryError, OSError, EngineLost, SystemExit)


@st.composite
def faults(draw: st.DrawFn, methods: tuple[str, ...]) -> dict[str, float]:
    """How often each of some methods fails."""
    some = draw(st.lists(st.sampled_from(methods), max_size=3, unique=True))
    return {method: draw(st.sampled_from([0.02, 0.2, 1.0])) for method in some}


@settings(max_examples=60, phases=UNSHRUNK)
@given(
    engine=faults(METHODS),
    sink=faults(TOLD),
    event_log=st.sampled_from([0.0, 0.0, 0.1]),
    error=st.sampled_from(ERRORS),
    doings=st.lists(
        st.sampled_from(["plan", "talk", "cancel", "finish", "fail", "return", "drain", "list"]),
        min_size=1, max_size=16,
    ),
    seed=st.integers(0, 2**32),
)  # fmt: skip
def test_whatever_fails_each_request_that_was_accepted_has_one_end(
    engine: dict[str, float],
    sink: dict[str, float],
    event_log: float,
    error: type[BaseException],
    doings: list[str],
    seed: int,
) -> None:
    logging.disable(logging.CRITICAL)
    chance = random.Random(seed)

    def failing(shares: dict[str, float]) -> Fails:
        def fails(method: str) -> None:
            if chance.random() < shares.get(method, 0.0):
                raise error(f"{method} fails")

        return fails

    made = Made(
        failing(engine), failing(sink), failing({"write": event_log}), plan="mf(50);?s('x');"
    )
    server, taken, futures = made.server, list[str](), list[Future[Any]]()
    try:
        for number, doing in enumerate(doings):
            name = f"r{number}"
            one = taken[chance.randrange(len(taken))] if taken else name
            if doing in ("plan", "talk"):
                asked = request(name, closed_loop=True) if doing == "plan" else conversation(name)
                try:
                    server.submit(asked)
                except Rejected:
                    continue
                except SystemExit:
                    continue  # of a sink in this very thread
                taken.append(name)
            elif doing == "cancel":
                futures.append(server.cancel(one))
            elif doing == "drain":
                futures.append(server.drain(0.01))
                server.accept(True)
            elif doing == "list":
                futures.append(server.call(lambda loop: len(loop.generations)))
            else:
                state = {"finish": ReportState.FINISHED, "fail": ReportState.FAILED}.get(
                    doing, ReportState.RETURNED
                )
                index = max((s.index for s in made.sink.segments if s.request_id == one), default=0)
                server.report(ExecutionReport(one, f"agent-{one}", state, index, value="True"))
            time.sleep(chance.choice([0.0, 0.0, 0.002]))
        futures.append(server.drain(0.05))
        for future in futures:
            future.exception(LIMIT_S)  # it is done
    finally:
        server.close(LIMIT_S)
        logging.disable(logging.NOTSET)
    assert not server.running
    assert {name: len(ends) for name, ends in made.sink.ends.items()} == dict.fromkeys(taken, 1)
    assert len(server._gate) == 0
    assert not made.loop.generations
    assert not len(server._promises)
    assert made.sink.late == []
    with pytest.raises(Rejected):
        server.submit(request("later"))


@pytest.mark.parametrize("plan", ["tp();->True;", "mf(50);?s('x'){mu(10);}"])
def test_a_sequence_that_cannot_be_freed_holds_up_no_request(
    plan: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removals, "RETRY_S", 0.0)
    made = Made(once("remove", RuntimeError("no")), plan=plan)
    free = made.loop.free_kv_tokens
    made.server.submit(request("r", closed_loop=False))
    made.sink.until(lambda: bool(made.sink.segments))
    made.server.cancel("r").result(LIMIT_S)
    assert made.sink.code("r") in (ErrorCode.NONE, ErrorCode.CANCELED)
    assert len(made.server._gate) == 0
    made.server.call(lambda loop: loop.turn()).result(LIMIT_S)
    made.server.call(lambda loop: None).result(LIMIT_S)
    assert made.loop.free_kv_tokens == free, "it was tried again"
    assert not made.server.problem
    made.server.close()


def test_an_engine_that_never_frees_anything_ends_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(removals, "RETRY_S", 0.0)
    made = Made(always("remove", RuntimeError("no\nway")), plan="tp();->True;")
    made.server.submit(request("r", closed_loop=False))
    assert made.sink.code("r") is ErrorCode.NONE
    while not made.server.problem:
        made.server.call(lambda loop: None).exception(LIMIT_S)
    assert made.server.problem == (
        "the engine could not free a sequence in 10 tries: RuntimeError: no way"
    )
    made.server.close()


@pytest.mark.parametrize("method", ["segment", "stepped", "ended"])
def test_a_sink_that_raises_costs_no_more_than_what_it_refused(
    method: str, caplog: pytest.LogCaptureFixture
) -> None:
    made = Made(sink=always(method, OSError("no space left on device")), plan="tp();->True;")
    for name in ("a", "b"):
        made.server.submit(request(name, closed_loop=False))
        code = made.sink.code(name)
        assert code is (ErrorCode.ENGINE_FAILED if method == "segment" else ErrorCode.NONE)
    made.server.close()
    assert len(made.server._gate) == 0
    assert not made.server.problem
    assert caplog.text.count("Traceback") == 1


def test_a_request_that_cannot_be_announced_is_refused() -> None:
    made = Made(sink=once("accepted", OSError("no space left on device")))
    with pytest.raises(Rejected, match="no space left on device"):
        made.server.submit(request("r"))
    made.server.submit(request("r"))
    made.server.close()
    assert len(made.sink.ends["r"]) == 1


def test_an_event_log_that_raises_ends_and_the_requests_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = Made(event_log=always("write", RuntimeError("full")), plan="tp();->True;")
    made.server.submit(request("r", closed_loop=False))
    assert made.sink.code("r") is ErrorCode.NONE
    made.server.close()
    assert caplog.messages == ["the event log ends here: RuntimeError: full"]


@pytest.mark.parametrize("method", ["capacity", "remove", "segment", "ended"])
def test_a_thread_that_dies_says_so_and_holds_up_no_client(method: str) -> None:
    dies = always(method, SystemExit("asked to"))
    told = method in TOLD
    made = Made(never if told else dies, dies if told else never, plan="tp();->True;")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading, "excepthook", lambda args: None)
        for name in ("a", "b", "c"):
            try:
                made.server.submit(request(name, closed_loop=False))
            except Rejected as error:
                assert error.code is ErrorCode.ENGINE_FAILED
                assert str(error) == made.server.problem
                made.sink.ends[name] = []
        for name in ("a", "b", "c"):
            made.sink.until(lambda name=name: name in made.sink.ends)  # type: ignore[misc]
        assert made.until_problem() == "the engine's thread has ended: SystemExit: asked to"
        future = made.server.call(lambda loop: len(loop.generations))
        with pytest.raises(Rejected, match="has ended: SystemExit"):
            future.result(LIMIT_S)
        made.server.drain(60.0).result(LIMIT_S)
        made.server.close()
    assert not made.server.running
    assert all(len(ends) <= 1 for ends in made.sink.ends.values())


def test_a_thread_that_hangs_is_found_and_all_requests_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    free, hangs, stuck = threading.Event(), threading.Event(), threading.Event()

    def fails(method: str) -> None:
        if method == "collect" and hangs.is_set():
            stuck.set()
            free.wait(60.0)

    made = Made(fails, step_timeout_s=0.2, plan="tp();->True;")
    server = made.server
    server.submit(request("first", closed_loop=False))
    assert made.sink.code("first") is ErrorCode.NONE
    hangs.set()
    server.submit(request("stuck"))
    assert stuck.wait(LIMIT_S)
    listed, drained = server.call(lambda loop: len(loop.generations)), server.drain(60.0)
    assert made.sink.code("stuck") is ErrorCode.ENGINE_FAILED
    assert server.problem.startswith("the engine hangs: a step or a call has taken ")
    with pytest.raises(Rejected, match="the engine hangs"):
        listed.result(LIMIT_S)
    drained.result(LIMIT_S)
    with pytest.raises(Rejected, match="the engine hangs") as refused:
        server.submit(request("new"))
    assert refused.value.code is ErrorCode.ENGINE_FAILED
    for _ in range(3):
        server.report(ExecutionReport("stuck", "agent-stuck", ReportState.ALIVE))
    assert len(server._inbox) <= 2, "nothing piles up behind it"
    assert server.running
    assert not server.close(60.0), "it is not waited for"
    assert "free.wait" in caplog.text, "the log says where it hangs"
    free.set()
    server._thread.join(LIMIT_S)
    assert not server.running
    assert made.sink.late == [] and len(made.sink.ends["stuck"]) == 1


def test_slow_work_and_idleness_are_no_hang() -> None:
    def fails(method: str) -> None:
        if method == "pin_prefix" or (method == "collect" and not made.server.stats.steps):
            time.sleep(0.6)  # longer than a step may take, not longer than slow work may

    made = Made(step_timeout_s=0.2, plan="tp();->True;")
    made.engine.fails = fails
    made.server.skill_sets.register(YAML.replace("name: drone", "name: other")).result(LIMIT_S)
    made.server.submit(request("r", closed_loop=False))
    assert made.sink.code("r") is ErrorCode.NONE
    time.sleep(0.6)
    assert not made.server.problem
    made.server.close()


def test_a_turn_that_always_fails_ends_the_server_and_not_the_disk(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("timely_llm.serving.failures.LONGEST_PAUSE_S", 0.05)
    made = Made(always("capacity", RuntimeError("CUDA error: an illegal memory access")))
    made.server.post(lambda loop: None)
    assert made.until_problem() == (
        "the serving loop failed 10 times in a row: RuntimeError: CUDA error: an illegal memory"
        " access"
    )
    made.server.close()
    assert caplog.text.count("Traceback") == 1
    assert len(caplog.messages) < 5


def test_steps_that_always_fail_end_the_server(caplog: pytest.LogCaptureFixture) -> None:
    made = Made(always("submit", RuntimeError("device-side assert")))
    number = 0
    while not made.server.problem:
        number += 1
        assert number < 50
        try:
            made.server.submit(request(f"r{number}"))
        except Rejected:
            break
        assert made.sink.code(f"r{number}") is ErrorCode.ENGINE_FAILED
    assert made.until_problem() == (
        "the engine failed 10 times in a row: RuntimeError: device-side assert"
    )
    made.server.close()
    assert caplog.text.count("Traceback") == 1


def test_failures_with_good_steps_between_end_nothing() -> None:
    calls = 0

    def fails(method: str) -> None:
        nonlocal calls
        calls += method == "submit"
        if method == "submit" and calls % 40 == 1:
            raise RuntimeError("now and then")

    made = Made(fails, plan="tp();->True;")
    codes = []
    for number in range(40):
        made.server.submit(request(f"r{number}", closed_loop=False))
        codes.append(made.sink.code(f"r{number}"))
    assert codes.count(ErrorCode.ENGINE_FAILED) >= 1
    assert codes.count(ErrorCode.NONE) > 20
    assert not made.server.problem
    made.server.close()


def test_work_that_raises_ends_no_other_work() -> None:
    def broken(loop: Loop) -> None:
        raise ZeroDivisionError("stats")

    made = Made(plan="tp();->True;")
    made.server.submit(request("r"))
    made.server.post(broken)
    with pytest.raises(ZeroDivisionError):
        made.server.call(broken).result(LIMIT_S)
    made.sink.until(lambda: bool(made.sink.segments))
    assert "r" not in made.sink.ends
    made.server.close()


def test_an_engine_that_is_lost_is_not_turned_again() -> None:
    calls = 0

    def fails(method: str) -> None:
        nonlocal calls
        calls += method == "capacity"
        if method != "close" and method != "remove":
            raise EngineLost("the process of the engine has ended")

    made = Made(fails)
    made.server.post(lambda loop: None)
    assert made.until_problem() == "the process of the engine has ended"
    made.server._thread.join(LIMIT_S)
    assert not made.server.running, "it has closed the engine by itself"
    assert calls == 1


def test_an_inbox_has_a_limit_and_says_so() -> None:
    inbox = Inbox(most=2)
    work = InboxItem(lambda: None)
    inbox.put(work)
    inbox.put(work)
    with pytest.raises(Rejected, match="2 messages wait for the engine's thread") as refused:
        inbox.put(work)
    assert refused.value.code is ErrorCode.QUEUE_FULL
    inbox.put(work, must=True)
    assert (len(inbox), inbox.dropped) == (3, 1)
    inbox.close()
    with pytest.raises(Rejected, match="the server stops"):
        inbox.put(work, must=True)
    assert len(inbox.take()) == 3
