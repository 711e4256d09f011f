"""The connection of a front and a replica."""

from __future__ import annotations

import contextlib
import pickle
import queue
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from timely_llm.cluster import connection
from timely_llm.cluster.connection import (
    Connection,
    ConnectionRefused,
    Door,
    connect,
    new_nonce,
    prove,
)

WAIT_S = 20.0


class End:
    """One end of a connection, and what it got."""

    def __init__(self, stream: socket.socket) -> None:
        self.got: queue.Queue[Any] = queue.Queue()
        self.over: queue.Queue[str] = queue.Queue()
        self.connection = Connection(stream, self.got.put, self.over.put)

    def take(self, count: int) -> list[Any]:
        return [self.got.get(timeout=WAIT_S) for _ in range(count)]


def pair() -> tuple[End, End]:
    streams: queue.Queue[socket.socket] = queue.Queue()
    door = Door("127.0.0.1", streams.put)
    theirs = connect(door.address, door.nonce)
    return End(streams.get(timeout=WAIT_S)), End(theirs)


def test_messages_come_in_order_both_ways_whatever_their_size() -> None:
    front, replica = pair()
    sent = [*range(2000), "x" * 5_000_000, {"last": b""}]
    for message in sent:
        front.connection.send(message)
        replica.connection.send(message)
    assert front.take(len(sent)) == replica.take(len(sent)) == sent


def test_what_was_sent_before_the_close_arrives() -> None:
    front, replica = pair()
    for number in range(100):
        replica.connection.send(number)
    replica.connection.close(WAIT_S)
    assert front.take(100) == list(range(100))
    assert front.over.get(timeout=WAIT_S) == "the other end has closed the connection"
    assert replica.over.get(timeout=WAIT_S) == "it was closed"
    front.connection.send("too late")


def test_a_peer_that_reads_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MOST_WAITING", 10)
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    monkeypatch.setattr(socket.socket, "setsockopt", lambda *_: None)  # a pair has no TCP option
    end = End(ours)
    for _ in range(5000):
        end.connection.send("x" * 10_000)
        if not end.over.empty():
            break
    assert end.over.get(timeout=WAIT_S) == "10 messages wait for it"
    theirs.close()


class Trap:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return Path.write_text, (self.path, "unpickled")


def frame(number: int, message: object) -> bytes:
    data = pickle.dumps([message])
    return struct.pack(">QI", number, len(data)) + data


def test_nothing_is_unpickled_of_a_stranger_and_the_replica_still_gets_in(tmp_path: Path) -> None:
    taken: queue.Queue[socket.socket] = queue.Queue()
    door = Door("127.0.0.1", taken.put)
    with socket.create_connection(door.address) as stranger:
        stranger.sendall(bytes(64) + frame(0, Trap(tmp_path / "trap")))
        stranger.settimeout(WAIT_S)
        with contextlib.suppress(ConnectionResetError):
            while stranger.recv(4096):
                pass
    with pytest.raises(ConnectionRefused):
        connect(door.address, new_nonce())
    replica = End(connect(door.address, door.nonce))
    front = End(taken.get(timeout=WAIT_S))
    replica.connection.send("here")
    assert front.take(1) == ["here"]
    assert not (tmp_path / "trap").exists()
    with pytest.raises(OSError):  # the door is closed behind it
        socket.create_connection(door.address)


def test_an_end_does_not_accept_its_own_proof() -> None:
    """A stranger that sends back what it gets has proved nothing."""
    ours, theirs = socket.socketpair()

    def echo() -> None:
        while data := theirs.recv(4096):
            theirs.sendall(data)

    threading.Thread(target=echo, daemon=True).start()
    with pytest.raises(ConnectionRefused, match="the other end has another nonce"):
        prove(ours, new_nonce(), b"front", b"replica")
    ours.close()


def test_a_silent_stranger_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HANDSHAKE_S", 0.05)
    ours, theirs = socket.socketpair()
    with theirs, pytest.raises(ConnectionRefused, match="does not prove its nonce: timed out"):
        prove(ours, new_nonce(), b"front", b"replica")


def test_a_frame_that_is_missing_ends_the_connection() -> None:
    front, replica = pair()
    replica.connection._stream.sendall(frame(7, "late"))
    assert "frame 0 was awaited, and frame 7" in front.over.get(timeout=WAIT_S)
    assert front.got.empty()


def test_a_front_that_is_not_there_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        address = unused.getsockname()
    with pytest.raises(ConnectionRefused, match=r"the front at 127\.0\.0\.1:.* cannot be reached"):
        connect(address, new_nonce())
