"""The loop in its own thread."""

import math
import threading
from collections.abc import Sequence
from dataclasses import replace

import pytest

from test.serving.scripted import DRONE, FIND, PROFILE, request
from timely_llm.core.clock import WallClock
from timely_llm.core.errors import ModelError, RequestError, SkillSetError
from timely_llm.core.request import (
    ChatMessage,
    ErrorCode,
    ExecutionReport,
    PlanResult,
    Rejected,
    ReportState,
    Request,
    Result,
    StreamChunk,
    StreamRequest,
)
from timely_llm.core.segment import Segment
from timely_llm.core.step import StepResult
from timely_llm.core.time_utility import URGENT
from timely_llm.engines.simulated import SimulatedEngine
from timely_llm.policies.timely import Timely
from timely_llm.resources import resource
from timely_llm.serving.limits import RequestLimits
from timely_llm.serving.loop import Loop
from timely_llm.serving.prompts import PIECE_TOKENS
from timely_llm.serving.server.registration import MAX_WAITING, Read
from timely_llm.serving.server.server import Server
from timely_llm.skills.skill_set import SkillSet, parse_skill_set

YAML = resource("config/skill_sets/drone.yaml").read_text()


class Waiting:
    """A sink that can be waited on."""

    def __init__(self) -> None:
        self.segments: list[Segment] = []
        self.results: dict[str, Result] = {}
        self.chunks: list[StreamChunk] = []
        self.requests: list[str] = []
        self.steps = 0
        self._changed = threading.Condition()

    def segment(self, segment: Segment) -> None:
        with self._changed:
            self.segments.append(segment)
            self._changed.notify_all()

    def chunk(self, chunk: StreamChunk) -> None:
        with self._changed:
            self.chunks.append(chunk)
            self._changed.notify_all()

    def ended(self, result: Result) -> None:
        with self._changed:
            self.results[result.request_id] = result
            self._changed.notify_all()

    def accepted(self, request: Request) -> None:
        assert request.request_id not in self.results
        self.requests.append(request.request_id)

    def stepped(self, result: StepResult) -> None:
        assert result.computed.keys() <= set(self.requests)
        self.steps += 1

    def wait_for(self, request_id: str) -> PlanResult:
        with self._changed:
            assert self._changed.wait_for(lambda: request_id in self.results, timeout=10)
        result = self.results[request_id]
        assert isinstance(result, PlanResult)
        return result

    def wait_for_segment(self) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: bool(self.segments), timeout=10)

    def wait_for_chunk(self) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: bool(self.chunks), timeout=10)


def serve(
    sink: Waiting,
    plan: str = FIND,
    limits: RequestLimits | None = None,
    lead_s: float = 0.05,
    read: Read = parse_skill_set,
) -> Server:
    clock = WallClock()

    def make_loop() -> Loop:
        engine = SimulatedEngine(PROFILE, lambda key, prompt: plan, clock)
        return Loop(engine, Timely(lead_s=lead_s), clock)

    server = Server(make_loop, sink, clock, limits, read=read)
    server.wait_ready(10)
    assert server.skill_sets.register(YAML).result(10)[0] == DRONE.name
    return server


def test_requests_from_many_threads_are_all_served() -> None:
    sink = Waiting()
    server = serve(sink, "tp();->True;")
    threads = [threading.Thread(target=server.submit, args=(request(f"r{i}"),)) for i in range(10)]
    for thread in threads:
        thread.start()
    for i in range(10):
        assert sink.wait_for(f"r{i}").error_code is ErrorCode.NONE
    server.close()
    assert sorted(sink.requests) == [f"r{i}" for i in range(10)]
    assert sink.steps > 0


