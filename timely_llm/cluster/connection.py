"""A connection between a front and a replica: pickled messages, in order, none missing."""

from __future__ import annotations

import contextlib
import hmac
import itertools
import logging
import pickle
import queue
import secrets
import socket
import struct
import threading
from collections.abc import Callable
from typing import Any

from timely_llm.core.errors import TimelyError

log = logging.getLogger(__name__)

HANDSHAKE_S = 3.0
"""Longest time in which the other end proves that it has the nonce, seconds."""
NONCE_BYTES = 32
MOST_WAITING = 20_000
"""Messages that wait to be sent; a peer that leaves more than these is given up."""
BATCH = 256
"""Most messages of one frame."""
MOST_BYTES = 256 * 2**20
"""Longest frame, bytes."""
_HEADER = struct.Struct(">QI")
"""Number of the frame, from 0, and its length in bytes."""


class ConnectionRefused(TimelyError):
    """The other end of a connection has another nonce, or is not there."""


def new_nonce() -> bytes:
    """Return a random secret of one connection."""
    return secrets.token_bytes(NONCE_BYTES)


def prove(stream: socket.socket, nonce: bytes, me: bytes, other: bytes) -> None:
    """Prove to the other end that this one has the nonce, and let it prove the same.

    The nonce itself is not sent: each end signs the random bytes of the other.

    Args:
        stream: a new connection.
        nonce: the secret of both ends.
        me: name of this end, so that no end accepts its own answer.
        other: name of the other end.

    Raises:
        ConnectionRefused: the other end does not have the nonce, or does not answer in time.
    """
    try:
        stream.settimeout(HANDSHAKE_S)
        mine = secrets.token_bytes(NONCE_BYTES)
        stream.sendall(mine)
        stream.sendall(hmac.digest(nonce, me + _exactly(stream, NONCE_BYTES), "sha256"))
        answer = _exactly(stream, NONCE_BYTES)
        stream.settimeout(None)
    except OSError as error:
        raise ConnectionRefused(f"the other end does not prove its nonce: {error}") from error
    if not hmac.compare_digest(answer, hmac.digest(nonce, other + mine, "sha256")):
        raise ConnectionRefused("the other end has another nonce")


class Door:
    """Waits for the one connection that proves a nonce; others are refused.

    Args:
        host: address at which it listens.
        take: takes the connection, in a thread of the door.

    Attributes:
        address: host and port.
        nonce: the secret; nothing is read of a connection before it is proved.
    """

    def __init__(self, host: str, take: Callable[[socket.socket], None]) -> None:
        self.nonce = new_nonce()
        self._take = take
        self._socket = socket.create_server((host, 0))
        self.address: tuple[str, int] = self._socket.getsockname()[:2]
        threading.Thread(target=self._wait, name="door", daemon=True).start()

    def close(self) -> None:
        """Take no connection any more."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _wait(self) -> None:
        while True:
            try:
                stream, _ = self._socket.accept()
            except OSError:
                return  # it was closed
            try:
                prove(stream, self.nonce, b"front", b"replica")
            except ConnectionRefused as error:
                log.warning("a connection to a replica's front was refused: %s", error)
                stream.close()
                continue
            self.close()
            self._take(stream)
            return


def connect(address: tuple[str, int], nonce: bytes) -> socket.socket:
    """Return the connection of a replica to its front.

    Raises:
        ConnectionRefused: the front is not there, or has another nonce.
    """
    try:
        stream = socket.create_connection(address, HANDSHAKE_S)
    except OSError as error:
        where = f"{address[0]}:{address[1]}"
        raise ConnectionRefused(f"the front at {where} cannot be reached: {error}") from error
    try:
        prove(stream, nonce, b"replica", b"front")
    except ConnectionRefused:
        stream.close()
        raise
    return stream


class Connection:
    """Sends and takes messages. No call blocks, and any thread may send.

    Args:
        stream: a connection; both ends have proved their nonce.
        take: takes each message, in a thread of the connection.
        gone: called once, in that thread, when the connection has ended; with the reason.
    """

    def __init__(
        self, stream: socket.socket, take: Callable[[Any], None], gone: Callable[[str], None]
    ) -> None:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = stream
        self._take = take
        self._gone = gone
        self._waiting: queue.Queue[Any] = queue.Queue(MOST_WAITING)
        self._over = threading.Event()
        self._why = ""
        self._sender = threading.Thread(target=self._send, name="sender", daemon=True)
        self._sender.start()
        threading.Thread(target=self._receive, name="receiver", daemon=True).start()

    def send(self, message: Any) -> None:
        """Send a message after those before it; of a connection that has ended, forget it."""
        try:
            self._waiting.put_nowait((message,))
        except queue.Full:
            self._end(f"{MOST_WAITING} messages wait for it")

    def close(self, timeout_s: float = 1.0) -> None:
        """End the connection when what waits is sent, or after a time."""
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(None)
            self._sender.join(timeout_s)
        self._end("it was closed")

    def _end(self, why: str) -> None:
        self._why = self._why or why
        self._over.set()
        with contextlib.suppress(OSError):
            self._stream.shutdown(socket.SHUT_RDWR)  # wakes both threads
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(None)

    def _send(self) -> None:
        try:
            for number in itertools.count():
                batch, last = self._batch()
                if batch:
                    data = pickle.dumps(batch, pickle.HIGHEST_PROTOCOL)
                    self._stream.sendall(_HEADER.pack(number, len(data)) + data)
                if last or self._over.is_set():
                    return
        except OSError as error:
            self._end(str(error))
        except Exception as error:
            log.exception("a message cannot be sent")
            self._end(f"a message cannot be sent: {error}")

    def _batch(self) -> tuple[list[Any], bool]:
        """Wait for messages; return them, and whether they are the last ones."""
        batch: list[Any] = []
        item = self._waiting.get()
        while item is not None:
            batch.append(item[0])
            if len(batch) == BATCH:
                return batch, False
            try:
                item = self._waiting.get_nowait()
            except queue.Empty:
                return batch, False
        return batch, True

    def _receive(self) -> None:
        try:
            for number in itertools.count():
                for message in self._frame(number):
                    self._take(message)
        except OSError as error:
            self._end(str(error))
        except Exception as error:
            log.exception("a message cannot be taken")
            self._end(f"a message cannot be taken: {error}")
        finally:
            self._sender.join()
            self._stream.close()
            self._gone(self._why)

    def _frame(self, number: int) -> list[Any]:
        found, length = _HEADER.unpack(_exactly(self._stream, _HEADER.size))
        if found != number or length > MOST_BYTES:
            raise OSError(f"frame {number} was awaited, and frame {found} of {length} bytes came")
        batch: list[Any] = pickle.loads(_exactly(self._stream, length))
        return batch


def _exactly(stream: socket.socket, length: int) -> bytes:
    """Read a number of bytes.

    Raises:
        OSError: the connection has ended.
    """
    parts = []
    while length:
        part = stream.recv(min(length, 2**20))
        if not part:
            raise ConnectionResetError("the other end has closed the connection")
        parts.append(part)
        length -= len(part)
    return b"".join(parts)
