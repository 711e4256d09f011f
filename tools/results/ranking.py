"""Cells of an experiment in which a policy is not first, or not on the Pareto front."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from timely_llm.experiments.results.document import Row, RunDocument, Value
from timely_llm.experiments.results.metrics import interval
from timely_llm.report.tables import number
from timely_llm.report.words import heading, text
from tools.results.page import Ranking, ResultsError

SAME = 1e-9
"""Largest difference that comes from rounding."""


@dataclass(frozen=True)
class Lead:
    """By how much another policy is better in a measure, over paired seeds.

    Attributes:
        measure: the column.
        mean: mean of the differences, above 0 if the other policy is better.
        half: half the width of its 95 % interval; infinite with one seed.
    """

    measure: str
    mean: float
    half: float

    def __str__(self) -> str:
        return f"{heading(self.measure)} {number(self.mean, self.half)}"


@dataclass(frozen=True)
class BehindCell:
    """A cell in which the policy is not first, or not on the front.

    Attributes:
        setting: names of the cell's keys, with their values.
        what: the measure in which it is not first; empty if it is not on the front.
        other: the policy that is ahead.
        leads: by how much, in the measure or in all measures of the front.
    """

    setting: tuple[tuple[str, Value], ...]
    what: str
    other: str
    leads: tuple[Lead, ...]


def exceptions(run: RunDocument, ranking: Ranking) -> list[BehindCell]:
    """Return the cells of a run in which the policy is not first, or not on the front.

    A cell is a setting without its policy and seed. In it the policy with the largest mean is
    first. A policy is not on the front if another one is at least as good in all measures and
    better in one.

    Raises:
        ResultsError: the run lacks a column or the policy.
    """
    rows = [row for row in run.rows if row.get("policy") not in ranking.without]
    for column in ("policy", *ranking.first, *ranking.front):
        if not all(column in row for row in rows):
            raise ResultsError(f"{ranking.command}: the document has no column {column}")
    cells: dict[tuple[tuple[str, Value], ...], dict[str, list[Row]]] = defaultdict(dict)
    for row in rows:
        setting = tuple((key, row[key]) for key in run.keys if key != "policy")
        cells[setting].setdefault(str(row["policy"]), []).append(row)
    found = []
    for setting, policies in cells.items():
        if ranking.policy not in policies:
            raise ResultsError(f"{ranking.command}: the document has no policy {ranking.policy}")
        mine = policies.pop(ranking.policy)
        found += _of_cell(setting, mine, policies, ranking)
    return found


def lead(mine: Sequence[Row], others: Sequence[Row], measure: str, sign: int = 1) -> Lead:
    """Return by how much others are better than mine in a measure, paired by seed.

    Args:
        mine: rows of a policy, one for each seed.
        others: rows of another policy.
        measure: the column.
        sign: 1 if larger is better, -1 if smaller is.
    """
    known = {row.get("seed"): value for row in mine if (value := _number(row, measure)) is not None}
    differences = [
        sign * (value - known[row.get("seed")])
        for row in others
        if row.get("seed") in known and (value := _number(row, measure)) is not None
    ]
    return Lead(measure, *interval(differences))


def _of_cell(
    setting: tuple[tuple[str, Value], ...],
    mine: Sequence[Row],
    policies: dict[str, list[Row]],
    ranking: Ranking,
) -> list[BehindCell]:
    found = []
    for measure in ranking.first:
        leads = {name: lead(mine, rows, measure) for name, rows in policies.items()}
        ahead = {name: one for name, one in leads.items() if one.mean > SAME}
        if ahead:
            best = max(ahead, key=lambda name: ahead[name].mean)
            found.append(BehindCell(setting, measure, best, (ahead[best],)))
    for name, rows in policies.items():
        all_leads = tuple(
            lead(mine, rows, measure, sign) for measure, sign in ranking.front.items()
        )
        known = [one.mean for one in all_leads if not math.isnan(one.mean)]
        if len(known) == len(all_leads) and min(known) >= -SAME and max(known) > SAME:
            found.append(BehindCell(setting, "", name, all_leads))
    return found


def exception_table(found: Sequence[BehindCell], ranking: Ranking) -> str:
    """Return the cells as a table in Markdown, or a sentence if there are none."""
    front = ", ".join(map(heading, ranking.front))
    first = " and in ".join(map(heading, ranking.first))
    about = f"first in {first}, and on the Pareto front of {front}"
    if not found:
        return f"In every cell `{ranking.policy}` is {about}."
    names = [name for name, _ in found[0].setting]
    lines = [
        f"Cells in which `{ranking.policy}` is not {about}:",
        "",
        f"| {' | '.join([*map(heading, names), 'not', 'behind', 'by'])} |",
        f"|{'---|' * (len(names) + 3)}",
    ]
    for one in found:
        cells = [*(text(value) for _, value in one.setting), _words(one)]
        by = "; ".join(map(str, one.leads))
        lines.append(f"| {' | '.join(cells)} | `{one.other}` | {by} |")
    lines += ["", "Differences are means over paired seeds ± half of the 95 % interval."]
    return "\n".join(lines)


def _words(one: BehindCell) -> str:
    return f"first in {heading(one.what)}" if one.what else "on the front"


def _number(row: Row, measure: str) -> float | None:
    value = row.get(measure)
    return float(value) if isinstance(value, int | float) else None
