"""What a client concludes from DDS liveliness, and from what other nodes say of its server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
import rclpy
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor

from test.ros.client.lone_server import NAME, LoneServer, lone_server
from timely_llm.ros.client.server_watch import (
    ANSWER_S,
    FAREWELL_S,
    GRACE_S,
    PAUSE_S,
    PROOF_S,
    UNSEEN_S,
    Liveness,
    ServerWatch,
    Suspicion,
)
from timely_llm.ros.interface_number import ANNOUNCED_S, SILENCE_S

WAIT_S = 30.0
DOMAIN = 202
DIED = "the server /s died or cannot be reached (no sign of life for 2 s)"
STEP_S = 0.1


class Clock:
    """A liveliness that is checked often, as clients do."""

    def __init__(self) -> None:
        self.now = 100.0
        self.life = Liveness("/s", SILENCE_S)
        self.life.lost(self.now)
        self.life.answered(self.now)
        self.life.changed(1, 1, 0, self.now)

    def lost_within(self, seconds: float) -> str:
        end_s = self.now + seconds
        while self.now < end_s:
            self.now += STEP_S
            if told := self.life.lost(self.now):
                return told
        return ""


def test_a_silent_server_is_lost_once_within_three_seconds_of_its_last_sign() -> None:
    assert SILENCE_S + GRACE_S + 2 * STEP_S < 3.0
    assert ANNOUNCED_S <= SILENCE_S / 2
    clock = Clock()
    assert clock.life.changed(0, -1, 1, clock.now) is False
    assert clock.lost_within(GRACE_S + 2 * STEP_S) == DIED
    assert not clock.life.known
    assert clock.lost_within(10.0) == ""


def test_a_server_that_leaves_is_lost_when_its_last_words_are_read() -> None:
    clock = Clock()
    clock.life.changed(0, -1, 0, clock.now)
    assert clock.life.lost(clock.now) == ""
    assert clock.lost_within(FAREWELL_S + 2 * STEP_S) == "the server /s has stopped"


def test_a_sign_within_the_grace_is_no_loss_and_news() -> None:
    clock = Clock()
    clock.life.changed(0, -1, 1, clock.now)
    assert clock.lost_within(GRACE_S - 2 * STEP_S) == ""
    assert clock.life.changed(1, 1, -1, clock.now) is True
    assert clock.lost_within(10.0) == ""
    assert clock.life.known


def test_a_second_server_is_news_and_the_end_of_the_first_one_is_no_loss() -> None:
    clock = Clock()
    assert clock.life.changed(2, 1, 0, clock.now) is True
    clock.life.changed(1, -1, 1, clock.now)
    assert clock.lost_within(10.0) == ""


def test_a_client_that_was_stopped_itself_gives_the_server_time_to_show_itself() -> None:
    clock = Clock()
    clock.now += 60.0  # the client was stopped, and the lease ran out meanwhile
    clock.life.changed(0, -1, 1, clock.now - PAUSE_S)
    assert clock.life.lost(clock.now) == ""
    assert clock.lost_within(SILENCE_S - 2 * STEP_S) == ""
    clock.life.changed(1, 1, -1, clock.now)
    assert clock.lost_within(10.0) == ""


def test_a_server_that_answers_and_never_shows_itself_is_lost() -> None:
    clock = Clock()
    clock.life = Liveness("/s", SILENCE_S)
    clock.life.lost(clock.now)
    assert clock.lost_within(10.0) == ""
    clock.life.answered(clock.now)
    assert clock.lost_within(UNSEEN_S + 2 * STEP_S) == DIED


@pytest.mark.parametrize("changes", [(0, -1, 1), (0, -1, 0)])
def test_a_server_that_never_answered_is_no_loss(changes: tuple[int, int, int]) -> None:
    clock = Clock()
    clock.life = Liveness("/s", SILENCE_S)
    clock.life.lost(clock.now)
    clock.life.changed(1, 1, 0, clock.now)
    clock.life.changed(*changes, clock.now)
    assert clock.lost_within(10.0) == ""


def test_a_server_that_was_lost_is_gone_until_one_shows_itself() -> None:
    clock = Clock()
    assert not clock.life.gone
    clock.life.changed(0, -1, 1, clock.now)
    assert clock.lost_within(1.0)
    clock.life.answered(clock.now)  # its successor, which is only starting
    assert clock.life.gone
    clock.life.changed(1, 1, 0, clock.now)
    assert not clock.life.gone


def test_a_server_that_was_counted_out_twice_is_seen_when_it_is_there_again() -> None:
    clock = Clock()
    clock.life.changed(0, -1, 0, clock.now)
    assert clock.lost_within(1.0)
    clock.life.changed(-1, -1, 1, clock.now)
    assert clock.life.gone
    clock.life.changed(0, 1, -1, clock.now)
    assert not clock.life.gone


def test_a_server_that_is_there_again_is_watched_as_before() -> None:
    clock = Clock()
    clock.life.changed(0, -1, 1, clock.now)
    assert clock.lost_within(1.0)
    clock.life.changed(1, 1, 0, clock.now)
    clock.life.answered(clock.now)
    assert clock.lost_within(10.0) == ""
    clock.life.changed(0, -1, 1, clock.now)
    assert clock.lost_within(1.0) == DIED


class WatchingClient:
    """A node that watches the server `s`; the rest is as in `ServerWatch`."""

    def __init__(self, domain: int) -> None:
        self._context = Context()
        rclpy.init(context=self._context, domain_id=domain)
        self._executor = SingleThreadedExecutor(context=self._context)
        self._node = rclpy.create_node("c", context=self._context)
        self._executor.add_node(self._node)
        self.watch = ServerWatch(self._node, NAME, lambda: None)
        self._end_s = time.monotonic() + WAIT_S

    def found(self) -> bool:
        """Whether the server is found; all of it seems to be in the graph."""
        return self.watch.find(lambda: True)

    def spin_until(self, done: Callable[[], bool]) -> None:
        while not done():
            assert time.monotonic() < self._end_s, vars(self.watch._liveness)
            self._executor.spin_once(0.02)

    def spin(self, seconds: float) -> None:
        end_s = time.monotonic() + seconds
        self.spin_until(lambda: time.monotonic() > end_s)

    def close(self) -> None:
        self._executor.shutdown()
        self._node.destroy_node()
        rclpy.shutdown(context=self._context)


@pytest.fixture
def client() -> Iterator[WatchingClient]:
    made = WatchingClient(DOMAIN)
    yield made
    made.close()


@pytest.fixture
def server() -> Iterator[LoneServer]:
    with lone_server(DOMAIN) as made:
        yield made


def test_no_request_goes_to_a_server_that_has_left_before_its_last_words_are_read(
    server: LoneServer, client: WatchingClient
) -> None:
    watch = client.watch
    client.spin_until(lambda: client.found() and watch._liveness._seen)
    server.tell("hide")
    client.spin_until(lambda: not watch.fits)  # nothing asks whether it is lost


def test_a_server_that_answers_while_it_starts_is_not_taken_for_the_one_that_left(
    server: LoneServer, client: WatchingClient
) -> None:
    watch = client.watch
    client.spin_until(lambda: client.found() and watch._liveness._seen)
    client.spin(ANSWER_S)
    server.tell("wait")
    server.tell("hide")
    client.spin_until(lambda: not watch.fits)
    asked = len(watch._questions)
    assert not client.found()  # asks once more: what the server has left is still there
    assert len(watch._questions) > asked
    client.spin_until(lambda: bool(watch.lost()))
    server.tell("answer")
    client.spin_until(lambda: all(one.done() for one in watch._questions))
    client.spin(ANSWER_S)
    assert not watch.fits, "it answers for its parameters, and has nothing else yet"
    server.tell("show")
    client.spin_until(client.found)


def test_what_another_node_says_of_a_server_counts_when_that_one_proves_nothing() -> None:
    suspicion = Suspicion()
    assert suspicion.confirmed(0.0) == ""
    suspicion.rises("it has interface 7", 0.1)
    assert suspicion.confirmed(1.0) == ""
    suspicion.rises("it signs nothing", 1.1)
    assert suspicion.confirmed(0.1 + PROOF_S - 0.01) == ""
    assert suspicion.confirmed(0.1 + PROOF_S) == "it signs nothing"
    assert suspicion.confirmed(0.2 + PROOF_S) == "it signs nothing", "each question hears it"


def test_a_proof_ends_a_suspicion() -> None:
    suspicion = Suspicion()
    suspicion.confirmed(0.0)
    suspicion.rises("it has interface 7", 0.1)
    suspicion.confirmed(2.0)
    suspicion.clear()
    assert suspicion.confirmed(4.0) == ""


def test_a_suspicion_of_an_earlier_search_gives_a_server_its_time() -> None:
    suspicion = Suspicion()
    suspicion.confirmed(0.0)
    suspicion.rises("it has interface 7", 0.1)
    later = 0.1 + PROOF_S + 10.0
    assert suspicion.confirmed(later) == ""
    suspicion.rises("it has interface 7", later)
    assert suspicion.confirmed(later + PROOF_S - 0.1) == ""