@pytest.mark.parametrize(
    ("wrong", "code", "words"),
    [
        (
            "skill_set",
            ErrorCode.UNKNOWN_SKILL_SET,
            "unknown skill set 'boat': registered are drone",
        ),
        ("twice", ErrorCode.DUPLICATE_REQUEST, "a request 'r' is being served already"),
        ("full", ErrorCode.QUEUE_FULL, "1 request is being served, the most allowed"),
        ("closed", ErrorCode.SHUTTING_DOWN, "the server stops"),
    ],
)
def test_what_is_refused_and_why(wrong: str, code: ErrorCode, words: str) -> None:
    server = serve(Waiting(), limits=RequestLimits(max_requests=1 if wrong == "full" else 8))
    asked = request("r")
    if wrong == "skill_set":
        asked = replace(asked, skill_set="boat")
    elif wrong == "closed":
        server.close()
    else:
        server.submit(asked)
        asked = replace(asked, request_id="r" if wrong == "twice" else "s")
    with pytest.raises(Rejected, match=words) as refused:
        server.submit(asked)
    assert refused.value.code is code
    server.close()


def test_a_displaced_request_ends_and_the_urgent_one_is_served() -> None:
    sink, hold = Waiting(), threading.Event()
    server = serve(sink, "tp();->True;", RequestLimits(max_requests=2))
    server.submit(request("first"))
    assert sink.wait_for("first").error_code is ErrorCode.NONE
    server.post(lambda loop: hold.wait(10))
    known = server.call(lambda loop: [g.key for g in loop.generations])
    server.submit(request("a"))
    server.submit(request("b"))
    urgent = server.call(lambda loop: server.submit(request("urgent", URGENT)))
    hold.set()
    assert known.result(10) == []
    urgent.result(10)
    displaced = sink.wait_for("b")
    assert displaced.error_code is ErrorCode.QUEUE_FULL
    assert "took its place before it began: try later" in displaced.error_msg
    assert sink.wait_for("a").error_code is sink.wait_for("urgent").error_code is ErrorCode.NONE
    assert server.serving == 0
    server.close()


def test_cancel_says_whether_there_was_something_to_cancel() -> None:
    sink = Waiting()
    server = serve(sink)
    server.submit(request("r"))
    sink.wait_for_segment()
    assert server.cancel("r").result(10) is True
    assert sink.wait_for("r").error_code is ErrorCode.CANCELED
    assert server.cancel("r").result(10) is False
    server.close()


def test_a_request_can_be_withdrawn_until_it_has_begun() -> None:
    sink = Waiting()
    server = serve(sink)
    hold = threading.Event()
    server.post(lambda loop: hold.wait(10))  # no step meanwhile: it waits in the inbox
    server.submit(request("r"))
    withdrawn = server.cancel("r", unless_begun=True)
    hold.set()
    assert withdrawn.result(10) is True
    assert sink.wait_for("r").error_code is ErrorCode.CANCELED
    server.submit(request("s"))
    sink.wait_for_segment()
    with pytest.raises(RequestError, match="request 's' has begun"):
        server.cancel("s", unless_begun=True).result(10)
    assert server.serves("s")
    server.close()


def test_a_dispatcher_reads_its_requests_as_they_were_sent() -> None:
    sink = Waiting()
    server = serve(sink, "mf(50);" + "mf(100);" * 100)
    mine = [replace(request(key), dispatcher="/front") for key in ("r", "s")]
    said = (ChatMessage("user", "Why?"),)
    talk = StreamRequest("t", "ann", said, first_token=5, dispatcher="/front", max_tokens=4000)
    for one in (mine[0], request("other"), mine[1], talk):
        server.submit(one)
    sink.wait_for_segment()
    sink.wait_for_chunk()
    server.report(ExecutionReport("r", "agent-r", ReportState.FAILED, 0, value="wind"))
    served = server.requests_of("/front").result(10)
    assert [one.request for one in served] == [*mine, talk], "not as they were after a failure"
    assert [(one.made, one.text) for one in served[:2]] == [(0, "")] * 2
    chunks = sink.chunks[: served[2].made]
    assert served[2].made and served[2].text == "".join(chunk.text for chunk in chunks)
    assert chunks[-1].index == 5 + served[2].made - 1
    assert server.requests_of("").result(10) == []
    answer = server.so_far("t").result(10)
    assert answer is not None
    assert (answer.request, answer.made >= served[2].made) == (talk, True)
    assert server.so_far("gone").result(10) is None
    server.close()


def test_a_server_says_whether_it_takes_requests() -> None:
    server = serve(Waiting())
    assert server.accepting
    server.drain(1.0).result(10)
    assert not server.accepting
    server.accept(True)
    assert server.accepting
    server.close()
    assert not server.accepting


