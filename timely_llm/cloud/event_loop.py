"""An event loop in which a silent name server holds up nothing but its own questions."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from typing import Any


class ResolvingLoop(asyncio.SelectorEventLoop):
    """Resolves a name in a daemon thread; questions about the same name share it.

    The thread pool of asyncio keeps a process from ending until a resolver has given up, which
    takes up to a minute. A thread for each connection would let threads pile up meanwhile.
    """

    def __init__(self) -> None:
        super().__init__()
        self._resolving: dict[tuple[Any, ...], asyncio.Future[Any]] = {}

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
        """Return what `socket.getaddrinfo` returns; see there."""
        key = (host, port, *sorted(options.items()))
        future = self._resolving.get(key)
        if future is None:
            future = self._resolving[key] = self.create_future()
            future.add_done_callback(lambda done: self._resolving.pop(key, None))
            threading.Thread(
                target=self._resolve, args=(future, host, port, options), name="resolver",
                daemon=True,
            ).start()  # fmt: skip
        return await asyncio.shield(future)

    def _resolve(
        self, future: asyncio.Future[Any], host: Any, port: Any, options: dict[str, Any]
    ) -> None:
        found: Any = None
        problem: Exception | None = None
        try:
            found = socket.getaddrinfo(host, port, **options)
        except Exception as error:
            problem = error

        def settle() -> None:
            if future.done():
                return
            if problem is None:
                future.set_result(found)
            else:
                future.set_exception(problem)
                future.exception()  # it is known, even if no question waits for it any more

        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            self.call_soon_threadsafe(settle)
