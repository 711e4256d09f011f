"""The headline of a run, one sentence, and the points that need attention."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime

from timely_llm.core.text import count_of, joined
from timely_llm.experiments.results.document import RunDocument
from timely_llm.experiments.results.metrics import MeasuredRow as Average
from timely_llm.report.series import ANSWERED, SHARE, averages, results, subject, varying
from timely_llm.report.tables import Table, direction, number, summary_table
from timely_llm.report.timeline import Bar, Lane, Mark, Timeline
from timely_llm.report.words import heading, short, text

MOST_NAMED = 6


def day(at: datetime) -> str:
    """Return a date such as "22 November 2026"."""
    return f"{at.day} {at:%B %Y}"


def headline(run: RunDocument, at: datetime | None) -> str:
    """Return a sentence with the date, the compared values, the engine, and the best value."""
    when = f"On {day(at)}, " if at is not None else ""
    made = averages(run.rows, run.keys)
    words = f"{when}{short(run.experiment)} {_compared(run, made)}{_engine(run)}{_asked(run)}"
    best = _best(run, made)
    return f"{words}; {best}." if best else f"{words}."


def _compared(run: RunDocument, made: Sequence[Average]) -> str:
    compared = subject(run.keys)
    names = list(dict.fromkeys(text(row.get(compared)) for row in run.rows)) if compared else []
    settings = len({tuple(row[key] for key in run.keys if key != compared) for row in made})
    most = max((int(row["seeds"]) for row in made), default=1)
    seeds = f", {count_of(most, 'seed')} each" if most > 1 else ""
    if len(names) < 2:
        name = f" {heading(compared)} {short(names[0])}" if names else ""
        return f"ran{name} in {count_of(settings, 'setting')}{seeds}"
    shown = joined([short(name, 30) for name in names]) if len(names) <= MOST_NAMED else ""
    counted = count_of(len(names), *_plural(heading(compared))) + (f" ({shown})" if shown else "")
    return f"compared {counted} in {count_of(settings, 'setting')}{seeds}"


def _plural(noun: str) -> tuple[str, str]:
    if noun.endswith("y"):
        return noun, noun[:-1] + "ies"
    return noun, noun + ("es" if noun.endswith(("s", "ch", "sh")) else "s")


def _engine(run: RunDocument) -> str:
    engine = short(str(run.setup.get("engine") or ""), 80).partition(",")[0]
    if engine and " " not in engine:
        engine = f"the {engine} engine"
    if engine and run.profile:
        return f", on {engine} with the step times of {short(run.profile)}"
    return f", on {short(engine or run.profile)}" if engine or run.profile else ""


def _asked(run: RunDocument) -> str:
    """Return the numbers of plans and questions of a run."""
    parts = []
    for column, one in (("requests", "plan"), ("conversations", "question")):
        counts = [row[column] for row in run.rows if isinstance(row.get(column), int | float)]
        known = sorted(int(count) for count in counts if isinstance(count, int | float) and count)
        if known and known[0] == known[-1]:
            parts.append(count_of(known[0], one))
        elif known:
            parts.append(f"{known[0]:,} to {known[-1]:,} {one}s")
    return f", {joined(parts)} a run" if parts else ""


def _best(run: RunDocument, made: Sequence[Average]) -> str:
    """Return the compared value that was best by the first measure with a direction."""
    compared = subject(run.keys)
    wanted = [name for name in results(run) if direction(name)]
    if not wanted or not compared:
        return ""
    measure = wanted[0]
    groups: dict[tuple[object, ...], list[Average]] = {}
    for row in made:
        if math.isfinite(row.get(measure, math.nan)):
            setting = tuple(row[key] for key in run.keys if key != compared)
            groups.setdefault(setting, []).append(row)
    sign = direction(measure)
    names: dict[str, list[float]] = {}
    wins: dict[str, int] = {}
    for rows in groups.values():
        top = max(sign * row[measure] for row in rows)
        for row in rows:
            name = text(row[compared])
            names.setdefault(name, []).append(row[measure])
            wins[name] = wins.get(name, 0) + (sign * row[measure] == top)
    if not names:
        return ""
    mean = {name: math.fsum(values) / len(values) for name, values in names.items()}
    best = max(names, key=lambda name: (wins[name], sign * mean[name]))
    worst = min(names, key=lambda name: sign * mean[name])
    what, _, unit = heading(measure).rstrip(")").partition(" (")
    shown = {name: f"{number(value)} {unit}".rstrip() for name, value in mean.items()}
    if len(names) < 2:
        return f"{what} {shown[best]}{_served(run, made, best)}"
    if mean[best] == mean[worst]:
        return f"the {what} was {shown[best]} for each{_served(run, made, best)}"
    where, of_all = "", ""
    if len(groups) > 1:
        where, of_all = f" in {wins[best]} of {len(groups)} settings", " in the mean"
    good, other = short(best, 30), short(worst, 30)
    return (
        f"{good} had the {'highest' if sign > 0 else 'shortest'} {what}{where}, {shown[best]}"
        f"{of_all}; {other} had {shown[worst]}{_served(run, made, best, f'the plans of {good}')}"
    )


def _served(run: RunDocument, made: Sequence[Average], name: str, plans: str = "its plans") -> str:
    compared = subject(run.keys)
    parts = []
    for column, words in ((SHARE, f"of {plans} were executed"), (ANSWERED, "were answered")):
        shares = [row.get(column, math.nan) for row in made if text(row[compared]) == name]
        known = [share for share in shares if math.isfinite(share)]
        if known:
            parts.append(f"{percentage(math.fsum(known) / len(known))} {words}")
    return f"; {joined(parts)}" if parts else ""


def percentage(share: float) -> str:
    """Return a share in percent; only 1.0 is "100 %"."""
    shown = f"{100 * share:.0f}"
    if share < 1.0 and shown == "100":
        shown = "over 99"
    return f"{shown} %"


def attention(run: RunDocument) -> list[str]:
    """Return the points of a comparison that need attention, a sentence each."""
    return [*_unserved(run), *_close(run)]


def _unserved(run: RunDocument) -> Iterator[str]:
    """Yield the settings in which the fewest requests were served."""
    compared = subject(run.keys)
    for column, noun in ((SHARE, "plans"), (ANSWERED, "questions")):
        made = averages(run.rows, run.keys)
        rows = [row for row in made if row.get(column, math.nan) < 1.0 - 1e-9]
        if not rows:
            continue
        worst = min(rows, key=lambda row: row[column])
        place = ", ".join(
            f"{heading(key)} {text(worst[key])}"
            for key in varying(run.rows, run.keys)
            if key != compared
        )
        name = short(text(worst[compared]), 40) if compared else "the run"
        doing = "executed" if noun == "plans" else "answered"
        yield (
            f"Not all {noun} were {doing} in {len(rows)} of {count_of(len(made), 'run')}; the"
            f" fewest with {name}{' at ' + place if place else ''}: {percentage(worst[column])}."
            " Times leave out the others."
        )


def _close(run: RunDocument) -> Iterator[str]:
    """Yield the number of settings in which the best two are not clearly apart."""
    wanted = [name for name in results(run) if direction(name)]
    if not wanted:
        return
    table = summary_table(run)
    column = _place(table, heading(wanted[0]))
    groups = [[row[column] for row in group] for group in table.groups if len(group) > 1]
    near = [group for group in groups if any(cell.mark == "near" for cell in group)]
    if near:
        yield (
            f"In {len(near)} of {count_of(len(groups), 'setting')} the best {heading(wanted[0])} is"
            " not clearly better than another: the intervals overlap. More seeds narrow them."
        )


def _place(table: Table, name: str) -> int:
    return [head.text for head in table.heads].index(name)


# One run of robots and people --------------------------------------------------------------------

MOST_LATE = 5
"""Most late deliveries that are explained, the latest first."""


def run_headline(run: RunDocument, timeline: Timeline, at: datetime | None, completed: int) -> str:
    """Return a sentence with the date, the requests of robots and people, and their results.

    Args:
        run: the run and its rows.
        timeline: timeline of the whole run.
        at: its beginning; None if unknown.
        completed: number of plans that were executed to their end.
    """
    begin = f"On {day(at)} at {at:%H:%M} UTC, " if at is not None else ""
    robots, people = _asking(timeline)
    requests = joined(
        [
            f"{count_of(len(lanes), *names)} {asked} {count_of(_requests(lanes), noun)}"
            for lanes, names, asked, noun in (
                (robots, ("robot", "robots"), "asked for", "plan"),
                (people, ("person", "people"), "asked", "question"),
            )
            if lanes
        ]
    )
    low, high = timeline.limits
    policies = joined([short(text(row["policy"]), 40) for row in run.rows if row.get("policy")])
    under = f" under the policy {policies}" if policies else ""
    seconds = high - max(low, 0.0)
    parts = [f"{begin}{requests or 'no request was made'} within {seconds:.0f} s{under}"]
    due, met = _first_due(timeline)
    if due:
        parts.append(
            f"{percentage(met / due)} of the first segments and first tokens came in time"
            f" ({met} of {due})"
        )
    if robots:
        parts.append(_ends(robots, completed))
    utility = _mean(run, "utility")
    if math.isfinite(utility):
        parts.append(f"the mean utility was {number(utility)}")
    return "; ".join(parts) + "."


def _asking(timeline: Timeline) -> tuple[list[Lane], list[Lane]]:
    """Return the lanes of robots and people with requests."""
    lanes = [lane for lane in timeline.lanes if lane.bars or lane.marks]
    return [lane for lane in lanes if not lane.is_person], [one for one in lanes if one.is_person]


def _requests(lanes: Sequence[Lane]) -> int:
    return len({name for lane in lanes for name in lane.requests})


def _first_due(timeline: Timeline) -> tuple[int, int]:
    """Return the numbers of requests with a known first due time, and of requests that met it.

    The marks of a request are in order of time.
    """
    first: dict[str, bool] = {}
    for lane in timeline.lanes:
        for mark in lane.marks:
            if mark.kind in ("due, met", "due, missed"):
                first.setdefault(mark.request, not mark.late_s)
    return len(first), sum(first.values())


def _ends(robots: Sequence[Lane], completed: int) -> str:
    """Return the ends of plans, in words. A pre-empted plan did not fail."""
    ends = Counter(mark.kind for lane in robots for mark in lane.marks)
    preempted, canceled, failed = ends["pre-empted"], ends["canceled"], ends["failed"]
    words = [f"{count_of(completed, 'plan was', 'plans were')} executed to the end"]
    if preempted:
        newer = "a newer request" if preempted == 1 else "newer requests"
        words.append(f"{preempted} pre-empted by {newer}")
    if canceled:
        words.append(f"{canceled} canceled")
    return joined([*words, f"{failed} failed" if failed else "none failed"])


def _mean(run: RunDocument, column: str) -> float:
    values = [row.get(column, math.nan) for row in averages(run.rows, run.keys)]
    known = [value for value in values if math.isfinite(value)]
    return math.fsum(known) / len(known) if known else math.nan


def run_attention(timeline: Timeline) -> list[str]:
    """Return the late deliveries with their causes, and the failures, the worst first."""
    late = [
        (lane, mark) for lane in timeline.lanes for mark in lane.marks if mark.kind == "due, missed"
    ]
    late.sort(key=lambda one: -one[1].late_s)
    points = [_late(lane, mark, timeline) for lane, mark in late[:MOST_LATE]]
    if len(late) > MOST_LATE:
        points.append(
            f"{count_of(len(late) - MOST_LATE, 'more delivery was', 'more deliveries were')} late,"
            f" by {late[MOST_LATE][1].late_s:.2f} s at most."
        )
    for lane in timeline.lanes:
        for mark in lane.marks:
            if mark.kind == "failed":
                why = f": {short(mark.label)}" if mark.label else ""
                points.append(f"{_name(lane, mark.request)} failed at {mark.at_s:.1f} s{why}.")
    broken = [
        f"{short(bar.label, 24) or 'a segment'} of {_name(lane, bar.request)} at {bar.end_s:.1f} s"
        for lane in timeline.lanes
        for bar in lane.bars
        if bar.kind == "failed"
    ]
    if broken:
        rest = len(broken) - MOST_LATE
        named = [*broken[:MOST_LATE], *([f"{rest} more"] if rest > 0 else [])]
        points.append(
            f"Robots could not execute {count_of(len(broken), 'segment')}, and got a new plan for"
            f" the rest unless their task had ended: {joined(named)}."
        )
    stalls = [
        bar for lane in timeline.lanes if lane.is_person for bar in _stalls(lane) if bar.length_s
    ]
    if stalls:
        longest = max(stalls, key=lambda bar: bar.length_s)
        points.append(
            f"Listeners had no words left {count_of(len(stalls), 'time')}, {longest.length_s:.2f} s"
            f" at most ({short(longest.request)} at {longest.start_s:.1f} s)."
        )
    return points or ["Nothing: every delivery that was due came in time, and nothing failed."]


def _name(lane: Lane, request: str) -> str:
    shown = short(request, 40)
    return shown if lane.agent in request else f"{shown} of {short(lane.agent, 24)}"


def _stalls(lane: Lane) -> list[Bar]:
    """Return the times after the first word in which a listener had no words."""
    begun: set[str] = set()
    made = []
    for bar in sorted(lane.bars, key=lambda bar: bar.start_s):
        if bar.kind == "listening":
            begun.add(bar.request)
        elif bar.kind == "waiting" and bar.request in begun:
            made.append(bar)
    return made


def _late(lane: Lane, mark: Mark, timeline: Timeline) -> str:
    what = short(mark.label, 30).removesuffix(";") or "a segment"
    why = why_late(lane, mark, timeline)
    return (
        f"{_name(lane, mark.request)}: {what} came {mark.late_s:.2f} s late, at"
        f" {mark.at_s + mark.late_s:.1f} s{': ' + why if why else ''}."
    )


def why_late(lane: Lane, mark: Mark, timeline: Timeline) -> str:
    """Return the model's work before a late delivery, in words; empty if steps are not known."""
    came_s = mark.at_s + mark.late_s
    mine = [one for one in lane.marks if one.request == mark.request and one.kind == "delivered"]
    before = [one.at_s for one in mine if one.at_s < came_s - 1e-6]
    starts = [bar.start_s for bar in lane.bars if bar.request == mark.request]
    begin_s = max(before, default=min(starts, default=came_s))
    worked = [
        bar
        for bar in lane.bars
        if bar.kind == "generating"
        and bar.request == mark.request
        and bar.end_s > begin_s
        and bar.start_s < came_s
    ]
    if not worked:
        return ""
    first_s = max(worked[0].start_s, begin_s)
    batch = max(
        (step.sequences for step in timeline.steps if first_s < step.end_s <= came_s + 1e-3),
        default=1,
    )
    took = f"took {came_s - first_s:.2f} s, in batches of up to {batch}"
    if not before:
        return f"it waited {first_s - begin_s:.2f} s for its first step and {took}"
    left_s = mark.at_s - first_s
    when = f"{abs(left_s):.2f} s {'before' if left_s >= 0 else 'after'} it was due"
    if abs(left_s) < 0.005:
        when = "when it was due"
    return f"its generation was resumed {when} and {took}"
