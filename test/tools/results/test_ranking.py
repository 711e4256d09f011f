"""Cells in which a policy is not first, or not on the front, by rows made by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from test.tools.results.tiny import RANKING, document, rows, run
from tools.results.page import ResultsError
from tools.results.ranking import exception_table, exceptions, lead


def test_the_policy_that_is_first_everywhere_has_no_exceptions() -> None:
    made = document(
        rows("deadline", [(1.0, 0.1), (1.2, 0.1)], robots=5),
        rows("fcfs", [(0.9, 0.2), (1.1, 0.2)], robots=5),
        rows("dedicated", [(2.0, 0.0), (2.0, 0.0)], robots=5),
    )
    assert exceptions(made, RANKING) == []
    assert exception_table([], RANKING) == (
        "In every cell `deadline` is first in utility, and on the Pareto front of utility,"
        " starvation frequency."
    )


def test_a_policy_that_is_ahead_is_named_with_its_paired_interval() -> None:
    made = document(
        rows("deadline", [(1.0, 0.1), (2.0, 0.1)], robots=5),
        rows("fcfs", [(1.1, 0.2), (2.1, 0.2)], robots=5),
        rows("edf", [(1.0, 0.3), (2.0, 0.3)], robots=5),
    )
    (one,) = exceptions(made, RANKING)
    assert (one.setting, one.what, one.other) == ((("robots", 5),), "utility", "fcfs")
    (found,) = one.leads
    assert found.mean == pytest.approx(0.1)
    assert found.half == pytest.approx(0.0, abs=1e-9), "the seeds differ, the differences do not"
    assert "| 5 | first in utility | `fcfs` | utility 0.100" in exception_table([one], RANKING)


def test_a_policy_that_is_better_in_nothing_is_not_on_the_front() -> None:
    made = document(
        rows("deadline", [(1.0, 0.3)], robots=5),
        rows("fcfs", [(1.0, 0.1)], robots=5),
        rows("deadline", [(1.0, 0.3)], robots=9),
        rows("fcfs", [(0.9, 0.1)], robots=9),
    )
    (one,) = exceptions(made, RANKING)
    assert (one.setting, one.what, one.other) == ((("robots", 5),), "", "fcfs")
    assert [leads.mean for leads in one.leads] == pytest.approx([0.0, 0.2])
    assert "| 5 | on the front | `fcfs` | utility 0.000; starvation frequency 0.200 |" in (
        exception_table([one], RANKING)
    )


def test_equal_policies_are_both_first() -> None:
    made = document(rows("deadline", [(1.0, 0.3)], robots=5), rows("edf", [(1.0, 0.3)], robots=5))
    assert exceptions(made, RANKING) == []


def test_only_seeds_of_both_are_compared() -> None:
    one = lead(rows("deadline", [(1.0, 0.0)]), rows("fcfs", [(1.5, 0.0), (9.0, 0.0)]), "utility")
    assert (one.mean, one.half) == (0.5, math.inf)


def test_what_a_document_lacks_is_named() -> None:
    with pytest.raises(ResultsError, match="tiny: the document has no column attainment"):
        exceptions(run(), replace(RANKING, first=("attainment",)))
    with pytest.raises(ResultsError, match="tiny: the document has no policy fcfs"):
        exceptions(run(), replace(RANKING, policy="fcfs"))


def test_a_real_run_has_a_cell_for_each_size() -> None:
    sizes = {dict(one.setting)["robots"] for one in exceptions(run(), RANKING)}
    assert sizes <= {1, 2}