def test_closing_ends_all_requests_and_futures() -> None:
    sink = Waiting()
    server = serve(sink)
    server.submit(request("r"))
    sink.wait_for_segment()
    server.close()
    assert sink.results["r"].error_code is ErrorCode.SHUTTING_DOWN


def test_a_loop_that_cannot_be_made_is_an_error_to_its_waiting_clients() -> None:
    def make_loop() -> Loop:
        raise ModelError("no model in /nowhere")

    server = Server(make_loop, Waiting(), WallClock())
    with pytest.raises(ModelError, match="no model"):
        server.wait_ready(10)
    with pytest.raises(Rejected, match="the server stops"):
        server.submit(request("r"))


def test_a_broken_policy_ends_its_requests_and_the_server_lives_on() -> None:
    clock, sink = WallClock(), Waiting()

    class Broken(Timely):
        broken = True

        def plan(self, now, generations, step_time, capacity):  # type: ignore[no-untyped-def]
            if self.broken and generations:
                Broken.broken = False
                raise ZeroDivisionError("a policy's mistake")
            return super().plan(now, generations, step_time, capacity)

    def make_loop() -> Loop:
        engine = SimulatedEngine(PROFILE, lambda key, prompt: FIND, clock)
        return Loop(engine, Broken(), clock)

    server = Server(make_loop, sink, clock)
    server.skill_sets.register(YAML).result(10)
    server.submit(request("a"))
    assert sink.wait_for("a").error_code is ErrorCode.ENGINE_FAILED
    server.submit(request("b"))
    assert sink.wait_for("b").error_code is ErrorCode.NONE
    server.close()


def test_a_drained_server_refuses_what_is_new_and_finishes_what_it_has() -> None:
    sink = Waiting()
    server = serve(sink, lead_s=0.1)
    server.submit(request("r"))
    sink.wait_for_segment()
    drained = server.drain(10.0)
    with pytest.raises(Rejected, match="inactive") as refused:
        server.submit(request("s"))
    assert refused.value.code is ErrorCode.INACTIVE
    drained.result(10)
    assert sink.results["r"].error_code is ErrorCode.NONE
    server.accept(True)
    server.submit(request("s"))
    assert sink.wait_for("s").error_code is ErrorCode.NONE
    server.close()


def test_what_cannot_be_finished_in_time_is_ended() -> None:
    sink = Waiting()
    server = serve(sink, plan="mf(50);" * 40)
    server.submit(request("r"))
    sink.wait_for_segment()
    server.drain(0.05).result(10)
    result = sink.results["r"]
    assert (result.error_code, result.error_msg) == (
        ErrorCode.SHUTTING_DOWN, "the server stops serving",
    )  # fmt: skip
    server.close()


def test_a_server_that_accepts_again_goes_on_with_what_it_has() -> None:
    sink = Waiting()
    server = serve(sink, plan="mf(50);->True;", lead_s=0.1)
    server.submit(request("r"))
    drained = server.drain(0.3)
    server.accept(True)
    drained.result(10)
    server.submit(request("s"))
    assert sink.wait_for("r").error_code is ErrorCode.NONE
    assert sink.wait_for("s").error_code is ErrorCode.NONE  # its robot drives for two seconds
    server.close()


def test_draining_an_idle_or_a_closed_server_is_over_at_once() -> None:
    server = serve(Waiting())
    server.drain(60.0).result(10)
    waiting = server.drain(60.0)
    server.close()
    waiting.result(10)
    server.drain(60.0).result(10)


def test_no_more_skill_sets_than_allowed() -> None:
    server = serve(Waiting(), limits=RequestLimits(max_skill_sets=2))
    other = YAML.replace("name: drone", "name: other")
    third = YAML.replace("name: drone", "name: third")
    server.skill_sets.register(other).result(10)
    with pytest.raises(RequestError, match="2 skill sets are registered, the most allowed: unreg"):
        server.skill_sets.register(third).result(10)
    server.skill_sets.register(other).result(10)
    server.close()


