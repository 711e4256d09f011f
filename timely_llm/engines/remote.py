"""An engine in a child process: calls go through a socket, results come back.

The CPU time of the engine does not delay the Python threads of this process.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any

from timely_llm.core import errors
from timely_llm.core.errors import EngineError, EngineLost, TimelyError
from timely_llm.core.step import Capacity, SequenceProgress, StepPlan, StepResult
from timely_llm.engines.contract import GREEDY, Decoding, Prefix, Tokenizer
from timely_llm.engines.sequences import check_plan
from timely_llm.processes.module_process import ModuleProcess
from timely_llm.processes.signals import manner

CHILD = "timely_llm.engines.remote_worker"
CLOSE_S = 4.0
"""Longest time that an engine takes to end, seconds; then its processes are killed."""


class RemoteEngine:
    """An engine of the registry in a child process; see `Engine`.

    The child process ends with the thread that started it, in whatever way that thread ends, and
    even if the child hangs. Processes that the child has started end with it.

    If the engine takes one step at a time, a plan is sent without waiting for an answer. If it
    takes more, `submit` waits until the child has started the step.

    Args:
        tokenizer: tokenizer of the model.
        options: arguments of `make_engine`.

    Raises:
        EngineError, ModelError: as `make_engine` in the child process.
    """

    def __init__(self, tokenizer: Tokenizer, options: dict[str, Any]) -> None:
        self.tokenizer = tokenizer
        self._name = options["name"]
        self._sequences: dict[str, SequenceProgress] = {}
        self._prefixes: dict[tuple[int, ...], Prefix] = {}
        self._plan: StepPlan | None = None
        ours, theirs = socket.socketpair()
        with theirs:
            self._child = ModuleProcess(CHILD, theirs.fileno(), inherited=theirs.fileno())
        self._connection = Connection(ours.detach())
        self._capacity = Capacity(0, 0, 0)
        try:
            self._send(options)
            self.block_tokens, self.in_flight, self.async_scheduling = self._receive()
        except BaseException:
            self.close()
            raise

    @property
    def capacity(self) -> Capacity:
        """Limits of the next step."""
        if self._child.status is not None:
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
        to_compute: int = self._call("prepare_prefix", list(token_ids), tokens)
        return to_compute

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
    ) -> SequenceProgress:
        """Add a sequence; see `Engine.add`."""
        return self._noted(key, self._call("add", key, list(token_ids), prefix, decoding))

    def submit(self, plan: StepPlan) -> Mapping[str, SequenceProgress]:
        """Send a plan; see `Engine.submit`.

        With one step at a time, errors of the child process are raised by `collect`.
        """
        if self.in_flight > 1:
            planned: Mapping[str, SequenceProgress] = self._call("submit", plan)
            self._sequences.update(planned)
            return planned
        if self._plan is not None:
            raise EngineError("collect the submitted step before another one is submitted")
        check_plan(plan, self._left, self._capacity.max_rows, self._capacity.max_step_tokens)
        self._send(("step", (plan,)))
        self._plan = plan
        return {}

    def collect(self) -> StepResult:
        """Wait for the result of the oldest plan that was sent.

        Raises:
            EngineError: as `submit` and `collect` in the child process.
        """
        result = self._call("collect") if self.in_flight > 1 else self._result()
        for key, progress in result.progress.items():
            if key in self._sequences:
                self._sequences[key] = progress
        return result

    def _result(self) -> StepResult:
        """Wait for the result of the plan that was sent without waiting."""
        if self._plan is None:
            raise EngineError("there is no step to collect")
        plan, self._plan = self._plan, None
        result: StepResult = self._receive()
        if not plan.keys >= result.computed.keys() >= result.tokens.keys():
            raise EngineError(f"a step of {sorted(plan.keys)} has a result for other keys")
        return result

    def take_back(self, key: str, tokens: int) -> SequenceProgress:
        """Remove the newest tokens of a sequence; see `Engine.take_back`."""
        return self._noted(key, self._call("take_back", key, tokens))

    def append(self, key: str, token_ids: Sequence[int], drop: int = 0) -> SequenceProgress:
        """Add tool output; see `Engine.append`."""
        return self._noted(key, self._call("append", key, list(token_ids), drop))

    def resume(
        self,
        key: str,
        new_key: str,
        token_ids: Sequence[int],
        decoding: Decoding = GREEDY,
        keep: int | None = None,
    ) -> SequenceProgress:
        """Rename a sequence and add tokens; see `Engine.resume`."""
        progress = self._call("resume", key, new_key, list(token_ids), decoding, keep)
        del self._sequences[key]
        return self._noted(new_key, progress)

    def remove(self, key: str) -> None:
        """Free everything of a sequence at once; an unknown key is not an error."""
        if key in self._sequences:
            with contextlib.suppress(EngineLost):
                self._call("remove", key)
            del self._sequences[key]

    def close(self) -> None:
        """End the child process, and all processes that it has started."""
        if self._connection.closed:
            return
        with contextlib.suppress(OSError):
            self._connection.send(("close", ()))
        self._child.wait(CLOSE_S)
        self._child.kill()  # processes that it has started may outlive it
        self._child.wait()
        self._connection.close()
        self._sequences.clear()

    def _left(self, key: str) -> int | None:
        progress = self._sequences.get(key)
        return None if progress is None else progress.to_compute

    def _noted(self, key: str, progress: SequenceProgress) -> SequenceProgress:
        self._sequences[key] = progress
        return progress

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
        """Return the value of the oldest open call."""
        try:
            failed, value, capacity = self._connection.recv()
        except (EOFError, OSError) as error:
            raise self._lost() from error
        self._capacity = capacity or self._capacity
        if failed is not None:
            raise _error(failed)
        return value

    def _lost(self) -> TimelyError:
        """Return why the child process is gone: the error that it sent last, or how it ended."""
        with contextlib.suppress(EOFError, OSError):
            while self._connection.poll():
                failed, _, _ = self._connection.recv()
                if failed is not None:
                    return _error(failed)
        status = self._child.wait(CLOSE_S)
        how = "with status None" if status is None else manner(status)
        return EngineLost(f"the process of the engine {self._name} has ended {how}")


def _error(failed: tuple[str, str]) -> TimelyError:
    """Return an error of the child process, made from its kind and its text."""
    kind, text = failed
    made: TimelyError = getattr(errors, kind)(text)
    return made
