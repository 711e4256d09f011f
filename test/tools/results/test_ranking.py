"""Cells in which a policy is not first, or not on the front, by rows made by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from test.tools.results.tiny import RANKING, document, rows, run
from tools.results.exceptions import exception_table
from tools.results.page import ResultsError
from tools.results.ranking import lead, standing, with_worth


def test_the_policy_that_is_first_everywhere_has_no_exceptions() -> None:
    made = document(
        rows("deadline", [(1.0, 0.1), (1.2, 0.1)], robots=5),
        rows("fcfs", [(0.9, 0.2), (1.1, 0.2)], robots=5),
        rows("dedicated", [(2.0, 0.0), (2.0, 0.0)], robots=5),
        rows("deadline", [(1.0, 0.1)], robots=6),
    )
    found = standing(made, RANKING)
    assert (found.cells, found.behind) == (2, ())
    assert exception_table(found) == (
        "`deadline` is first in utility, and on the Pareto front of utility, starvation frequency,"
        " in all of 2 cells."
    )


def test_a_policy_that_is_ahead_is_named_with_its_paired_interval() -> None:
    made = document(
        rows("deadline", [(1.0, 0.1), (2.0, 0.1)], robots=5),
        rows("fcfs", [(1.1, 0.2), (2.1, 0.2)], robots=5),
        rows("edf", [(1.0, 0.3), (2.0, 0.3)], robots=5),
        rows("deadline", [(1.0, 0.1)], robots=6),
    )
    (one,) = standing(made, RANKING).behind
    assert one.setting == (("robots", 5),) and one.first is not None and one.front == ()
    name, found = one.first
    assert (name, found.own) == ("fcfs", 1.5)
    assert found.mean == pytest.approx(0.1)
    assert found.half == pytest.approx(0.0, abs=1e-9), "the seeds differ, the differences do not"
    assert found.beyond_chance
    assert "| 5 | `fcfs` | utility 0.100" in exception_table(standing(made, RANKING))


def test_a_policy_that_is_better_in_nothing_is_not_on_the_front() -> None:
    made = document(
        rows("deadline", [(1.0, 0.3)], robots=5),
        rows("fcfs", [(1.0, 0.1)], robots=5),
        rows("deadline", [(1.0, 0.3)], robots=9),
        rows("fcfs", [(0.9, 0.1)], robots=9),
    )
    found = standing(made, RANKING)
    (one,) = found.behind
    ((name, leads),) = one.front
    assert (one.setting, one.first, name) == ((("robots", 5),), None, "fcfs")
    assert [one.mean for one in leads] == pytest.approx([0.0, 0.2])
    assert "| 5 |  |  | `fcfs`: starvation frequency 0.200 |" in exception_table(found)


def test_what_no_table_shows_is_no_difference() -> None:
    made = document(
        rows("deadline", [(1.0, 0.3001)], robots=5), rows("edf", [(1.0004, 0.3)], robots=5)
    )
    assert standing(made, RANKING).behind == ()


def test_a_lead_within_the_interval_may_be_chance() -> None:
    mine, others = rows("deadline", [(1.0, 0.0), (1.0, 0.0)]), rows("a", [(1.2, 0.0), (0.9, 0.0)])
    assert lead(mine, others, "utility").shows == 1
    assert not lead(mine, others, "utility").beyond_chance


def test_policies_are_compared_under_the_same_conditions() -> None:
    made = document(
        rows("deadline", [(1.0, 0.1)], robots=5),
        rows("deadline:gate", [(0.5, 0.1)], robots=5),
        rows("deadline:finish=on", [(3.0, 0.0)], robots=5),
        rows("slice", [(0.9, 0.2)], robots=5),
        rows("slice:gate", [(0.6, 0.2)], robots=5),
        rows("edf:uncached", [(4.0, 0.0)], robots=5),
        rows("edf:step-times=0.7", [(5.0, 0.0)], robots=5),
    )
    found = standing(made, RANKING)
    assert found.cells == 2
    (one,) = found.behind
    assert one.setting == (("under", "gate"),) and one.first is not None
    assert one.first[0] == "slice"


def test_worth_is_what_plans_and_conversations_earned() -> None:
    assert with_worth({"earned_utility": 2.5, "objective": 3.0})["worth"] == 5.5
    assert with_worth({"earned_utility": 2.5, "objective": None})["worth"] == 2.5
    assert "worth" not in with_worth({"utility": 1.0})


def test_only_seeds_of_both_are_compared() -> None:
    one = lead(rows("deadline", [(1.0, 0.0)]), rows("fcfs", [(1.5, 0.0), (9.0, 0.0)]), "utility")
    assert (one.mean, one.half) == (0.5, math.inf)
    assert one.beyond_chance


def test_what_a_document_lacks_is_named() -> None:
    with pytest.raises(ResultsError, match="tiny: the document has no column attainment"):
        standing(run(), replace(RANKING, first="attainment"))
    with pytest.raises(ResultsError, match="tiny: the document has no policy fcfs"):
        standing(run(), replace(RANKING, policy="fcfs"))


def test_a_real_run_has_a_cell_for_each_size() -> None:
    found = standing(run(), RANKING)
    assert found.cells == 2
    assert {dict(one.setting)["robots"] for one in found.behind} <= {1, 2}