def test_a_registered_skill_set_can_be_read_as_it_was_written() -> None:
    server = serve(Waiting())
    assert server.skill_sets.text("drone") == YAML
    with pytest.raises(
        Rejected, match=r"unknown skill set 'x{80}\.\.\.': registered are drone"
    ) as raised:
        server.skill_sets.text("x" * 5_000_000)
    assert raised.value.code is ErrorCode.UNKNOWN_SKILL_SET
    with pytest.raises(RequestError):
        server.skill_sets.register(YAML.replace("quadcopter", "rocket")).result(10)
    assert server.skill_sets.text("drone") == YAML, "the one that is in use"
    server.close()


def test_a_plan_is_served_while_a_skill_set_is_still_being_read() -> None:
    sink, going_on = Waiting(), threading.Event()

    def slow(text: str, source: str) -> SkillSet:
        if "name: other" in text:
            assert going_on.wait(10)
        return parse_skill_set(text, source)

    server = serve(sink, "tp();->True;", read=slow)
    registered = server.skill_sets.register(YAML.replace("name: drone", "name: other"))
    server.submit(request("r"))
    assert sink.wait_for("r").error_code is ErrorCode.NONE
    assert not registered.done()
    going_on.set()
    assert registered.result(10)[0] == "other"
    server.submit(replace(request("s"), skill_set="other"))
    assert sink.wait_for("s").error_code is ErrorCode.NONE
    server.close()


def test_skill_sets_that_wait_to_be_read_are_counted() -> None:
    going_on = threading.Event()

    def slow(text: str, source: str) -> SkillSet:
        if text != YAML:
            assert going_on.wait(10)
        return parse_skill_set(text, source)

    server = serve(Waiting(), read=slow)
    waiting = [server.skill_sets.register("- a") for _ in range(MAX_WAITING + 2)]
    with pytest.raises(Rejected, match="8 skill sets wait to be registered, the most") as refused:
        waiting[-1].result(0)
    assert refused.value.code is ErrorCode.QUEUE_FULL
    going_on.set()
    for future in waiting[:MAX_WAITING]:
        with pytest.raises(SkillSetError, match="must be a mapping"):
            future.result(10)
    server.close()


def test_closing_ends_the_thread_that_reads() -> None:
    begun, going_on = threading.Event(), threading.Event()

    def slow(text: str, source: str) -> SkillSet:
        if text != YAML:
            begun.set()
            assert going_on.wait(10)
        return parse_skill_set(text, source)

    before = set(threading.enumerate())
    server = serve(Waiting(), read=slow)
    (reading,) = (t for t in set(threading.enumerate()) - before if t.name == "reading")
    waiting = [server.skill_sets.register("- a")]
    assert begun.wait(10)
    waiting += [
        server.skill_sets.register("- a") for _ in range(MAX_WAITING)
    ]  # as many as may wait
    assert server.close()
    for future in waiting:
        with pytest.raises(Rejected, match="the server stops"):
            future.result(10)
    going_on.set()
    reading.join(10)
    assert not reading.is_alive()
    with pytest.raises(Rejected, match="the server stops") as refused:
        server.skill_sets.register(YAML).result(10)
    assert refused.value.code is ErrorCode.SHUTTING_DOWN
    assert server.close(), "once more"


class Piecewise(SimulatedEngine):
    """Takes a step of the test's to prepare each part of a prefix."""

    parts: list[int]

    def prepare_prefix(self, token_ids: Sequence[int], tokens: int) -> int:
        super().prepare_prefix(token_ids, tokens)
        if self.prefix_known(token_ids):
            return 0
        self.parts.append(tokens)
        return max(len(token_ids) - sum(self.parts), 0)

    def prefix_known(self, token_ids: Sequence[int]) -> bool:
        return self._sequences.prefix(token_ids) is not None


def test_a_long_prompt_is_pre_stored_between_the_steps_of_others() -> None:
    clock, sink = WallClock(), Waiting()
    engine = Piecewise(PROFILE, lambda key, prompt: "mf(50);" * 12, clock)
    engine.parts = []

    def make_loop() -> Loop:
        return Loop(engine, Timely(lead_s=math.inf), clock)

    server = Server(make_loop, sink, clock)
    server.skill_sets.register(YAML).result(10)
    whole = sum(engine.parts)
    assert max(engine.parts) <= PIECE_TOKENS < whole
    engine.parts.clear()
    server.submit(request("r"))
    sink.wait_for_segment()
    other = server.skill_sets.register(
        YAML.replace("name: drone", "name: other").replace("small", "large")
    )
    steps = sink.steps
    assert other.result(10)[0] == "other"
    assert sink.steps - steps >= len(engine.parts) - 1 > 3
    assert sink.wait_for("r").error_code is ErrorCode.NONE
    server.close()


