"""An engine in a process of its own: step plans go there, results come back.

What it computes on the CPU does not hold up the Python threads of this process.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from timely_llm.core import errors
from timely_llm.core.errors import EngineError, EngineLost, TimelyError
from timely_llm.engines.contract import GREEDY, Decoding, Prefix, StepResult
from timely_llm.engines.plan_check import check_plan
from timely_llm.engines.tokenizer_contract import Tokenizer
from timely_llm.policies.contract import Capacity, StepPlan

log = logging.getLogger(__name__)

CHILD = "timely_llm.engines.remote_child"
CLOSE_S = 4.0
"""How long an engine may take to end, seconds; then its processes are killed."""


@dataclass(eq=False)
class _Seen:
    """What this side knows of a sequence: tokens, those left to compute, those of its prefix."""

    tokens: int
    left: int
    shared: int


class RemoteEngine:
    """Any engine of the registry with a model, in a child process; see `Engine`.

    The child ends with the thread that made it, however that ends, also if it hangs itself; so do
    the processes that it has started. One step at a time is in flight.

    Args:
        tokenizer: the model's words.
        options: arguments of `make_engine`.

    Raises:
        EngineError, ModelError: as `make_engine` does there.
    """

    in_flight = 1
    ahead = False

    def __init__(self, tokenizer: Tokenizer, options: dict[str, Any]) -> None:
        self.tokenizer = tokenizer
        self._name = options["name"]
        self._sequences: dict[str, _Seen] = {}
        self._prefixes: dict[tuple[int, ...], Prefix] = {}
        self._plan: StepPlan | None = None
        ours, theirs = socket.socketpair()
        with theirs:
            # In a session of its own: Ctrl-C is for this process, which then ends the other.
            self._child = subprocess.Popen(
                [sys.executable, "-m", CHILD, str(theirs.fileno()), str(os.getpid())],
                pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL, start_new_session=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )  # fmt: skip
        self._connection = Connection(ours.detach())
        self._capacity = Capacity(0, 0, 0)
        try:
            self._send(options)
            self.block_tokens, in_flight = self._receive()
        except BaseException:
            self.close()
            raise
        if in_flight > self.in_flight:
            log.warning(
                "%d steps could be in flight, but only one is where the engine has a process of its"
                " own",
                in_flight,
            )

    @property
    def capacity(self) -> Capacity:
        """What the next step can take."""
        if self._child.poll() is not None:
            raise self._lost()
        return self._capacity

    def pin_prefix(self, token_ids: Sequence[int]) -> Prefix:
        """Compute a prefix and keep it; see `Engine.pin_prefix`."""
        known = self._prefixes.get(tuple(token_ids))
        if known is None:
            known = self._call("pin_prefix", list(token_ids))
            self._prefixes[known.token_ids] = known
        return known

    def prepare_prefix(self, token_ids: Sequence[int], tokens: int) -> int:
        """Compute a part of a prefix; see `Engine.prepare_prefix`."""
        if tuple(token_ids) in self._prefixes:
            return 0
        left: int = self._call("prepare_prefix", list(token_ids), tokens)
        return left

    def unpin_prefix(self, token_ids: Sequence[int]) -> None:
        """Free the KV of a prefix; see `Engine.unpin_prefix`."""
        self._call("unpin_prefix", list(token_ids))
        self._prefixes.pop(tuple(token_ids), None)

    def add(
        self,
        key: str,
        token_ids: Sequence[int],
        prefix: Prefix | None = None,
        decoding: Decoding = GREEDY,
    ) -> int:
        """Make a sequence known; see `Engine.add`."""
        left: int = self._call("add", key, list(token_ids), prefix, decoding)
        self._sequences[key] = _Seen(len(token_ids), left, len(token_ids) - left)
        return left

    def submit(self, plan: StepPlan) -> None:
        """Send a plan; see `Engine.submit`. What only the other side can find wrong comes later."""
        if self._plan is not None:
            raise EngineError("collect the submitted step before another one is submitted")
        check_plan(plan, self._left, self._capacity)
        self._send(("step", (plan,)))
        self._plan = plan

    def collect(self) -> StepResult:
        """Wait for the result of the plan that was sent.

        Raises:
            EngineError: as `submit` and `collect` do there.
        """
        if self._plan is None:
            raise EngineError("there is no step to collect")
        plan, self._plan = self._plan, None
        result: StepResult = self._receive()
        if not plan.keys >= result.computed.keys() >= result.tokens.keys():
            raise EngineError(f"a step of {sorted(plan.keys)} has a result of others")
        for key in result.evicted:
            if key in self._sequences:
                seen = self._sequences[key]
                seen.left = seen.tokens - seen.shared
        for key, tokens in result.loaded.items():
            if key in self._sequences:
                self._sequences[key].left -= tokens
        for key, computed in result.computed.items():
            seen, said = self._sequences[key], len(result.tokens.get(key, ()))
            seen.tokens += said
            seen.left += said - computed
        return result

    def take_back(self, key: str, tokens: int) -> int:
        """Forget the newest tokens of a sequence; see `Engine.take_back`."""
        left: int = self._call("take_back", key, tokens)
        self._grow(key, -tokens, left)
        return left

    def append(self, key: str, token_ids: Sequence[int], drop: int = 0) -> int:
        """Add outside words; see `Engine.append`."""
        left: int = self._call("append", key, list(token_ids), drop)
        self._grow(key, len(token_ids) - drop, left)
        return left

    def resume(
        self, key: str, new_key: str, token_ids: Sequence[int], decoding: Decoding = GREEDY
    ) -> int:
        """Go on with a sequence under another name; see `Engine.resume`."""
        left: int = self._call("resume", key, new_key, list(token_ids), decoding)
        self._sequences[new_key] = self._sequences.pop(key)
        self._grow(new_key, len(token_ids), left)
        return left

    def remove(self, key: str) -> None:
        """Free everything of a sequence at once; an unknown key is not an error."""
        if key in self._sequences:
            with contextlib.suppress(EngineLost):
                self._call("remove", key)
            del self._sequences[key]

    def close(self) -> None:
        """End the other process, and all that it has started."""
        if self._connection.closed:
            return
        with contextlib.suppress(OSError):
            self._connection.send(("close", ()))
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(CLOSE_S)
        # All that it has started are in its group, and may live on without it.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()
        self._connection.close()
        self._sequences.clear()

    def _left(self, key: str) -> int | None:
        seen = self._sequences.get(key)
        return None if seen is None else seen.left

    def _grow(self, key: str, tokens: int, left: int) -> None:
        seen = self._sequences[key]
        seen.tokens += tokens
        seen.left = left

    def _call(self, name: str, *arguments: Any) -> Any:
        if self._plan is not None:
            raise EngineError(f"collect the submitted step before {name}")
        self._send((name, arguments))
        return self._receive()

    def _send(self, message: Any) -> None:
        try:
            self._connection.send(message)
        except OSError as error:
            raise self._lost() from error

    def _receive(self) -> Any:
        """Return the value of the oldest call that was not answered."""
        try:
            failed, value, capacity = self._connection.recv()
        except (EOFError, OSError) as error:
            raise self._lost() from error
        self._capacity = capacity or self._capacity
        if failed is not None:
            raise _error(failed)
        return value

    def _lost(self) -> TimelyError:
        """Return why the other process is gone: its last words, or how it ended."""
        with contextlib.suppress(EOFError, OSError):
            while self._connection.poll():
                failed, _, _ = self._connection.recv()
                if failed is not None:
                    return _error(failed)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(CLOSE_S)
        status = self._child.returncode
        how = f"with status {status}"
        if status is not None and status < 0:
            how = f"by {signal.Signals(-status).name}"
        return EngineLost(f"the process of the engine {self._name} has ended {how}")


def _error(failed: tuple[str, str]) -> TimelyError:
    """Return an error of the other process: its kind and what it says."""
    kind, text = failed
    made: TimelyError = getattr(errors, kind)(text)
    return made
