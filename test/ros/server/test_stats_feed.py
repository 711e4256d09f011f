"""Statistics come at their rate, also while a step is longer than a period."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from timely_llm.ros.server.health import StatsFeed

PERIOD_S = 1.0


class Loop:
    """Counts when its step is over, as the thread of the engine does."""

    def __init__(self) -> None:
        self.asked: list[Callable[[Any], None]] = []
        self.steps = 0

    def count(self, tell: Callable[[Any], None]) -> None:
        self.asked.append(tell)

    def step(self) -> None:
        self.steps += 1
        while self.asked:
            self.asked.pop()(SimpleNamespace(stamp=None, steps=self.steps))


def made() -> tuple[StatsFeed, Loop, list[Any]]:
    published: list[Any] = []
    return StatsFeed(published.append, lambda: "now"), Loop(), published


def test_numbers_are_published_once_a_period_however_often_it_is_asked() -> None:
    feed, loop, published = made()
    for tick in range(1001):
        feed.tick(tick * 0.03, PERIOD_S, loop.count)
        loop.step()
    assert len(published) == 31, "30.03 s: each period one, none later for the one before"


def test_a_long_step_holds_no_message_up_and_brings_no_flood() -> None:
    feed, loop, published = made()
    feed.tick(0.0, PERIOD_S, loop.count)
    loop.step()
    for second in range(1, 61):  # one step
        feed.tick(float(second), PERIOD_S, loop.count)
        assert len(loop.asked) == 1
    assert len(published) == 60, "that of the second 1 is not yet counted"
    assert {message.steps for message in published} == {1}
    assert {message.stamp for message in published[1:]} == {"now"}
    loop.step()
    assert len(published) == 60, "its period has had a message"
    feed.tick(61.0, PERIOD_S, loop.count)
    loop.step()
    assert [message.steps for message in published[-1:]] == [3]


def test_the_first_numbers_of_a_server_come_when_there_are_any() -> None:
    feed, loop, published = made()
    for second in range(3):
        feed.tick(float(second), PERIOD_S, loop.count)
    assert not published
    loop.step()
    assert len(published) == 1


def test_numbers_of_a_former_engine_are_not_published() -> None:
    feed, loop, published = made()
    feed.tick(0.0, PERIOD_S, loop.count)
    feed.restart()
    loop.step()
    assert not published
    feed.tick(1.0, PERIOD_S, loop.count)
    loop.step()
    assert len(published) == 1


def test_a_process_that_was_held_up_does_not_make_up_for_it() -> None:
    feed, loop, published = made()
    for now in (0.0, 100.0, 100.5):
        feed.tick(now, PERIOD_S, loop.count)
        loop.step()
    assert len(published) == 2
    assert feed.wait_s(100.5) == 0.5
