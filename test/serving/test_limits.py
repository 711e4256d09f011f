"""No request stays for ever."""

import math
from typing import Any

import pytest

from test.serving.scripted import FIND, Scene, request
from timely_llm.core.request import (
    ChatMessage,
    ErrorCode,
    ExecutionReport,
    ReportState,
    StreamRequest,
)
from timely_llm.core.step import StepPlan
from timely_llm.core.time_utility import URGENT
from timely_llm.policies.fcfs import Stream
from timely_llm.policies.timely import Timely
from timely_llm.serving.limits import MOST_AGENTS, RequestWatchdog, Timeouts
from timely_llm.serving.loop import WATCH_S

SLOW = "mf(500);mf(500);mf(500);mf(500);->True;"
REST = Timely(lead_s=0.1)


class Halting(Stream):
    """Serves no more once it has been halted."""

    halted = False

    def plan(self, now: float, *others: Any) -> StepPlan:
        return StepPlan(wake_s=now + 0.1) if self.halted else super().plan(now, *others)


def alive(agent: str, *open_requests: str) -> ExecutionReport:
    return ExecutionReport("", agent, ReportState.ALIVE, value="\n".join(open_requests))


def question(request_id: str) -> StreamRequest:
    return StreamRequest(request_id, "ann", (ChatMessage("user", "Why?"),))


def test_a_request_of_an_agent_that_falls_silent_is_ended_and_freed() -> None:
    scene = Scene({"r": SLOW, "s": SLOW}, REST, Timeouts(client_timeout_s=3.0))
    for name in "rs":
        scene.loop.admit(request(name))
        scene.report(name, ReportState.ALIVE)
    for _ in range(8):
        scene.clock.advance(1.0)
        scene.report("s", ReportState.ALIVE)
        scene.turns(2)
    result = scene.sink.results["r"]
    assert result.error_code is ErrorCode.CLIENT_SILENT
    assert result.error_msg == "nothing was heard of 'agent-r' for 3 s"
    assert "s" not in scene.sink.results
    assert scene.loop.stats.silent == 1
    scene.clock.advance(4.0)
    scene.turns(1)
    assert scene.loop.free_kv_tokens == scene.free_at_start


def test_alive_without_a_request_speaks_for_all_of_an_agent() -> None:
    scene = Scene({"r": SLOW}, REST, Timeouts(client_timeout_s=1.0))
    scene.loop.admit(request("r", agent="agent-"))
    for _ in range(60):
        scene.report("", ReportState.ALIVE)
        scene.clock.advance(0.5)
        scene.turns(3)
    assert scene.sink.results["r"].error_code is ErrorCode.NONE


def test_a_robot_that_was_started_anew_does_not_keep_the_plans_of_its_earlier_life() -> None:
    scene = Scene({"r": SLOW, "s": SLOW}, REST, Timeouts(client_timeout_s=3.0))
    scene.loop.admit(request("r", agent="robot"))
    scene.loop.report(alive("robot", "r"))
    scene.loop.admit(request("s", agent="robot"))
    for _ in range(5):
        scene.clock.advance(1.0)
        scene.loop.report(alive("robot", "s"))  # its new life has only this one
        scene.turns(2)
    assert scene.sink.results["r"].error_code is ErrorCode.CLIENT_SILENT
    assert [one.key for one in scene.loop.generations] == ["s"]


@pytest.mark.parametrize("word", ["all", "progress", "resumed"])
def test_two_programs_of_one_robot_keep_each_others_plans(word: str) -> None:
    scene = Scene({"r": SLOW, "s": SLOW}, REST, Timeouts(client_timeout_s=3.0))
    for name in "rs":
        scene.loop.admit(request(name, agent="robot"))
        scene.loop.report(alive("robot", name))
    for _ in range(5):
        scene.clock.advance(1.0)
        scene.loop.report(alive("robot", "s"))
        if word == "progress":
            scene.loop.report(ExecutionReport("r", "robot", ReportState.STARTED))
        else:
            scene.loop.report(alive("robot", *("r" * (word == "resumed"))))
        scene.turns(2)
    assert len(scene.loop.generations) == 2


def test_no_agent_claims_a_request_of_another() -> None:
    scene = Scene({"r": SLOW}, REST, Timeouts(client_timeout_s=3.0))
    scene.loop.admit(request("r"))
    scene.loop.report(alive("thief", "r", "unknown"))
    for _ in range(5):
        scene.clock.advance(1.0)
        scene.report("r", ReportState.ALIVE)
        scene.turns(2)
    assert len(scene.loop.generations) == 1


def test_an_agent_that_never_spoke_is_not_held_to_it() -> None:
    scene = Scene({"r": SLOW}, REST, Timeouts(client_timeout_s=1.0))
    scene.report("r", ReportState.ALIVE)  # in another life
    scene.clock.advance(60.0)
    scene.loop.admit(request("r"))
    scene.run()
    assert scene.sink.results["r"].error_code is ErrorCode.NONE