def test_closing_ends_a_registration_with_an_error() -> None:
    server = serve(Waiting())
    other = YAML.replace("name: drone", "name: other")
    held = threading.Event()
    server.post(lambda loop: held.wait(10))  # the loop is in a step
    registered = server.skill_sets.register(other)
    threading.Timer(0.2, held.set).start()
    server.close()
    with pytest.raises(Rejected) as refused:
        registered.result(10)
    assert refused.value.code is ErrorCode.SHUTTING_DOWN


def test_a_skill_set_that_is_unregistered_is_unknown_and_its_memory_is_free() -> None:
    sink = Waiting()
    server = serve(sink, "tp();->True;")
    free = server.call(lambda loop: loop.free_kv_tokens).result(10)
    other = YAML.replace("name: drone", "name: other").replace("small", "large")
    server.skill_sets.register(other).result(10)
    with pytest.raises(RequestError, match="a different skill set is registered as 'other'"):
        server.skill_sets.register(other.replace("large", "huge")).result(10)
    server.unregister("other").result(10)
    assert server.call(lambda loop: loop.free_kv_tokens).result(10) == free
    with pytest.raises(Rejected, match="unknown skill set 'other': registered are drone"):
        server.submit(replace(request("r"), skill_set="other"))
    with pytest.raises(Rejected, match="unknown skill set 'other'") as refused:
        server.unregister("other").result(10)
    assert refused.value.code is ErrorCode.UNKNOWN_SKILL_SET
    server.skill_sets.register(other.replace("large", "huge")).result(10)
    server.submit(replace(request("r"), skill_set="other"))
    assert sink.wait_for("r").error_code is ErrorCode.NONE
    server.close()


def test_two_skill_sets_with_one_prompt_share_its_memory_until_both_are_gone() -> None:
    sink = Waiting()
    server = serve(sink, "tp();->True;")
    free = server.call(lambda loop: loop.free_kv_tokens).result(10)
    server.skill_sets.register(YAML.replace("name: drone", "name: twin")).result(10)
    assert server.call(lambda loop: loop.free_kv_tokens).result(10) == free
    server.unregister("twin").result(10)
    server.submit(request("r"))
    assert sink.wait_for("r").error_code is ErrorCode.NONE
    server.unregister("drone").result(10)
    assert server.call(lambda loop: loop.free_kv_tokens).result(10) > free
    server.close()


def test_a_skill_set_in_use_stays() -> None:
    sink = Waiting()
    server = serve(sink)
    server.submit(request("r"))
    sink.wait_for_segment()
    with pytest.raises(Rejected, match=r"1 request uses it: skill set 'drone' can be unregistered"):
        server.unregister("drone").result(10)
    server.cancel("r").result(10)
    server.unregister("drone").result(10)
    server.close()


def test_a_request_that_meets_an_unregistration_is_refused() -> None:
    sink = Waiting()
    server = serve(sink)
    held = threading.Event()
    server.post(lambda loop: held.wait(10))
    gone = server.unregister("drone")
    server.submit(request("r"))  # the gate does not know yet
    held.set()
    gone.result(10)
    assert sink.wait_for("r").error_code is ErrorCode.UNKNOWN_SKILL_SET
    server.close()


@pytest.mark.parametrize("text", ["\ud800", "\0", "\x1b[2J"])
def test_a_skill_set_of_the_programs_own_that_is_no_text_is_refused(text: str) -> None:
    server = serve(Waiting())
    bad = DRONE.model_copy(update={"name": "bad", "prompt": f"You {text} fly."})
    with pytest.raises(Rejected, match=r"the skill set holds .* at place 4"):
        server.call(lambda loop: loop.register(bad)).result(10)
    server.close()
