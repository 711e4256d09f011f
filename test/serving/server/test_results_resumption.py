"""The segments that a restarted robot gets."""

from __future__ import annotations

import pytest

from test.serving.scripted import Scene, request
from timely_llm.core.errors import RequestError
from timely_llm.core.request import ReportState
from timely_llm.policies.fcfs import Stream
from timely_llm.serving.server.results import segments_of

PLAN = "mf(50);mf(100);tp();->True;"


def places(scene: Scene, agent: str, request_id: str = "") -> list[tuple[str, int, int]]:
    found = segments_of(scene.loop.generations, agent, request_id)
    return [(segment.request_id, segment.epoch, segment.index) for segment in found]


def test_the_segments_of_the_newest_epoch_come_in_order() -> None:
    scene = Scene({"a": f"{PLAN}...{PLAN}", "b": PLAN}, Stream())
    for name in ("a", "b"):
        scene.loop.admit(request(name))
    scene.until_segments(3)
    agent = request("a").agent
    of_b = [place for place in places(scene, agent) if place[0] == "b"]
    assert places(scene, agent, "a") == [
        ("a", 0, index) for index in range(len(scene.plans[0].segments))
    ]
    assert places(scene, agent) == places(scene, agent, "a") + of_b
    assert places(scene, "", "a") == places(scene, agent, "a")
    scene.report("a", ReportState.FAILED, 0, value="wind")
    assert places(scene, agent, "a") == []
    assert places(scene, "nobody") == []


def test_an_unknown_plan_or_anothers_is_refused_in_a_sentence() -> None:
    scene = Scene({"a": PLAN}, Stream())
    scene.loop.admit(request("a"))
    scene.until_segments(1)
    for agent, request_id, words in (
        ("", "", "the segments of which plan: give the agent, or the request's id"),
        ("x", "b" * 999, "no request 'bbb"),
        ("x", "a", "request 'a' is not one of 'x'"),
    ):
        with pytest.raises(RequestError, match=words) as raised:
            segments_of(scene.loop.generations, agent, request_id)
        assert len(str(raised.value)) < 300
