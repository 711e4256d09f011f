"""Cells of an experiment in which a policy is not first, or not on the Pareto front."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from timely_llm.experiments.results.document import Row, RowValue, RunDocument
from timely_llm.experiments.results.lanes import WORTH
from timely_llm.experiments.results.metrics import interval
from timely_llm.report.series import varying
from timely_llm.report.tables import number
from timely_llm.report.words import heading
from tools.results.page import Ranking, ResultsError

SAME = 5e-4
"""Largest difference that counts as none: half of a table's last digit; of values above 1, this
share of the value."""

CONDITIONS = (
    "uncached", "open-loop", "gate", "step-times", "first-step-times", "micro-batches",
)  # fmt: skip
"""Words of a policy that change what it works under, with their values: only policies with the
same are compared."""

Setting = tuple[tuple[str, RowValue], ...]


@dataclass(frozen=True)
class Lead:
    """By how much another policy is better in a measure, over paired seeds.

    Attributes:
        measure: the column.
        mean: mean of the differences, above 0 if the other policy is better.
        half: half the width of its 95 % interval; infinite with one seed.
        own: mean of the policy that is compared with others.
    """

    measure: str
    mean: float
    half: float
    own: float

    @property
    def shows(self) -> int:
        """1 if the other policy is visibly better, -1 if it is visibly worse, else 0."""
        return 0 if abs(self.mean) <= SAME * max(1.0, abs(self.own)) else 1 if self.mean > 0 else -1

    @property
    def beyond_chance(self) -> bool:
        """Whether the other policy is better beyond the interval; with one seed if it shows."""
        return self.shows > 0 and (not math.isfinite(self.half) or self.mean > self.half)

    def __str__(self) -> str:
        return f"{heading(self.measure)} {number(self.mean, self.half)}"


@dataclass(frozen=True)
class BehindCell:
    """A cell in which the policy is not first, or not on the front.

    Attributes:
        setting: names of the cell's keys, with their values.
        first: the policy with the largest lead, and that lead; None if the policy is first.
        front: the policies that are nowhere worse and somewhere better, with their leads.
    """

    setting: Setting
    first: tuple[str, Lead] | None
    front: tuple[tuple[str, tuple[Lead, ...]], ...]


@dataclass(frozen=True)
class Standing:
    """How a policy stands in all cells of a run.

    Attributes:
        ranking: what was expected.
        cells: number of cells.
        behind: the cells in which the policy is not first, or not on the front.
    """

    ranking: Ranking
    cells: int
    behind: tuple[BehindCell, ...]


def standing(run: RunDocument, ranking: Ranking) -> Standing:
    """Return the cells of a run in which the policy is not first, or not on the front.

    A cell is a setting without its policy and seed, under one of the `CONDITIONS`. In it the policy
    with the largest mean is first. A policy is not on the front if another one is visibly worse in
    no measure and visibly better in one. Measures without a value in a cell are left out.

    Raises:
        ResultsError: the run lacks a column or the policy.
    """
    rows = [with_worth(row) for row in run.rows if row.get("policy") not in ranking.without]
    for column in ("policy", ranking.first, *ranking.front):
        if not any(column in row for row in rows):
            raise ResultsError(f"{ranking.command}: the document has no column {column}")
    keys = [key for key in varying(rows, run.keys) if key != "policy"]
    cells: dict[Setting, dict[str, list[Row]]] = defaultdict(dict)
    for row in rows:
        name, words = _conditions(str(row["policy"]))
        under = (("under", words),) if words else ()
        setting = (*((key, row[key]) for key in keys), *under)
        cells[setting].setdefault(name, []).append(row)
    compared = {key: found for key, found in cells.items() if ranking.policy in found}
    if not compared:
        raise ResultsError(f"{ranking.command}: the document has no policy {ranking.policy}")
    found = (_cell(setting, policies, ranking) for setting, policies in compared.items())
    return Standing(ranking, len(compared), tuple(one for one in found if one is not None))


def with_worth(row: Row) -> Row:
    """Return a row with the column `worth`: the sum of the columns of `WORTH` that it has."""
    parts = [value for name in WORTH if (value := _number(row, name)) is not None]
    return {**row, "worth": math.fsum(parts)} if parts else row


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
    return Lead(measure, *interval(differences), interval([*known.values()])[0])


def _conditions(policy: str) -> tuple[str, str]:
    """Return a policy without the words of `CONDITIONS`, and these words."""
    parts = policy.split(":")
    kept = ":".join(part for part in parts if part.partition("=")[0] not in CONDITIONS)
    return kept, " and ".join(part for part in parts if part.partition("=")[0] in CONDITIONS)


def _cell(setting: Setting, policies: dict[str, list[Row]], ranking: Ranking) -> BehindCell | None:
    mine = policies[ranking.policy]
    others = {name: rows for name, rows in policies.items() if name.split(":")[0] != ranking.policy}
    leads = {name: lead(mine, rows, ranking.first) for name, rows in others.items()}
    ahead = {name: one for name, one in leads.items() if one.shows > 0}
    best = max(ahead, key=lambda name: ahead[name].mean, default=None)
    front = []
    for name, rows in others.items():
        of_all = [lead(mine, rows, measure, sign) for measure, sign in ranking.front.items()]
        known = tuple(one for one in of_all if not math.isnan(one.mean))
        signs = {one.shows for one in known}
        if 1 in signs and -1 not in signs:
            front.append((name, known))
    if best is None and not front:
        return None
    return BehindCell(setting, None if best is None else (best, ahead[best]), tuple(front))


def _number(row: Row, measure: str) -> float | None:
    value = row.get(measure)
    return float(value) if isinstance(value, int | float) else None
