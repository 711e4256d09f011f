"""A KV connector of vLLM's interface that keeps blocks of the runner without a model in a dict."""

from __future__ import annotations

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
)

Blocks = list[tuple[tuple[int, ...], int]]
"""All tokens until the end of a block, and the number of the block."""


class Host:
    """What is stored, and how it behaves.

    Attributes:
        blocks: token ids until the end of a block -> what the block holds.
        load_steps: steps after which a load is done, 0 for in the same one, -1 for not before this
            is changed.
        send_steps: steps for which the blocks of a finished request are kept, -1 as above.
        broken: whether what is loaded cannot be read.
        loaded: blocks of each load.
    """

    def __init__(self, load_steps: int = 0, send_steps: int = 0) -> None:
        self.blocks: dict[tuple[int, ...], list[int]] = {}
        self.load_steps, self.send_steps, self.broken = load_steps, send_steps, False
        self.loaded: list[int] = []


HOSTS: dict[str, Host] = {}


def new_host(**options: int) -> tuple[Host, dict[str, Any]]:
    """Return a host and the option `kv_transfer_config` for it."""
    name = f"host {len(HOSTS)}"
    HOSTS[name] = Host(**options)
    return HOSTS[name], {
        "kv_connector": "HostKv",
        "kv_connector_module_path": "test.engines.vllm_host",
        "kv_connector_extra_config": {"name": name},
    }


class Work(KVConnectorMetadata):  # type: ignore[misc] # of a library that is not always there
    """What the worker does in a step: loads and sends by request, and stores."""

    def __init__(self) -> None:
        self.loads: dict[str, Blocks] = {}
        self.stores: Blocks = []
        self.sends: list[str] = []


class HostKv(KVConnectorBase_V1):  # type: ignore[misc]
    """Both sides of the connector; they share a `Host`."""

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        self.host = HOSTS[vllm_config.kv_transfer_config.kv_connector_extra_config["name"]]
        self._block = vllm_config.cache_config.block_size
        self._requests: dict[str, Any] = {}
        self._ids: dict[str, list[int]] = {}
        self._work = Work()
        self._kv: dict[int, list[int]] = {}
        self._coming: dict[str, tuple[int, Blocks]] = {}
        self._sending: dict[str, int] = {}
        self._unread: set[int] = set()

    # The scheduler's side.

    def on_new_request(self, request: Any) -> None:
        """Remember a request."""
        self._requests[request.request_id] = request

    def get_num_new_matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        """Count the tokens of whole blocks that are here, the newest token left out."""
        assert request.request_id in self._requests
        assert num_computed_tokens % self._block == 0
        tokens, end = tuple(request.all_token_ids), num_computed_tokens
        while end + self._block < len(tokens) and tokens[: end + self._block] in self.host.blocks:
            end += self._block
        found = end - num_computed_tokens
        return found, bool(found and self.host.load_steps)

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """Plan a load: into the last of its blocks that it will not compute."""
        if not num_external_tokens:
            return
        (ids,) = blocks.get_block_ids()
        tokens = tuple(request.all_token_ids)
        end = max(
            end for end in range(self._block, len(tokens), self._block)
            if end // self._block <= len(ids) and tokens[:end] in self.host.blocks
        )  # fmt: skip
        first = (end - num_external_tokens) // self._block
        load = [
            (tokens[: (place + 1) * self._block], ids[place])
            for place in range(first, end // self._block)
        ]
        self.host.loaded.append(len(load))
        self._work.loads[request.request_id] = load

    def build_connector_meta(self, scheduler_output: Any) -> Work:
        """Store whatever blocks are full after this step."""
        starts = {}
        for new in scheduler_output.scheduled_new_reqs:
            (self._ids[new.req_id],) = map(list, new.block_ids)
            starts[new.req_id] = new.num_computed_tokens
        cached = scheduler_output.scheduled_cached_reqs
        for request_id, start, blocks in zip(
            cached.req_ids, cached.num_computed_tokens, cached.new_block_ids, strict=True
        ):
            self._ids[request_id] += blocks[0] if blocks else ()
            starts[request_id] = start
        work, self._work = self._work, Work()
        for request_id, tokens in scheduler_output.num_scheduled_tokens.items():
            held = tuple(self._requests[request_id].all_token_ids)
            stop = min(starts[request_id] + tokens, len(held))
            for end in range(self._block, stop + 1, self._block):
                block = self._ids[request_id][end // self._block - 1]
                if held[:end] not in self.host.blocks:
                    work.stores.append((held[:end], block))
        return work

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, None]:
        """Keep its blocks for a while, if it is so."""
        del self._requests[request.request_id]
        sends = request.request_id in self._ids and bool(self.host.send_steps)
        if sends:
            self._work.sends.append(request.request_id)
        self._ids.pop(request.request_id, None)
        return sends, None

    # The worker's side.

    def register_kv_caches(self, kv_caches: Any) -> None:
        """Take the runner's KV."""
        self._kv = kv_caches

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Load, or begin to."""
        work = self._get_connector_metadata()
        for request_id, load in work.loads.items():
            if self.host.load_steps:
                self._coming[request_id] = self.host.load_steps, load
            else:
                self._load(load)
        self._sending.update(dict.fromkeys(work.sends, self.host.send_steps))

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Wait for nothing: there are no layers."""

    def save_kv_layer(self, *args: Any, **kwargs: Any) -> None:
        """Save nothing: there are no layers."""

    def wait_for_save(self) -> None:
        """Store."""
        for tokens, block in self._get_connector_metadata().stores:
            self.host.blocks[tokens] = list(self._kv[block])

    def get_finished(self, finished_req_ids: set[str]) -> tuple[set[str], set[str]]:
        """Return the requests with sent blocks, and those with received blocks."""
        received, sent = set(), set()
        for request_id, (steps, load) in list(self._coming.items()):
            self._coming[request_id] = steps - 1, load
            if steps == 1 or (steps < 0 and self.host.load_steps >= 0):
                self._load(load)
                received.add(request_id)
                del self._coming[request_id]
        for request_id, steps in list(self._sending.items()):
            self._sending[request_id] = steps - 1
            if steps == 1 or (steps < 0 and self.host.send_steps >= 0):
                sent.add(request_id)
                del self._sending[request_id]
        return sent, received

    def get_block_ids_with_load_errors(self) -> set[int]:
        """Return the blocks that could not be read since this was asked last."""
        unread, self._unread = self._unread, set()
        return unread

    def _load(self, load: Blocks) -> None:
        for tokens, block in load:
            if self.host.broken:
                self._unread.add(block)
                self._kv[block] = [-7] * self._block
            else:
                self._kv[block] = list(self.host.blocks[tokens])
