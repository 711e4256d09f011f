"""From what people and machines got in conversations to the rows of an experiment's table.

Paper 000 (§VI-A): a real-time task meets its SLO if all of its answer is there by its deadline; any
other conversation if both its first token (TTFT) and the mean time of the tokens after it (TPOT)
are as fast as was asked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any

from timely_llm.core.slo import Slo
from timely_llm.experiments.metrics import Row
from timely_llm.experiments.outcome import Talk

DEFINITIONS: Mapping[str, str] = {
    "requests": "conversations and real-time tasks that were asked",
    "share_served": "of these, the share whose whole answer came, however late",
    "attainment": "of all, the share that met its SLO (paper 000 §VI-A): the deadline of a"
    " real-time task, both TTFT and TPOT of any other",
    "rt_attainment": "of the real-time tasks, the share whose whole answer came by its deadline",
    "nrt_attainment": "of the others, the share that met both TTFT and TPOT",
    "ttft_attainment": "of these others, the share whose first token came in time",
    "tpot_attainment": "of these others, the share whose whole answer came, with a mean time"
    " between its tokens that is not longer than asked",
    "completion_s": "from asking to the whole answer, seconds, mean over those that were served",
    "rt_completion_s": "the same, of real-time tasks",
    "nrt_completion_s": "the same, of the others",
    "ttft_p95_s": "of the others, 95 % had their first token within this time, seconds",
    "max_gap_s": "longest time between two tokens of an answer that is read or heard (of no"
    " real-time task), seconds",
    "stalled_s": "time in which the listener of such an answer waited for words, seconds, mean;"
    " 0.75 words a token, read at 5 words/s or heard at 3",
    "max_stall_s": "the longest of these times",
}
"""What each column means. Where there is nobody to count, there is no value."""


def slo_of(talk: Talk) -> Slo:
    """Return what was promised."""
    asked = talk.conversation
    return Slo(asked.ttft_s, asked.tpot_s, asked.deadline_s)


def is_real_time(talk: Talk) -> bool:
    """Return whether the whole answer had a deadline."""
    return talk.conversation.deadline_s < math.inf


def met(talk: Talk) -> bool:
    """Return whether all of the answer came as was promised."""
    return talk.finished and slo_of(talk).met(talk.ttft_s, talk.tpot_s, talk.completion_s)


def talk_row(talks: Sequence[Talk], **names: Any) -> Row:
    """Return one flat row: what was run, by `names`, and what came of it.

    A value of nobody is NaN.
    """
    machines = [talk for talk in talks if is_real_time(talk)]
    people = [talk for talk in talks if not is_real_time(talk)]
    stalls = [talk.stalled_s for talk in people if talk.times_s]
    return {
        **names,
        "requests": len(talks),
        "attainment": share(talks, met),
        "rt_attainment": share(machines, met),
        "nrt_attainment": share(people, met),
        "ttft_attainment": share(people, lambda t: slo_of(t).met_ttft(t.ttft_s)),
        "tpot_attainment": share(people, lambda t: t.finished and slo_of(t).met_tpot(t.tpot_s)),
        "completion_s": _completion_s(talks),
        "rt_completion_s": _completion_s(machines),
        "nrt_completion_s": _completion_s(people),
        "ttft_p95_s": percentile((talk.ttft_s for talk in people), 0.95),
        "max_gap_s": max((talk.largest_gap_s for talk in people), default=math.nan),
        "stalled_s": fmean(stalls) if stalls else math.nan,
        "max_stall_s": max(stalls, default=math.nan),
        "share_served": share(talks, lambda talk: talk.finished),
    }


def share(talks: Sequence[Talk], holds: Callable[[Talk], bool]) -> float:
    """Return the share of talks of which something holds; NaN of nobody."""
    return fmean(map(holds, talks)) if talks else math.nan


def percentile(values: Iterable[float], part: float) -> float:
    """Return the smallest value that so large a part of all does not exceed; NaN of none."""
    ordered = sorted(values)
    return ordered[math.ceil(part * len(ordered)) - 1] if ordered else math.nan


def gaps_until(talk: Talk, end_s: float) -> list[float]:
    """Return the times between its tokens, as long as these came before a moment, seconds."""
    times_s = [time_s for time_s in talk.times_s if time_s <= end_s]
    return [later - one for one, later in pairwise(times_s)]


def _completion_s(talks: Iterable[Talk]) -> float:
    served = [talk.completion_s for talk in talks if talk.finished]
    return fmean(served) if served else math.nan
