"""Forward passes of a vLLM engine, told what each does; several may be in flight."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from vllm.v1.engine.core import EngineCore

from timely_llm.core.errors import EngineError, EngineLost


class VllmPasses:
    """Starts passes and waits for them, in order. If one fails, all others are lost.

    Args:
        core: the engine, with one of `SCHEDULERS`.
        in_flight: passes that can be started before one is waited for.
    """

    def __init__(self, core: EngineCore, in_flight: int) -> None:
        self._core = core
        self._scheduler = core.scheduler
        self._queued = in_flight > 1
        self._outputs: deque[Any] = deque()
        if self._queued:
            # A place more: vLLM waits for the oldest when all are taken.
            core.batch_queue_size = in_flight + 1
            core.batch_queue = deque(maxlen=in_flight + 1)

    def submit(self, order: dict[str, int]) -> None:
        """Start a pass.

        Args:
            order: how many tokens of each request are computed, by its id.

        Raises:
            EngineError: vLLM does something else.
        """
        self._step(order)
        if self._scheduler.scheduled != order:
            self._lose()
            raise EngineError(f"vLLM computes {self._scheduler.scheduled}, not {order}")

    def collect(self) -> Sequence[Any]:
        """Wait for the oldest pass, and return what vLLM says of requests that it says anything of.

        Raises:
            EngineError: vLLM does not know of it.
        """
        if not self._outputs:
            self._step({})
        outputs = self._outputs.popleft()
        return outputs[0].outputs if outputs else ()

    def turn(self, starting: frozenset[str] = frozenset()) -> None:
        """Make a step that computes nothing, in which vLLM looks after its connector.

        Args:
            starting: requests that begin their load.
        """
        self._scheduler.order = {}
        with self._scheduler.offers.turn(starting):
            try:
                self._core.step()
            except Exception:
                self._lose()
                self.check()
                raise

    def check(self) -> None:
        """Find out whether all of vLLM's processes are alive, if it has more than this one.

        Raises:
            EngineLost: one is not.
        """
        if getattr(self._core.model_executor, "is_failed", False):
            raise EngineLost("a worker process of vLLM has ended, and vLLM ends with it")

    def _step(self, order: dict[str, int]) -> None:
        """Let vLLM schedule a step, unless there is nothing to do, and wait for one if it must."""
        self._scheduler.order = order
        try:
            if self._queued:
                outputs, _ = self._core.step_with_batch_queue()
            else:
                outputs, executed = self._core.step()
                self._core.post_step(executed)
        except Exception:
            self._lose()
            self.check()  # if a worker is gone, that is why
            raise
        if outputs is not None:
            self._outputs.append(outputs)
        elif not order:
            raise EngineError("vLLM has lost a step")

    def _lose(self) -> None:
        """Forget all passes that were started."""
        for of in (self._outputs, self._core.batch_queue or []):
            of.clear()
