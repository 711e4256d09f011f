"""The load is published at its rate and soon after a change, while a node listens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from timely_llm import msg
from timely_llm.core.clock import VirtualClock
from timely_llm.ros.server.load import LEAST_S, PERIOD_S, LoadFeed


@dataclass
class Scene:
    """A feed, and the loop and the node that it is between; views are counted."""

    published: list[msg.ServerLoad] = field(default_factory=list)
    asked: list[Callable[[msg.ServerLoad], None]] = field(default_factory=list)
    active: bool = True
    listeners: int = 1
    woken: int = 0
    views: int = 0

    def __post_init__(self) -> None:
        self.clock = VirtualClock()
        self.feed = LoadFeed(
            self.published.append, lambda: self.active, lambda: self.listeners > 0, self._woken,
            self.clock,
        )  # fmt: skip

    def _woken(self) -> None:
        self.woken += 1

    def tick(self, now: float) -> None:
        self.clock.advance(now - self.clock.now())
        self.feed.tick(self.asked.append)

    def step(self) -> None:
        """End a step: the loop makes the views that were asked for."""
        while self.asked:
            self.views += 1
            self.asked.pop()(msg.ServerLoad(kv_tokens=self.views, active=self.active))

    def seen(self) -> list[tuple[int, bool]]:
        return [(one.kv_tokens, one.active) for one in self.published]


def test_the_load_is_published_ten_times_a_second() -> None:
    scene = Scene()
    for tick in range(10_001):
        scene.tick(tick / 1000)
        scene.step()
    assert 99 <= len(scene.published) <= 101
    assert scene.woken == 0


def test_no_load_is_made_without_a_listener() -> None:
    scene = Scene(listeners=0)
    for tick in range(100):
        scene.tick(tick / 10)
        scene.feed.changed()
    assert (scene.asked, scene.published, scene.woken) == ([], [], 0)
    assert scene.feed.wait_s > 0.0, "the node looks for listeners once a period"
    scene.listeners = 1
    scene.tick(10.0)
    scene.step()
    assert len(scene.published) == 1


def test_a_change_is_published_soon_but_not_at_once_after_the_last_view() -> None:
    scene = Scene()
    scene.tick(1.0)
    scene.step()
    scene.feed.changed()
    scene.feed.changed()
    assert scene.woken == 1, "once for all changes up to the next view"
    assert scene.feed.wait_s == pytest.approx(LEAST_S)
    scene.tick(1.0 + LEAST_S / 2)
    assert not scene.asked
    scene.tick(1.0 + LEAST_S)
    scene.step()
    assert len(scene.published) == 2
    later_s = 1.0 + LEAST_S + PERIOD_S / 2
    scene.tick(later_s)
    assert not scene.asked
    scene.feed.changed()  # long after the last view: at once
    assert scene.feed.wait_s == 0.0


def test_a_change_after_a_view_was_asked_for_gets_a_view_of_its_own() -> None:
    scene = Scene()
    scene.tick(1.0)
    scene.feed.changed()
    assert scene.woken == 0, "the awaited view comes first"
    scene.tick(1.0 + LEAST_S)
    scene.step()
    assert scene.woken == 1
    assert scene.feed.wait_s == pytest.approx(LEAST_S), "however long the view was awaited"
    scene.tick(1.0 + 2.1 * LEAST_S)
    scene.step()
    assert [views for views, _ in scene.seen()] == [1, 2]
    assert scene.woken == 1


def test_a_long_step_is_no_silence_and_its_view_is_published() -> None:
    scene = Scene()
    scene.tick(0.0)
    scene.step()
    scene.tick(0.1)  # a step of 0.45 s has begun
    scene.active = False
    for tick in range(20, 50):
        scene.tick(tick / 100)
    assert len(scene.asked) == 1
    assert scene.seen() == [(1, True), (1, False), (1, False), (1, False)]
    scene.step()
    assert scene.seen()[-1] == (2, False)


def test_a_view_of_a_former_engine_is_not_published() -> None:
    scene = Scene()
    scene.tick(0.0)
    scene.feed.restart()
    scene.step()
    assert not scene.published
    scene.tick(0.1)
    scene.step()
    assert scene.seen() == [(2, True)]
