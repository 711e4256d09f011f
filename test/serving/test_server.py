"""The loop in its own thread."""

import threading
from dataclasses import replace

import pytest

from test.serving.scripted import DRONE, FIND, PROFILE, request
from timely_llm.core.clock import WallClock
from timely_llm.core.errors import ModelError, RequestError
from timely_llm.core.request import ErrorCode, PlanResult, Rejected, Request, Result
from timely_llm.core.segment import Segment
from timely_llm.core.stream import StreamChunk
from timely_llm.engines.contract import StepResult
from timely_llm.engines.simulated import SimulatedEngine
from timely_llm.policies.timely import Timely
from timely_llm.resources import resource
from timely_llm.serving.gate import Limits
from timely_llm.serving.loop import Loop
from timely_llm.serving.server import Server
from timely_llm.serving.sink import Sink

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


def serve(
    sink: Waiting, plan: str = FIND, limits: Limits | None = None, lead_s: float = 0.05
) -> Server:
    clock = WallClock()

    def make_loop(watched: Sink) -> Loop:
        engine = SimulatedEngine(PROFILE, lambda key, prompt: plan, clock)
        return Loop(engine, Timely(lead_s=lead_s), watched, clock)

    server = Server(make_loop, sink, clock, limits)
    server.wait_ready(10)
    assert server.register(YAML).result(10)[0] == DRONE.name
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
        ("full", ErrorCode.QUEUE_FULL, "1 requests are being served, the most allowed"),
        ("closed", ErrorCode.SHUTTING_DOWN, "the server stops"),
    ],
)
def test_what_is_refused_and_why(wrong: str, code: ErrorCode, words: str) -> None:
    server = serve(Waiting(), limits=Limits(max_requests=1 if wrong == "full" else 8))
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


def test_cancel_says_whether_there_was_something_to_cancel() -> None:
    sink = Waiting()
    server = serve(sink)
    server.submit(request("r"))
    sink.wait_for_segment()
    assert server.cancel("r").result(10) is True
    assert sink.wait_for("r").error_code is ErrorCode.CANCELED
    assert server.cancel("r").result(10) is False
    server.close()


def test_closing_tells_everyone_who_waits() -> None:
    sink = Waiting()
    server = serve(sink)
    server.submit(request("r"))
    sink.wait_for_segment()
    server.close()
    assert sink.results["r"].error_code is ErrorCode.SHUTTING_DOWN


def test_a_loop_that_cannot_be_made_is_an_error_to_whoever_waits() -> None:
    def make_loop(sink: Sink) -> Loop:
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

    def make_loop(watched: Sink) -> Loop:
        engine = SimulatedEngine(PROFILE, lambda key, prompt: FIND, clock)
        return Loop(engine, Broken(), watched, clock)

    server = Server(make_loop, sink, clock)
    server.register(YAML).result(10)
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
    server = serve(Waiting(), limits=Limits(max_skill_sets=2))
    other = YAML.replace("name: drone", "name: other")
    third = YAML.replace("name: drone", "name: third")
    server.register(other).result(10)
    with pytest.raises(RequestError, match="2 skill sets are registered, the most allowed"):
        server.register(third).result(10)
    server.register(other).result(10)
    server.close()


def test_a_registered_skill_set_can_be_read_as_it_was_written() -> None:
    server = serve(Waiting())
    assert server.skill_set("drone") == YAML
    with pytest.raises(
        Rejected, match=r"unknown skill set 'x{64}': registered are drone"
    ) as raised:
        server.skill_set("x" * 5_000_000)
    assert raised.value.code is ErrorCode.UNKNOWN_SKILL_SET
    with pytest.raises(RequestError):
        server.register(YAML.replace("quadcopter", "rocket")).result(10)
    assert server.skill_set("drone") == YAML, "the one that is in use"
    server.close()
