"""A server of one behaviour, written out byte by byte."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from types import TracebackType

Behaviour = Callable[["Visit"], None]


class Visit:
    """One connection, after its request was read.

    Attributes:
        number: of the request at its server, from 0.
        head: request line and headers.
        body: of the request, as a document.
        over: set when the server closes.
    """

    def __init__(self, connection: socket.socket, number: int, over: threading.Event) -> None:
        self._connection = connection
        self.number = number
        self.over = over
        self.read()

    def read(self) -> None:
        """Read a request."""
        data = b""
        while b"\r\n\r\n" not in data:
            data += self._receive()
        head, _, rest = data.partition(b"\r\n\r\n")
        self.head = head.decode()
        length = next(
            int(line.split(":")[1])
            for line in self.head.lower().splitlines()
            if line.startswith("content-length")
        )
        while len(rest) < length:
            rest += self._receive()
        self.body = json.loads(rest)

    def _receive(self) -> bytes:
        data = self._connection.recv(65536)
        if not data:
            raise ConnectionError
        return data

    def send(self, data: bytes | str) -> None:
        self._connection.sendall(data.encode() if isinstance(data, str) else data)

    def status(self, line: str, body: str = "", **headers: str) -> None:
        """Send a whole answer."""
        length = str(len(body.encode()))
        fields = {"content_type": "application/json", "content_length": length, **headers}
        named = "".join(f"{k.replace('_', '-')}: {v}\r\n" for k, v in fields.items())
        self.send(f"HTTP/1.1 {line}\r\n{named}\r\n{body}")

    def stream(self, *events: object, kind: str = "text/event-stream", end: bool = True) -> None:
        """Send an event stream: each event a document, or a text as it is."""
        self.send(f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\nconnection: close\r\n\r\n")
        self.events(*events, *(["[DONE]"] if end else []))

    def events(self, *events: object) -> None:
        """Send events in one piece."""
        data = (event if isinstance(event, str) else json.dumps(event) for event in events)
        self.send("".join(f"data: {each}\n\n" for each in data))

    def reset(self) -> None:
        """Break the connection off, as a cable does that is cut: the client gets an error."""
        linger = struct.pack("ii", 1, 0)
        self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self._connection.close()

    def hang(self) -> None:
        """Send nothing until the server closes."""
        self.over.wait(60)

    def gone(self) -> bool:
        """Wait until the client has closed the connection."""
        try:
            return not self._connection.recv(1)
        except ConnectionError:
            return True


def words(text: str | None, reason: str | None = None) -> dict[str, object]:
    """Return a chunk."""
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": reason}]}


class BadServer:
    """Answers each connection by one behaviour.

    Args:
        behaviour: what is done with a request.
        tls: the server's side of TLS; None: plain text.
    """

    def __init__(self, behaviour: Behaviour, tls: ssl.SSLContext | None = None) -> None:
        self._behaviour = behaviour
        self._tls = tls
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.visits: list[Visit] = []
        self.over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            if self.over.is_set():
                connection.close()
                return
            thread = threading.Thread(target=self._visit, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _visit(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            stack.enter_context(connection)
            connection.settimeout(30)
            if self._tls is not None:
                connection = stack.enter_context(
                    self._tls.wrap_socket(connection, server_side=True)
                )
            visit = Visit(connection, len(self.visits), self.over)
            self.visits.append(visit)
            self._behaviour(visit)

    def __enter__(self) -> BadServer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.over.set()
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port)).close()
        self._socket.close()
        for thread in (self._listener, *self._threads):
            thread.join(30)
