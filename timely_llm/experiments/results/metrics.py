"""Rows of an experiment's table, from the outcomes of plan requests.

Utility is the time-utility function of the first response (Ling et al. 2024, Eq. 1, TUF0), over all
requests; a request without a response has utility 0. Response and waiting times are means over the
requests with a plan that was executed to its end, so `share_finished` belongs beside them.
A mean over several kinds of tasks is the mean of their means, so that a frequent kind does not hide
a rare one. Ling et al. 2024 averages by kind too in Figure 5 (§7.2); the script of its Figure 8
averages over requests.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import fmean, stdev
from typing import Any

from timely_llm.core.arguments import is_number
from timely_llm.experiments.virtual.outcome import JobOutcome, Run

UNBOUNDED = "timely:rows=256:admissions=8"
"""TimelyLLM without its released code's limits on the batch: separates the policy's gain from that
of a larger batch."""


def gains(rows: Iterable[MeasuredRow], keys: Sequence[str], over: str) -> list[MeasuredRow]:
    """Return rows with the columns `utility_gain` and `waiting_s_vs_POLICY`.

    Args:
        rows: of several policies, as `metrics.row` or `task_rows` make them.
        keys: columns beside `policy` and `seed` that name a setting.
        over: the policy that the others are compared with; without a row of it the gain is unknown.
    """
    rows = [dict(row) for row in rows]
    names = [key for key in (*keys, "seed") if key != "policy"]
    base = {_of(row, names): row["utility_unclamped"] for row in rows if row["policy"] == over}
    for row in rows:
        row["utility_gain"] = row["utility_unclamped"] - base.get(_of(row, names), math.nan)
    return [plain(row) for row in relative(rows, keys, "waiting_s", over)]


def definition(over: str) -> dict[str, str]:
    """Return the meaning of the column `utility_gain`."""
    meaning = f"utility_unclamped less that of {over} in the same setting, with the same seed"
    return {"utility_gain": meaning}


def relative_gains(
    rows: Iterable[MeasuredRow], keys: Sequence[str], measure: str, over: str, name: str
) -> list[MeasuredRow]:
    """Return rows with one more column: each seed's part of (t - v) / |v|, of means over the seeds.

    The published script of Ling et al. 2024 compares means that may be below 0 in this way. A
    ratio of single seeds may be of few requests or of nothing, so the ratio is that of means. It
    is linearised around them (Cochran 1977, chapter 6): a seed's part is the gain, plus
    (t_i - v_i t / v) / |v|. The parts' mean is the gain, and their interval that of the gain, with
    the values of a seed paired.

    Args:
        rows: of several policies.
        keys: columns beside `seed` that name a setting, `policy` among them.
        measure: the column that is compared; seeds that lack it count for neither policy.
        over: the policy with the values v; without a row of it the gain is unknown.
        name: of the new column; a gain over 0 is unknown too.
    """
    rows = [dict(row) for row in rows]
    names = (*keys, "seed")
    known = {_of(row, names): row[measure] for row in map(plain, rows) if row[measure] is not None}
    settings: dict[tuple[object, ...], list[MeasuredRow]] = defaultdict(list)
    for row in rows:
        row[name] = None
        if {_of(row, names), _of({**row, "policy": over}, names)} <= known.keys():
            settings[_of(row, keys)].append(row)
    for group in settings.values():
        mine = [row[measure] for row in group]
        theirs = [known[_of({**row, "policy": over}, names)] for row in group]
        t, v = fmean(mine), fmean(theirs)
        for row, t_i, v_i in zip(group, mine, theirs, strict=True):
            row[name] = (t - v + t_i - v_i * (t / v)) / abs(v) if v else None
    return [plain(row) for row in rows]


def relative_definition(measure: str, over: str) -> str:
    """Return the meaning of a column of `relative_gains`."""
    return (
        f"(t - v) / |v| of {measure}, with v of {over}, means over the seeds; the interval is that"
        " of the linearised ratio of paired seeds"
    )


def _of(row: MeasuredRow, names: Sequence[str]) -> tuple[object, ...]:
    return tuple(row[name] for name in names)


MeasuredRow = dict[str, Any]
Mean = Callable[[JobOutcome], float | None]
"""Of one request; None if it does not count."""

DEFINITIONS: Mapping[str, str] = {
    "requests": "requests asked, without the first ones of the trace",
    "share_served": "share_finished, by its former name",
    "share_first": "share of the requests with a first segment that was executed",
    "share_finished": "share of the requests with a plan that was executed to its end",
    "utility": "time utility of the first response, 0 if late or never: mean over kinds of tasks",
    "urgent_utility": "the same, mean over the kinds of urgent tasks",
    "normal_utility": "the same, mean over the kinds of normal tasks",
    "utility_unclamped": "time utility, below 0 if very late; 0 if there was no response",
    "urgent_utility_unclamped": "the same, mean over the kinds of urgent tasks",
    "normal_utility_unclamped": "the same, mean over the kinds of normal tasks",
    "total_utility": "sum of the time utilities of all executed segments, below 0 if very late"
    " (Ling et al. 2024, Eq. 3)",
    "earned_utility": "sum of the time utilities of the first responses, 0 if late or never",
    "response_s": "from asking to the first action, seconds, of requests that were served",
    "urgent_response_s": "the same, mean over the kinds of urgent tasks",
    "normal_response_s": "the same, mean over the kinds of normal tasks",
    "longest_response_s": "the longest response time, seconds",
    "waiting_s": "response time and the times between segments in which the robot is idle, seconds",
}

IN_VAIN = "share_in_vain"
"""Share of the generated tokens that no robot began to execute and no person got."""

_CLASSES: Mapping[str, Callable[[JobOutcome], bool]] = {
    "": lambda outcome: True,
    "urgent_": lambda outcome: outcome.job.urgent,
    "normal_": lambda outcome: not outcome.job.urgent,
}


def utility(outcome: JobOutcome) -> float:
    """Return the time utility of a request's first response, at least 0; 0 without a response."""
    return max(0.0, utility_unclamped(outcome))


