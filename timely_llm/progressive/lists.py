"""Jobs of similar length together: the job dispatching of Zhan et al. 2025 (PICE), Algorithm 1."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

Job = TypeVar("Job")


def ratio_lists(ratio: float) -> Callable[[float], int]:
    """Return the list of a length if the longest length of a list is `ratio` times the shortest.

    Args:
        ratio: above 1; infinite: all lengths have one list.
    """
    if ratio == math.inf:
        return lambda tokens: 0
    base = math.log(ratio)
    return lambda tokens: math.floor(math.log(max(tokens, 1.0)) / base + 1e-9)


def power_of_two(tokens: float) -> int:
    """Return the list of a length: list j has the lengths from 2**j to below 2**(j + 1) tokens.

    The paper leaves the boundaries open.
    """
    return math.frexp(max(tokens, 1.0))[1] - 1


class JobLists(Generic[Job]):
    """Jobs that wait for an edge, in lists by expected length.

    Args:
        list_of: the number of the list for an expected length, tokens.
    """

    def __init__(self, list_of: Callable[[float], int] = power_of_two) -> None:
        self._list_of = list_of
        self._lists: dict[int, deque[tuple[int, Job]]] = {}
        self._put = 0

    def __len__(self) -> int:
        """Return the number of waiting jobs."""
        return sum(map(len, self._lists.values()))

    def put(self, job: Job, tokens: float) -> None:
        """Let a job wait in the list of its expected length, tokens (lines 3 to 6)."""
        self._lists.setdefault(self._list_of(tokens), deque()).append((self._put, job))
        self._put += 1

    def take(self, most: int) -> list[Job]:
        """Return the next batch for an idle edge, oldest first (lines 9 and 10).

        It comes from the list with the most jobs; of equal ones, from that with the oldest job.

        Args:
            most: most jobs of the batch.
        """
        if not self or most < 1:
            return []
        number = max(self._lists, key=lambda n: (len(self._lists[n]), -self._lists[n][0][0]))
        longest = self._lists[number]
        batch = [longest.popleft()[1] for _ in range(min(most, len(longest)))]
        if not longest:
            del self._lists[number]
        return batch

    def remove(self, job: Job) -> bool:
        """Drop a job that is not wanted any more; return whether it waited."""
        for number, waiting in self._lists.items():
            for entry in waiting:
                if entry[1] == job:
                    waiting.remove(entry)
                    if not waiting:
                        del self._lists[number]
                    return True
        return False
