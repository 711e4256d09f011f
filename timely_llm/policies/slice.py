"""SLICE (Zhou et al. 2025): serves the tasks that are worth most a token, each at its rate."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from itertools import accumulate, pairwise
from operator import attrgetter

from timely_llm.core.errors import ConfigurationError
from timely_llm.core.generation import Generation, PlanGeneration, StreamGeneration
from timely_llm.core.reason import Cause, Reason
from timely_llm.core.step import Capacity, StepPlan
from timely_llm.policies.contract import Explains
from timely_llm.policies.packing import pack
from timely_llm.policies.step_time import StepTime
from timely_llm.policies.timely import MeanSegmentLength

CYCLE_S = 1.0
"""Limit of a cycle, seconds: a cycle has the tokens of each task that are due in a second."""

_MOST_COLUMNS = 1000  # bounds the mask of a task with an impossible rate

SecondsByRows = Callable[[int], float]
"""Seconds of a decode step by its rows, l(b) of the paper."""


class SliceTask:
    """A request as SLICE sees it.

    Args:
        key: key of the generation.
        tpot_s: longest time per output token, seconds, above 0.
        utility: worth of keeping that time.
        prefill_s: seconds of a cycle that its prompt takes; 0 in the paper.
        kv_tokens: KV tokens that its next step needs in all.

    Attributes:
        columns: columns of a cycle that it takes part in: its rate v, whole (Algorithm 3, line 7).
        utility_rate: utility per token of a second (Eq. 6).
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

    def with_columns(self, columns: int) -> SliceTask:
        """Return a copy with another number of columns."""
        made = copy(self)
        made.columns = columns
        return made


@lru_cache(maxsize=1024)
def _columns(tpot_s: float) -> int:
    """Return a whole rate."""
    # Rounding of 1 / 0.1 must not add a column.
    return max(math.ceil(min(1.0 / tpot_s, _MOST_COLUMNS) - 1e-9), 1)


def tpot_of_deadline(deadline_s: float, tokens: float, ttft_s: float = 0.0) -> float:
    """Return the seconds per token with which an answer meets its deadline (§IV-A).

    Args:
        deadline_s: seconds from arrival to the whole answer.
        tokens: expected tokens of the answer, at least 1.
        ttft_s: the part of `deadline_s` before the first token.

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


def period_s(tasks_by_columns: Mapping[int, int], step_s: SecondsByRows) -> float:
    """Return the seconds of a cycle (Eq. 7).

    Args:
        tasks_by_columns: number of tasks by number of columns.
        step_s: see `SecondsByRows`.
    """
    ordered = sorted(tasks_by_columns, reverse=True)
    rows, total_s = 0, 0.0
    for columns, fewer in pairwise([*ordered, 0]):
        rows += tasks_by_columns[columns]
        total_s += (columns - fewer) * step_s(rows)
    return total_s


def select(
    tasks: Iterable[SliceTask],
    step_s: SecondsByRows,
    cycle_s: float = CYCLE_S,
    *,
    rows: int | None = None,
    room: float = math.inf,
    taken: Mapping[int, int] | None = None,
    grows: bool = True,
    why: dict[str, Reason] | None = None,
) -> tuple[list[SliceTask], list[SliceTask]]:
    """Return the tasks that share a cycle, and the others, by their utility rate (Algorithm 2).

    The first task that makes the cycle too long ends the selection, even if a later task would fit.
    Where a cycle grows with each task, bisection finds the first one.

    Args:
        tasks: in order of arrival, which decides among equals.
        step_s: see `SecondsByRows`.
        cycle_s: limit of a cycle, seconds.
        rows: most tasks; None: no limit.
        room: KV tokens for all tasks; a task that does not fit is skipped. The paper's engine has
            enough.
        taken: columns of other rows, as in `period_s`; None: none.
        grows: `step_s` never falls with rows; else one task after the other is tried.
        why: takes the reasons of the tasks that are not selected, by key; None: no reasons.
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
    if grows:
        number = bisect_left(range(1, most + 1), True, key=too_long)
    else:
        number = next((count for count in range(most) if too_long(count + 1)), most)
    if why is not None:
        why |= {task.key: Reason(Cause.MEMORY, task.kv_tokens - room) for task in passed_over}
        for task in fitting[number:]:
            refused = Reason(Cause.NOT_SELECTED, task.utility_rate)
            why[task.key] = Reason(Cause.ROWS, rows) if number == rows else refused
    return fitting[:number], [*fitting[number:], *passed_over]


