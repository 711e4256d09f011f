"""vLLM's KV connectors, which store KV outside of the engine and load it again."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from vllm.config import KVTransferConfig
from vllm.distributed.kv_transfer import ensure_kv_transfer_shutdown, has_kv_transfer_group
from vllm.platforms import current_platform

from timely_llm.core.errors import EngineError, EngineSettingError

log = logging.getLogger(__name__)

_OF_GPUS = ("OffloadingConnector", "SimpleCPUOffloadConnector")
_QUEUES = ("waiting", "skipped_waiting", "kv_holding_waiting")
"""vLLM's queues for requests that do not run; the second until 0.30, the third since then."""


def transfer_config(given: Any) -> Any:
    """Return vLLM's configuration of a connector; None: there is no connector.

    Args:
        given: the option `kv_transfer_config`.

    Raises:
        EngineError: it names no connector, or one that only stores or only loads.
    """
    if given is None:
        return None
    if not isinstance(given, Mapping) or not isinstance(given.get("kv_connector"), str):
        raise EngineSettingError(
            'engine_args: kv_transfer_config must be as {"kv_connector": "OffloadingConnector",'
            f' "kv_connector_extra_config": {{"cpu_bytes_to_use": 8e9}}}}, not {given!r}'
        )
    if given.get("kv_role", "kv_both") != "kv_both":
        raise EngineSettingError(
            "engine_args: this engine stores KV and loads it itself: kv_role must be 'kv_both',"
            f" not {given['kv_role']!r}"
        )
    return KVTransferConfig(**{**given, "kv_role": "kv_both"})


def check_connector(config: Any) -> None:
    """Check the connector of a configuration; make vLLM compute tokens that it fails to load.

    Raises:
        EngineError: the connector needs a GPU and there is none, or several steps are in flight.
    """
    if config.kv_transfer_config is None:
        return
    if config.max_concurrent_batches > 1:
        raise EngineSettingError(
            "engine_args: a KV connector and several steps in flight (async_scheduling, pipeline"
            " stages) exclude each other"
        )
    config.kv_transfer_config.kv_load_failure_policy = "recompute"
    name = config.kv_transfer_config.kv_connector
    if current_platform.is_cpu() and name in _OF_GPUS:
        raise EngineSettingError(
            f"vLLM's {name} moves KV between a GPU and the host's memory: on a CPU leave"
            " kv_offloading_size out"
        )


@contextmanager
def only_connector() -> Iterator[None]:
    """Close the connector of an engine that does not start: vLLM has one connector a process.

    Raises:
        EngineError: another engine of this process has a connector.
    """
    if has_kv_transfer_group():
        raise EngineError("another engine of this process has a KV connector: vLLM takes only one")
    try:
        yield
    except Exception:
        ensure_kv_transfer_shutdown()
        raise


class Offers:
    """Stands between vLLM's scheduler and its connector, so that steps load only what was decided.

    Args:
        scheduler: vLLM's scheduler, with a connector.

    Attributes:
        turning: whether vLLM makes a step that computes nothing.

    Raises:
        EngineError: this version of vLLM has other queues of requests.
    """

    def __init__(self, scheduler: Any) -> None:
        if not any(hasattr(scheduler, name) for name in _QUEUES[1:]):
            raise EngineError(
                "this version of vLLM is not known well enough for a KV connector: leave"
                " kv_transfer_config and kv_offloading_size out"
            )
        self._scheduler = scheduler
        self._ask = scheduler.connector.get_num_new_matched_tokens
        scheduler.connector.get_num_new_matched_tokens = self._answer
        self._taken: dict[str, tuple[int, bool]] = {}
        self._starting: frozenset[str] = frozenset()
        self.turning = False

    def ask(self, request: Any, known: int) -> tuple[int, bool]:
        """Return the tokens that can be loaded after the known ones, and whether they come later.

        A connector that does not know yet, or that fails, has 0 tokens.
        """
        try:
            tokens, later = self._ask(request, known)
        except Exception:
            log.exception("the KV connector could not say what it has")
            return 0, False
        return tokens or 0, bool(tokens and later)

    def take(self, request_id: str, tokens: int, later: bool) -> None:
        """Let a request begin with `tokens` loaded tokens."""
        self._taken[request_id] = tokens, later

    def forget(self, request_id: str) -> None:
        """Drop a request that has ended."""
        self._taken.pop(request_id, None)

    @contextmanager
    def turn(self, starting: frozenset[str]) -> Iterator[None]:
        """Mark a step that computes nothing, in which requests of `starting` begin their load."""
        self._starting, self.turning = starting, True
        try:
            yield
        finally:
            self._starting, self.turning = frozenset(), False

    @contextmanager
    def only(self, members: Mapping[str, int]) -> Iterator[None]:
        """Hide waiting requests from vLLM, but for `members` and those that begin their load."""
        resting: list[tuple[Any, list[Any]]] = []
        for name in _QUEUES:
            queue = getattr(self._scheduler, name, None)
            others = [
                request
                for request in queue or ()
                if request.request_id not in members and request.request_id not in self._starting
            ]
            if queue is not None and others:
                queue.remove_requests(others)
                resting.append((queue, others))
        try:
            yield
        finally:
            for queue, others in resting:
                for request in others:
                    queue.add_request(request)
            for request_id in members:  # vLLM asks about them only once
                self.forget(request_id)

    def _answer(self, request: Any, _: int) -> tuple[int, bool]:
        return self._taken.get(request.request_id, (0, False))