def test_the_loop_wakes_up_for_a_silent_agent() -> None:
    scene = Scene({"r": SLOW}, Timely(lead_s=0.0), Timeouts(client_timeout_s=0.5))
    scene.loop.admit(request("r"))
    scene.report("r", ReportState.ALIVE)
    heard_s = scene.clock.now()
    scene.until_segments(1)
    turn = scene.loop.turn()
    assert not turn.stepped
    assert turn.wake_s == pytest.approx(heard_s + 0.5)


def test_the_loop_does_not_spin_until_it_looks_at_the_timeouts_again() -> None:
    scene = Scene({"r": SLOW}, Timely(lead_s=0.0), Timeouts(client_timeout_s=0.5))
    scene.loop.admit(request("r"))
    scene.report("r", ReportState.ALIVE)
    end_s = scene.clock.now() + 0.5
    scene.until_segments(1)
    scene.clock.advance(end_s - 0.01 - scene.clock.now())
    scene.turns(1)
    scene.clock.advance(WATCH_S - 0.001)
    turn = scene.loop.turn()
    assert not turn.stepped
    assert not scene.sink.results
    assert turn.wake_s > scene.clock.now()


def test_a_request_that_cannot_be_served_in_time_expires() -> None:
    scene = Scene({"u": FIND, "n": FIND}, timeouts=Timeouts(drop_late=True))
    scene.loop.admit(request("u", URGENT))
    scene.loop.admit(request("n"))
    scene.clock.advance(0.6)  # an urgent answer is worth nothing after 0.5 s
    scene.run()
    result = scene.sink.results["u"]
    assert result.error_code is ErrorCode.EXPIRED
    assert result.error_msg == "nothing could be made for it in 0.6 s"
    assert scene.sink.results["n"].error_code is ErrorCode.NONE
    assert scene.loop.stats.expired == 1


def test_late_requests_are_served_unless_asked_otherwise_but_not_for_ever() -> None:
    scene = Scene({"u": FIND, "v": FIND}, timeouts=Timeouts(queue_timeout_s=30.0))
    scene.loop.admit(request("u", URGENT))
    scene.clock.advance(10.0)
    scene.run()
    assert scene.sink.results["u"].error_code is ErrorCode.NONE
    scene.loop.admit(request("v", URGENT))
    scene.clock.advance(31.0)
    scene.run()
    assert scene.sink.results["v"].error_code is ErrorCode.EXPIRED


@pytest.mark.parametrize("kind", ["plan", "stream"])
def test_also_what_has_begun_does_not_wait_for_ever(kind: str) -> None:
    policy = Halting()
    scene = Scene({"r": SLOW}, policy, Timeouts(queue_timeout_s=30.0))
    scene.loop.admit(request("r") if kind == "plan" else question("r"))
    while not (scene.sink.segments or scene.sink.chunks):
        scene.loop.turn()
    policy.halted = True
    (generation,) = scene.loop.generations
    needed_s = max(generation.due_s, scene.clock.now())
    scene.clock.advance(needed_s + 29.0 - scene.clock.now())
    scene.turns(1)
    assert scene.loop.generations, "its time is not up"
    scene.clock.advance(needed_s + 31.0 - scene.clock.now())
    scene.turns(1)
    result = (scene.sink.results | scene.sink.answers)["r"]
    assert result.error_code is ErrorCode.EXPIRED
    assert result.error_msg.startswith("nothing could be made for it in 3")
    assert scene.loop.free_kv_tokens == scene.free_at_start


@pytest.mark.parametrize("timeout_s", [10.0, math.inf])
def test_invented_agents_are_forgotten(timeout_s: float) -> None:
    scene = Scene({"r": SLOW}, REST, Timeouts(client_timeout_s=timeout_s))
    scene.loop.admit(request("r"))
    scene.report("r", ReportState.ALIVE)
    generations = scene.loop.generations
    watch = RequestWatchdog(Timeouts(client_timeout_s=timeout_s))
    watch.seen("agent-r", 0.0)
    for number in range(5 * MOST_AGENTS):
        watch.seen(f"invented {number}", 1.0)
        if number % 1000 == 0:
            watch.forget(1.0, generations)
    watch.forget(1.0, generations)
    assert watch.agents == MOST_AGENTS
    late_s = 1.0 + timeout_s
    if timeout_s < math.inf:
        verdict = watch.verdict(generations[0], late_s)
        assert verdict is not None, "an agent with a request is held to its word beside all others"
        assert verdict[0] is ErrorCode.CLIENT_SILENT
    watch.forget(1.0 + 3 * timeout_s)
    assert watch.agents == (MOST_AGENTS if timeout_s == math.inf else 0)