def filling(
    chosen: Sequence[SliceTask],
    left: Iterable[SliceTask],
    step_s: SecondsByRows,
    cycle_s: float,
    room: int,
) -> list[SliceTask]:
    """Return tasks that were not selected, with as many columns as there is time for.

    Args:
        chosen: the selected tasks.
        left: the other tasks, the best one first.
        step_s: see `SecondsByRows`.
        cycle_s: limit of the cycle, seconds.
        room: KV tokens for the other tasks.
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


def by_rate(tasks: Iterable[SliceTask]) -> list[SliceTask]:
    """Return tasks by falling rate; equals stay in their order."""
    return sorted(tasks, key=attrgetter("columns"), reverse=True)


def decode_mask(columns: Sequence[int], *, even: bool = False) -> list[tuple[bool, ...]]:
    """Return the decode mask of a cycle: a row for each task, a column for each step (Algorithm 3).

    Args:
        columns: number of columns of each task.
        even: spread a task's columns over the cycle. The paper puts them in front, so that slow
            tasks get no token in the rest of the cycle.
    """
    width = max(columns, default=0)
    rows = {}
    for count in set(columns):
        places = {place * width // count if even else place for place in range(count)}
        rows[count] = tuple(column in places for column in range(width))
    return [rows[count] for count in columns]


def shorter_first(utility: float, tokens: int, half_life_tokens: float) -> float:
    """Return a utility that halves with every `half_life_tokens` generated tokens.

    Long tasks thus give way to short ones: the first UTILITYADAPTOR of §IV-E.
    """
    return float(utility * 0.5 ** (tokens / half_life_tokens))


def keep_running(utility: float, selected: bool, boost: float) -> float:
    """Return a utility that is higher for a selected task, so that it goes on.

    The second UTILITYADAPTOR of §IV-E.
    """
    return utility * boost if selected else utility


REAL_TIME_UTILITY = 100.0
"""Worth of a real-time task relative to a conversation: the upper end of what Zhou et al. 2025, §I,
calls typical, "10 to 100 times higher"."""


class Restart(StrEnum):
    """Why a cycle began."""

    TASKS = "a request came or ended"
    SEGMENTS = "a segment of a plan ended"
    CYCLE_END = "the cycle before was complete"


@dataclass(eq=False)
class Slice(Explains):
    """SLICE online (Algorithm 4): selects tasks and scans the columns of their decode mask.

    At each arrival, each end of a task and each end of a cycle, the policy selects tasks anew and
    scans from column 1. A task that is not selected waits, for ever if the load stays: the paper
    promises nothing else. A stream is a task with its declared TPOT and weight, also one with a
    deadline (§IV-A), since the length of an answer is not known before. The next segment of a plan
    is a real-time task: its mean tokens until it is due.

    The first column of a task computes its prompt and its first token. If a step cannot take a
    whole column, further steps take the rest. If no task fits into a cycle, the best one runs
    alone.

    A task that does not fit gets nothing, even where a cycle is shorter than `cycle_s`, since
    Algorithm 2 ends at the first such task. Beside a stream of one token in 2 s, a stream of 50
    tokens/s waits until the first one ends, although that one gets far more than it asked for. With
    `fill`, which the paper does not have, such a task takes part in as many columns as fit.

    Attributes:
        even: the columns of a task are spread over the cycle; else they are in front (the paper).
        charge_prefill: prompts count in the time of a cycle; in the paper they are free.
        cycle_s: limit of a cycle, seconds.
        fill: tasks that do not fit get the rest of a cycle; in the paper they get nothing.
        half_life_tokens: tokens after which a task is worth half; infinite: constant worth.
        keep: factor on the worth of a task that is selected already; 1: none.
        mean_segment_tokens: tokens of a plan's mean segment before any was seen.
        restarts: how often a cycle began, by cause.
    """

    even: bool = False
    charge_prefill: bool = False
    cycle_s: float = CYCLE_S
    fill: bool = False
    half_life_tokens: float = math.inf
    keep: float = 1.0
    mean_segment_tokens: float = 4.0
    whole_plans = False
    counts_steps = True
    bounds_batches = True

    def __post_init__(self) -> None:
        if not self.half_life_tokens > 0.0:
            raise ConfigurationError(
                f"slice: half_life_tokens must be above 0, not {self.half_life_tokens:g}"
            )
        for name in ("cycle_s", "keep", "mean_segment_tokens"):
            value = getattr(self, name)
            if not 0.0 < value < math.inf:
                raise ConfigurationError(f"slice: {name} must be above 0 and finite, not {value:g}")
        self._segment_length = MeanSegmentLength(self.mean_segment_tokens)
        self.restarts = Counter[Restart]()
        self._known: list[Hashable] = []
        self._known_keys: list[str] = []
        self._selected: frozenset[str] = frozenset()
        self._refusals: dict[str, Reason] | None = None
        self._columns: Iterator[list[str]] = iter(())
        self._column: list[str] = []  # the rest of the column that is scanned

    def plan(
        self,
        now: float,
        generations: Collection[Generation],
        step_time: StepTime,
        capacity: Capacity,
    ) -> StepPlan:
        """Return the next column, or the rest of the last one."""
        known = [_deliverable(generation) for generation in generations]
        by_key = {generation.key: generation for generation in generations}
        if known != self._known:
            cause = Restart.SEGMENTS if list(by_key) == self._known_keys else Restart.TASKS
            self._known, self._known_keys = known, list(by_key)
            self._schedule(now, generations, step_time, capacity, cause)
        if not self._column and not self._next_column():
            self._schedule(now, generations, step_time, capacity)
            self._next_column()
        plan = self._scan(by_key, capacity)
        if not plan and generations:
            self._schedule(now, generations, step_time, capacity)
            self._next_column()
            plan = self._scan(by_key, capacity)
        self._segment_length.watch(
            g for key in plan.keys if isinstance(g := by_key[key], PlanGeneration)
        )
        return plan

    def _next_column(self) -> bool:
        """Take the next column of the cycle; return whether there is one."""
        self._column = next(self._columns, [])
        return bool(self._column)

    def _scan(self, by_key: dict[str, Generation], capacity: Capacity) -> StepPlan:
        """Return as much of the column as the engine can take, and keep the rest."""
        # Prompts come last: a long one would use all tokens of the step.
        order = sorted((by_key[key] for key in self._column), key=_is_prompt)
        why = self._why(by_key) if self.explain else None
        plan = pack(order, by_key.values(), capacity, why=why)
        done = {key for key, tokens in plan.entries if tokens == by_key[key].to_compute}
        self._column = [key for key in self._column if key not in done]
        # Tasks that are not selected are evicted first.
        return replace(
            plan, evictable=tuple(sorted(plan.evictable, key=self._selected.__contains__))
        )

    def _why(self, by_key: Iterable[str]) -> dict[str, Reason]:
        """Return the reasons of a step that takes the whole column."""
        # The cycle may be older than the question.
        refusals = self._refusals or {}
        column, not_selected = set(self._column), Reason(Cause.NOT_SELECTED)
        return {
            key: Reason(Cause.COLUMN)
            if key in column
            else Reason(Cause.LATER_COLUMN)
            if key in self._selected
            else refusals.get(key, not_selected)
            for key in by_key
        }

    def _schedule(
        self,
        now: float,
        generations: Collection[Generation],
        step_time: StepTime,
        capacity: Capacity,
        cause: Restart = Restart.CYCLE_END,
    ) -> None:
        """Select tasks (Algorithm 2) and make their mask (Algorithm 3)."""
        if generations:
            self.restarts[cause] += 1
        tasks = self._tasks(now, generations, step_time)
        room = capacity.free_tokens + sum(generation.kv_tokens for generation in generations)
        why: dict[str, Reason] | None = {} if self.explain else None
        self._refusals = why
        chosen, left = select(
            tasks, step_time.predict_s, self.cycle_s, rows=capacity.max_rows, room=room,
            grows=step_time.grows, why=why,
        )  # fmt: skip
        if not chosen:
            chosen = [task for task in left if task.kv_tokens <= room][:1]
        elif self.fill and len(chosen) < capacity.max_rows:
            room -= sum(task.kv_tokens for task in chosen)
            most = capacity.max_rows - len(chosen)
            chosen += filling(chosen, left, step_time.predict_s, self.cycle_s, room)[:most]
        chosen = by_rate(chosen)
        mask = decode_mask([task.columns for task in chosen], even=self.even)
        keys = [task.key for task in chosen]
        self._selected = frozenset(keys)
        self._column = []
        self._columns = (
            [key for key, row in zip(keys, mask, strict=True) if row[column]]
            for column in range(len(mask[0]) if mask else 0)
        )

    def _tasks(
        self, now: float, generations: Collection[Generation], step_time: StepTime
    ) -> list[SliceTask]:
        one_s = step_time.predict_s(1)
        segment_tokens = max(self._segment_length.mean_tokens, 1.0)
        adapts = self.half_life_tokens < math.inf or self.keep != 1.0
        tasks = []
        for generation in generations:
            if isinstance(generation, StreamGeneration):
                tpot_s, utility = generation.request.slo.tpot_s, generation.request.weight
            elif isinstance(generation, PlanGeneration):
                time_s = max(_segment_s(generation, now), one_s)
                tpot_s = tpot_of_deadline(time_s, segment_tokens)
                utility = REAL_TIME_UTILITY * generation.request.time_utility.beta
            if adapts:
                utility = self._adapted(utility, generation)
            to_compute = generation.to_compute
            prefill_s = 0.0
            if self.charge_prefill and to_compute > 1:
                prefill_s = step_time.predict_s(0, to_compute) - step_time.predict_s(0)
            kv_tokens = to_compute + generation.kv_tokens
            tasks.append(SliceTask(generation.key, tpot_s, utility, prefill_s, kv_tokens))
        return tasks

    def _adapted(self, utility: float, generation: Generation) -> float:
        """Return a utility after both UTILITYADAPTORs of §IV-E."""
        utility = shorter_first(utility, len(generation.token_ids), self.half_life_tokens)
        return keep_running(utility, generation.key in self._selected, self.keep)


def _segment_s(generation: PlanGeneration, now: float) -> float:
    """Return the seconds until the next segment is due, at least the expected response time.

    So a late plan asks for no higher rate than a new one.
    """
    ert_s = generation.time_utility.ert_s
    return max(ert_s, generation.robot_free_s - now) if generation.segments else ert_s


def _deliverable(generation: Generation) -> Hashable:
    """Return the identity of a task: a stream, or one segment of a plan."""
    if isinstance(generation, PlanGeneration):
        return generation.key, generation.epoch, len(generation.segments)
    return generation.key


def _is_prompt(generation: Generation) -> bool:
    return generation.to_compute > 1
