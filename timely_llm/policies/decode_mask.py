"""SLICE's arithmetic (paper 000): who is selected, how long a cycle takes, who decodes when.

Pure functions on rates; `slice` and `timely+slice` apply them to generations.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from functools import lru_cache
from itertools import accumulate, pairwise
from operator import attrgetter

from timely_llm.core.errors import ConfigurationError

CYCLE_S = 1.0
"""A cycle must be shorter: it has as many tokens of a task as are due in a second."""

_MOST_COLUMNS = 1000  # of a task that asks for more than any engine can give

StepSeconds = Callable[[int], float]
"""Seconds of a decode step by its rows: l(b) of the paper; more rows never take less."""


class Task:
    """What SLICE knows of a request.

    Args:
        key: whose it is.
        tpot_s: seconds for each output token that it may take at most, above 0.
        utility: what it is worth to meet that.
        prefill_s: seconds of a cycle that its prompt takes; the paper counts none.
        kv_tokens: tokens of KV that its next step needs in all.

    Attributes:
        columns: of a cycle that it takes part in: its rate v, whole (Algorithm 3, line 7).
        utility_rate: utility for each token of a second (Eq. 6).
    """

    __slots__ = ("columns", "key", "kv_tokens", "prefill_s", "utility_rate")

    def __init__(
        self,
        key: str,
        tpot_s: float,
        utility: float = 1.0,
        prefill_s: float = 0.0,
        kv_tokens: int = 0,
    ) -> None:
        self.key = key
        self.columns = _columns(tpot_s)
        self.utility_rate = utility * tpot_s
        self.prefill_s = prefill_s
        self.kv_tokens = kv_tokens

    def with_columns(self, columns: int) -> Task:
        """Return the same with other columns."""
        made = copy(self)
        made.columns = columns
        return made


@lru_cache(maxsize=1024)
def _columns(tpot_s: float) -> int:
    """Return a rate, whole."""
    # 1 / 0.1 is a hair above or below 10: no column more for that.
    return max(math.ceil(min(1.0 / tpot_s, _MOST_COLUMNS) - 1e-9), 1)


def tpot_of_deadline(deadline_s: float, tokens: float, ttft_s: float = 0.0) -> float:
    """Return the seconds a token with which an answer is complete at its deadline (§IV-A).

    Args:
        deadline_s: seconds from arrival to the whole answer.
        tokens: of the answer, as far as that is known; at least 1.
        ttft_s: of these seconds, those to the first token.

    Raises:
        ConfigurationError: the first token comes after the deadline, or there is no token.
    """
    if tokens < 1:
        raise ConfigurationError(f"an answer has at least 1 token, not {tokens:g}")
    if not 0.0 <= ttft_s < deadline_s:
        raise ConfigurationError(
            f"the first token must come in the {deadline_s:g} s to the deadline, not after"
            f" {ttft_s:g} s"
        )
    return (deadline_s - ttft_s) / tokens


def period_s(tasks_by_columns: Mapping[int, int], step_s: StepSeconds) -> float:
    """Return the seconds of a cycle (Eq. 7).

    Args:
        tasks_by_columns: how many tasks take part in so many columns.
        step_s: see `StepSeconds`.
    """
    ordered = sorted(tasks_by_columns, reverse=True)
    rows, total_s = 0, 0.0
    for columns, fewer in pairwise([*ordered, 0]):
        rows += tasks_by_columns[columns]
        total_s += (columns - fewer) * step_s(rows)
    return total_s


def select(
    tasks: Iterable[Task],
    step_s: StepSeconds,
    cycle_s: float = CYCLE_S,
    *,
    rows: int | None = None,
    room: float = math.inf,
    taken: Mapping[int, int] | None = None,
) -> tuple[list[Task], list[Task]]:
    """Return the tasks that share a cycle, and the others, by their utility rate (Algorithm 2).

    The first task that makes the cycle too long ends it, even if another one after it would fit.
    With each task a cycle gets longer, so that the first one can be found by halving.

    Args:
        tasks: in order of arrival, which decides among equals.
        step_s: see `StepSeconds`.
        cycle_s: seconds that a cycle must be shorter than.
        rows: most tasks that are selected, if the engine has a limit.
        room: tokens of KV for all of them; what does not fit is passed over. The paper's engine
            has enough.
        taken: columns that others than these tasks take part in, as in `period_s`.
    """
    ranked = sorted(tasks, key=attrgetter("utility_rate"), reverse=True)
    fitting, passed_over = [], []
    for task in ranked:
        if task.kv_tokens <= room:
            room -= task.kv_tokens
            fitting.append(task)
        else:
            passed_over.append(task)
    columns = [task.columns for task in fitting]
    prefill_s = list(accumulate((task.prefill_s for task in fitting), initial=0.0))

    def too_long(number: int) -> bool:
        together = Counter(columns[:number])
        together.update(taken or {})
        return period_s(together, step_s) + prefill_s[number] >= cycle_s

    most = len(fitting) if rows is None else min(rows, len(fitting))
    number = bisect_left(range(1, most + 1), True, key=too_long)
    return fitting[:number], [*fitting[number:], *passed_over]


def filling(
    chosen: Sequence[Task], left: Iterable[Task], step_s: StepSeconds, cycle_s: float, room: int
) -> list[Task]:
    """Return tasks that do not fit, with as many columns as there is time for.

    Args:
        chosen: who is selected.
        left: the others, the best one first.
        step_s: seconds of a step by its rows.
        cycle_s: the cycle must be shorter.
        room: tokens of KV that the others may need.
    """
    columns = Counter(task.columns for task in chosen)
    prefill_s = sum(task.prefill_s for task in chosen)
    found = []
    for task in left:
        if task.kv_tokens > room:
            continue
        before_s = prefill_s + task.prefill_s

        def too_long(count: int, before_s: float = before_s) -> bool:
            return period_s(columns + Counter((count,)), step_s) + before_s >= cycle_s

        count = bisect_left(range(1, task.columns + 1), True, key=too_long)
        if count:
            found.append(task.with_columns(count))
            columns[count] += 1
            prefill_s, room = before_s, room - task.kv_tokens
    return found


def by_rate(tasks: Iterable[Task]) -> list[Task]:
    """Return tasks with the highest rate first; equals stay in their order."""
    return sorted(tasks, key=attrgetter("columns"), reverse=True)


def decode_mask(columns: Sequence[int], *, even: bool = False) -> list[tuple[bool, ...]]:
    """Return who takes part in which step of a cycle: a row for each task (Algorithm 3).

    Args:
        columns: of each task.
        even: spread a task's columns over the cycle; the paper has them in front, which leaves the
            slow tasks without a token from there to the end of the cycle.
    """
    width = max(columns, default=0)
    rows = {}
    for count in set(columns):
        places = {place * width // count if even else place for place in range(count)}
        rows[count] = tuple(column in places for column in range(width))
    return [rows[count] for count in columns]


def shorter_first(utility: float, tokens: int, half_life_tokens: float) -> float:
    """Return a utility that halves with each so many tokens that a task has generated.

    Long tasks so give way to short ones: the first UTILITYADAPTOR of §IV-E.
    """
    return float(utility * 0.5 ** (tokens / half_life_tokens))


def keep_running(utility: float, selected: bool, boost: float) -> float:
    """Return a utility that is higher for a task that is selected already, so that it goes on.

    The second UTILITYADAPTOR of §IV-E.
    """
    return utility * boost if selected else utility