def utility_unclamped(outcome: JobOutcome) -> float:
    """Return the time utility of a request's first response, negative if it came very late.

    A request without a response has no response time; its utility is 0 here too.
    """
    if not outcome.served:
        return 0.0
    return outcome.job.time_utility.value(outcome.response_s)


def total_utility(outcome: JobOutcome) -> float:
    """Return the time utilities of all executed segments of a request (Ling et al. 2024, Eq. 3).

    The first segment has TUF0 of the response time, each later one TUF1 of the time in which the
    robot was idle before it. Neither is clamped. A segment that never came has no time; it adds 0.
    """
    worth = outcome.job.time_utility
    waits_s = (later.start_s - one.end_s for one, later in pairwise(outcome.segments))
    return utility_unclamped(outcome) + math.fsum(map(worth.later_value, waits_s))


def response_s(outcome: JobOutcome) -> float | None:
    """Return the seconds to the first action of a finished request."""
    return outcome.response_s if outcome.finished else None


def waiting_s(outcome: JobOutcome) -> float | None:
    """Return the seconds in which a finished request's robot had nothing to do."""
    return outcome.waiting_s if outcome.finished else None


def row(run: Run, **names: Any) -> MeasuredRow:
    """Return one flat row of a run: the columns `names`, and those of `DEFINITIONS`.

    A run with plans that robots cancel also has `IN_VAIN`.
    """
    counted = [o for o in run.outcomes if o.work.measured]
    made: MeasuredRow = {**names, "requests": len(counted), **_shares(counted)}
    for name, measure in (("utility", utility), ("utility_unclamped", utility_unclamped)):
        for prefix, belongs in _CLASSES.items():
            made[prefix + name] = _mean_of_means(filter(belongs, counted), measure)
    made["total_utility"] = math.fsum(map(total_utility, counted)) if counted else math.nan
    made["earned_utility"] = math.fsum(map(utility, counted)) if counted else math.nan
    for prefix, belongs in _CLASSES.items():
        made[prefix + "response_s"] = _mean_of_means(filter(belongs, counted), response_s)
    responses = (response_s(outcome) for outcome in counted)
    made["longest_response_s"] = max((s for s in responses if s is not None), default=math.nan)
    made["waiting_s"] = _mean_of_means(counted, waiting_s)
    if any(outcome.work.canceled_in is not None for outcome in run.outcomes):
        made[IN_VAIN] = 1.0 - _used_tokens(run) / max(run.generated_tokens, 1)
    return made


def task_rows(run: Run, **names: Any) -> list[MeasuredRow]:
    """Return one row for each kind of task, named by the column `task`."""
    made = []
    for task, outcomes in sorted(_by_task(o for o in run.outcomes if o.work.measured).items()):
        made.append(
            {
                **names,
                "task": task,
                "urgent": outcomes[0].job.urgent,
                "requests": len(outcomes),
                **_shares(outcomes),
                "utility": _mean(outcomes, utility),
                "utility_unclamped": _mean(outcomes, utility_unclamped),
                "total_utility": math.fsum(map(total_utility, outcomes)),
                "response_s": _mean(outcomes, response_s),
                "waiting_s": _mean(outcomes, waiting_s),
            }
        )
    return made


def interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Return the mean of independent values and half the width of its confidence interval.

    Student's t with one degree of freedom fewer than there are values; with one value the width is
    infinite. Values that are not numbers are left out.

    Args:
        values: one for each seed.
        confidence: probability that the interval holds the true mean.
    """
    known = [value for value in values if not math.isnan(value)]
    if len(known) < 2:
        return (known[0], math.inf) if known else (math.nan, math.nan)
    scale = stdev(known) / math.sqrt(len(known))
    return fmean(known), student_t(len(known) - 1, confidence) * scale


def student_t(freedom: int, confidence: float) -> float:
    """Return the t of Student's distribution that |T| exceeds with probability 1 - `confidence`.

    Found by halving: P(|T| <= t) is a finite sum for whole degrees of freedom (Abramowitz and
    Stegun, 26.7.3 and 26.7.4).
    """
    low, high = 0.0, 1.0
    while _within(high, freedom) < confidence:
        low, high = high, 2.0 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, freedom) < confidence else (low, middle)
    return high


def summary(
    rows: Iterable[MeasuredRow], keys: Sequence[str], confidence: float = 0.95
) -> list[MeasuredRow]:
    """Return one row for each combination of `keys`, over the seeds.

    Every number becomes its mean, and `*_ci`, half the width of its confidence interval. Seeds
    that lack a value are left out of its mean.
    """
    groups: dict[tuple[Any, ...], list[MeasuredRow]] = defaultdict(list)
    for one in rows:
        groups[tuple(one[key] for key in keys)].append(one)
    made = []
    for group, members in groups.items():
        out: MeasuredRow = {**dict(zip(keys, group, strict=True)), "seeds": len(members)}
        for name in members[0]:
            values = [m[name] for m in members if is_number(m[name])]
            if values and name != "seed" and name not in keys:
                out[name], out[name + "_ci"] = interval(values, confidence)
        made.append(out)
    return made


def relative(
    rows: Iterable[MeasuredRow], keys: Sequence[str], measure: str, to: str
) -> list[MeasuredRow]:
    """Return rows with one more column, `MEASURE_vs_POLICY`: a measure as a share of a policy's.

    Args:
        rows: of several policies.
        keys: columns beside `policy` and `seed` that name a setting.
        measure: the column.
        to: the policy with the share 1, in the same setting with the same seed; without a row of
            it there is no column, and where its value is 0 the share is NaN.
    """
    rows = list(rows)
    others = [key for key in (*keys, "seed") if key != "policy"]
    base = {tuple(r[key] for key in others): r[measure] for r in rows if r["policy"] == to}
    if not base:
        return rows
    made = []
    for one in rows:
        unit = base.get(tuple(one[key] for key in others))
        known = unit and one[measure] is not None
        made.append({**one, f"{measure}_vs_{to}": one[measure] / unit if known else math.nan})
    return made


def plain(row: MeasuredRow) -> MeasuredRow:
    """Return a row for JSON: None replaces numbers that are not finite."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in row.items()
    }


def _within(t: float, freedom: int) -> float:
    """Return P(|T| <= t) of Student's distribution."""
    angle = math.atan(t / math.sqrt(freedom))
    cos, sin = math.cos(angle), math.sin(angle)
    if freedom % 2:
        total, term = 0.0, cos
        for k in range(1, freedom - 1, 2):
            total += term
            term *= cos * cos * (k + 1) / (k + 2)
        return 2.0 / math.pi * (angle + sin * total)
    total, term = 0.0, 1.0
    for k in range(0, freedom - 1, 2):
        total += term
        term *= cos * cos * (k + 1) / (k + 2)
    return sin * total


def _used_tokens(run: Run) -> int:
    """Return the tokens of segments that robots began to execute, and those that people got."""
    of_plans = sum(
        part.tokens for one in run.outcomes for part in one.work.parts[: len(one.segments)]
    )
    return of_plans + sum(len(talk.times_s) for talk in run.conversations)


def _shares(outcomes: Sequence[JobOutcome]) -> MeasuredRow:
    finished = fmean(o.finished for o in outcomes) if outcomes else math.nan
    began = fmean(o.served for o in outcomes) if outcomes else math.nan
    return {"share_served": finished, "share_first": began, "share_finished": finished}


def _by_task(outcomes: Iterable[JobOutcome]) -> dict[str, list[JobOutcome]]:
    kinds: dict[str, list[JobOutcome]] = defaultdict(list)
    for outcome in outcomes:
        kinds[outcome.job.task].append(outcome)
    return kinds


def _mean(outcomes: Iterable[JobOutcome], measure: Mean) -> float:
    values = [value for value in map(measure, outcomes) if value is not None]
    return fmean(values) if values else math.nan


def _mean_of_means(outcomes: Iterable[JobOutcome], measure: Mean) -> float:
    means = (_mean(kind, measure) for kind in _by_task(outcomes).values())
    known = [mean for mean in means if not math.isnan(mean)]
    return fmean(known) if known else math.nan
