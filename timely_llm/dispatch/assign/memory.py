"""Largest remaining memory: the instance assignment of Huang et al. 2025 (Algorithm 2)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from timely_llm.core.errors import ConfigurationError
from timely_llm.dispatch.contract import Assignment, ServerView, Waiting


class MemorySource(StrEnum):
    """What a server's remaining memory is."""

    PAPER = "paper"
    FREE = "free"


@dataclass(eq=False)
class LargestMemory:
    """The server with the largest remaining memory (`InstAssign` of Algorithm 2).

    A request takes its prompt and its expected answer of it. When a request does not fit into the
    largest remaining memory, all memory is remaining again. In the paper nothing else frees it: a
    request that has ended does not.

    Attributes:
        memory: `paper`: what this rule has not assigned yet; `free`: the free KV that the server
            reports, at each call.
        utilization: share of the memory that requests can use, mu of Eq. 20; the memory of a token,
            sigma, is 1 here, since memory is counted in tokens.

    Raises:
        ConfigurationError: the utilization is not above 0 and at most 1.
    """

    memory: MemorySource = MemorySource.PAPER
    utilization: float = 0.9
    gathers = False

    def __post_init__(self) -> None:
        if not 0.0 < self.utilization <= 1.0:
            raise ConfigurationError(
                f"memory: utilization must be above 0 and at most 1, not {self.utilization:g}"
            )
        self._left: dict[str, float] = {}

    def assign(
        self, now: float, waiting: Sequence[Waiting], servers: Sequence[ServerView]
    ) -> Sequence[Assignment]:
        """Return the server with the largest remaining memory for each request."""
        if self.memory is MemorySource.FREE:
            self._left = {one.name: one.free_kv_tokens * self.utilization for one in servers}
        else:
            known, whole = self._left, self._whole(servers)
            self._left = {name: known.get(name, tokens) for name, tokens in whole.items()}
        made = []
        for one in waiting:
            able = [server for server in servers if one.can_go_to(server)]
            if not able:
                continue
            best = min(able, key=self._most_first)
            tokens = one.to_compute(best) + one.answer_tokens
            if self._left[best.name] < tokens and self.memory is MemorySource.PAPER:
                self._left = self._whole(servers)
                best = min(able, key=self._most_first)
            self._left[best.name] -= tokens
            made.append(Assignment(one.key, best.name))
        return made

    def _whole(self, servers: Sequence[ServerView]) -> dict[str, float]:
        """Return the tokens that each server has memory for (Eq. 20)."""
        return {one.name: math.floor(one.kv_tokens * self.utilization) for one in servers}

    def _most_first(self, server: ServerView) -> tuple[float, str]:
        return -self._left[server.name], server.name
