"""Rows of an experiment's table, from the outcomes of conversations and real-time tasks.

Zhou et al. 2025 (§VI-A): a real-time task meets its SLO if its whole answer arrives by its
deadline. A conversation meets its SLO if its first token (TTFT) and the mean time of each later
token (TPOT) are within the requested times. A request that was refused, or has no whole answer, did
not meet its SLO.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from statistics import fmean
from typing import Any

from timely_llm.core.slo import Slo
from timely_llm.experiments.results.metrics import MeasuredRow
from timely_llm.experiments.virtual.outcome import ConversationOutcome

DEFINITIONS: Mapping[str, str] = {
    "requests": "conversations and real-time tasks that were asked",
    "share_refused": "share of the requests that a busy server refused at once; they met nothing",
    "share_served": "share_finished, by its former name",
    "share_first": "share of the requests with a first token, however late",
    "share_finished": "share of the requests with a whole answer, however late",
    "attainment": "share of the requests that met their SLO (Zhou et al. 2025, §VI-A): the deadline"
    " of a real-time task, both TTFT and TPOT of a conversation",
    "rt_attainment": "share of the real-time tasks with a whole answer by the deadline",
    "nrt_attainment": "share of the conversations that met both TTFT and TPOT",
    "ttft_attainment": "share of the conversations with a first token in time",
    "tpot_attainment": "share of the conversations with a whole answer and a mean time between its"
    " tokens that is not longer than requested",
    "objective": "sum of the weights of the requests that met their SLO (Zhou et al. 2025, Eq. 1)",
    "qoe": "quality of experience of the conversations, 0 to 1, mean (Liu et al. 2024, Eq. 3): the"
    " words consumed until the last one, over those consumed with each token in time, both summed"
    " over time; 0 without a token",
    "completion_s": "from asking to the whole answer, seconds, mean over the served requests",
    "rt_completion_s": "the same, of real-time tasks",
    "nrt_completion_s": "the same, of conversations",
    "ttft_p95_s": "95 % of the conversations had their first token within this time, seconds",
    "max_gap_s": "longest time between two tokens of a conversation's answer, seconds",
    "stalled_s": "time in which a conversation's listener waited for words, seconds, mean;"
    " 0.75 words a token, read at 5 words/s or heard at 3",
    "max_stall_s": "longest time in which one listener waited for words, seconds, in sum",
    "share_cut": "share of the requests with an answer that ended at the most tokens that the"
    " request declares; such an answer counts as whole, as it does in a server",
}
"""The meaning of each column. A column without a request to count has no value."""


def slo_of(talk: ConversationOutcome) -> Slo:
    """Return the requested service level."""
    asked = talk.conversation
    return Slo(asked.ttft_s, asked.tpot_s, asked.deadline_s)


def is_real_time(talk: ConversationOutcome) -> bool:
    """Return whether the whole answer had a deadline."""
    return talk.conversation.deadline_s < math.inf


def met(talk: ConversationOutcome) -> bool:
    """Return whether the whole answer met its service level."""
    return talk.finished and slo_of(talk).met(talk.ttft_s, talk.tpot_s, talk.completion_s)


def qoe(talk: ConversationOutcome) -> float:
    """Return the quality of experience of one answer, 0 to 1 (Liu et al. 2024, §3, Eq. 1 to 3).

    Its reader ideally consumes token i at `ttft_s + i * tpot_s` after asking. A late token delays
    all later ones; an early one gains nothing. With the area between both curves of consumed tokens
    over time, S_delay, and the area below the ideal one until the last token is consumed, S_whole,
    the result is 1 - S_delay / S_whole. It is a ratio over the time until the end: of an answer
    that is late from its start, a pause before the last tokens raises it.

    The paper says nothing of answers that end early. Here their missing tokens are never consumed,
    and both areas extend at least to the time at which the whole answer was ideally consumed.
    """
    asked = talk.conversation
    delivered = len(talk.times_s)
    wanted = delivered if talk.finished else max(asked.output_tokens, delivered)
    if not delivered:
        return 0.0
    begin_s = asked.arrival_s + asked.ttft_s
    ideal_s = [begin_s + place * asked.tpot_s for place in range(wanted)]
    late_s = (max(came - due, 0.0) for came, due in zip(talk.times_s, ideal_s, strict=False))
    lags_s = list(accumulate(late_s, max))
    end_s = max(ideal_s[-1], ideal_s[delivered - 1] + lags_s[-1])
    whole = math.fsum(end_s - due for due in ideal_s)
    missing = math.fsum(end_s - due for due in ideal_s[delivered:])
    return max(1.0 - (math.fsum(lags_s) + missing) / whole, 0.0) if whole > 0.0 else 1.0


def talk_row(talks: Sequence[ConversationOutcome], **names: Any) -> MeasuredRow:
    """Return one flat row: the columns `names`, and those of `DEFINITIONS`.

    A measure of no request is NaN.
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
        "objective": _objective(talks),
        "qoe": fmean(map(qoe, people)) if people else math.nan,
        "completion_s": _completion_s(talks),
        "rt_completion_s": _completion_s(machines),
        "nrt_completion_s": _completion_s(people),
        "ttft_p95_s": percentile((talk.ttft_s for talk in people), 0.95),
        "max_gap_s": max((talk.largest_gap_s for talk in people), default=math.nan),
        "stalled_s": fmean(stalls) if stalls else math.nan,
        "max_stall_s": max(stalls, default=math.nan),
        "share_refused": share(talks, lambda talk: talk.refused),
        "share_served": share(talks, lambda talk: talk.finished),
        "share_first": share(talks, lambda talk: bool(talk.times_s)),
        "share_finished": share(talks, lambda talk: talk.finished),
        "share_cut": share(talks, lambda talk: talk.cut),
    }


def share(
    talks: Sequence[ConversationOutcome], holds: Callable[[ConversationOutcome], bool]
) -> float:
    """Return the share of talks for which `holds` is true; NaN without talks."""
    return fmean(map(holds, talks)) if talks else math.nan


def percentile(values: Iterable[float], part: float) -> float:
    """Return the smallest value that `part` of all values do not exceed; NaN without values."""
    ordered = sorted(values)
    return ordered[math.ceil(part * len(ordered)) - 1] if ordered else math.nan


def gaps_until(talk: ConversationOutcome, end_s: float) -> list[float]:
    """Return the times between its tokens until a moment, seconds."""
    times_s = [time_s for time_s in talk.times_s if time_s <= end_s]
    return [later - one for one, later in pairwise(times_s)]


def _objective(talks: Sequence[ConversationOutcome]) -> float:
    """Return the sum of Eq. 1 of Zhou et al. 2025; NaN without talks."""
    return math.fsum(met(t) * t.conversation.weight for t in talks) if talks else math.nan


def _completion_s(talks: Iterable[ConversationOutcome]) -> float:
    served = [talk.completion_s for talk in talks if talk.finished]
    return fmean(served) if served else math.nan
