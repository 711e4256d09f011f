import math

import pytest

from test.report.runs import simulated
from timely_llm.core.events.decisions import DecisionSpan
from timely_llm.core.reason import Cause
from timely_llm.experiments.results.document import Paper, Row, RunDocument
from timely_llm.experiments.results.metrics import summary
from timely_llm.report.tables import (
    MOST_WAITS,
    Cell,
    caption,
    direction,
    fitting,
    number,
    paper_table,
    summary_table,
    summary_tables,
    waits_table,
)
from timely_llm.report.words import text


def cells(run: RunDocument, name: str) -> list[Cell]:
    table = summary_table(run)
    place = [head.text for head in table.heads].index(name)
    return [row[place] for row in table.rows]


def compared(*rows: Row) -> RunDocument:
    return RunDocument(experiment="e", measures=("utility", "response_s"), rows=rows)


def test_the_table_says_what_the_summary_says() -> None:
    run = simulated()
    expected = {(row["policy"], row["load"]): row for row in summary(run.rows, run.keys)}
    table = summary_table(run)
    assert [head.text for head in table.heads] == [
        "policy", "load", "seeds", "utility", "response (s)", "waiting (s)", "share first",
        "share finished",
    ]  # fmt: skip
    assert len(table.groups) == 2, "policies of one load stand together"
    for row in table.rows:
        policy, load, seeds, utility, response, waiting, first, finished = row
        mean = expected[policy.text, int(load.text)]
        assert seeds.value == 2
        assert (utility.value, response.value) == (mean["utility"], mean["response_s"])
        assert waiting.value == mean["waiting_s"]
        assert (first.value, finished.value) == (mean["share_first"], mean["share_finished"])
        assert utility.text == f"{mean['utility']:.3f}"
        assert float(utility.half.lstrip("<")) == pytest.approx(mean["utility_ci"], abs=1e-3)


def test_the_best_of_a_setting_is_marked_and_those_that_are_near() -> None:
    run = compared(
        {"policy": "a", "load": 1, "seed": 0, "utility": 1.0, "share_served": 1.0},
        {"policy": "a", "load": 1, "seed": 1, "utility": 1.2, "share_served": 1.0},
        {"policy": "b", "load": 1, "seed": 0, "utility": 1.1, "share_served": 1.0},
        {"policy": "b", "load": 1, "seed": 1, "utility": 1.2, "share_served": 1.0},
        {"policy": "a", "load": 2, "seed": 0, "utility": 9.0, "share_served": 1.0},
    )
    assert [cell.mark for cell in cells(run, "utility")] == ["near", "best", ""]
    assert {cell.mark for cell in cells(run, "share served")} == {""}, "all are equal"


def test_a_policy_that_serves_fewer_is_not_the_fastest() -> None:
    run = compared(
        {"policy": "drops", "load": 1, "response_s": 0.1, "share_served": 0.5},
        {"policy": "serves", "load": 1, "response_s": 0.4, "share_served": 1.0},
        {"policy": "slow", "load": 1, "response_s": 0.9, "share_served": 0.995},
    )
    assert [cell.mark for cell in cells(run, "response (s)")] == ["", "best", ""]
    assert [cell.partial for cell in cells(run, "response (s)")] == [True, False, True]
    assert not any(cell.partial for cell in cells(run, "share served"))


def test_times_of_conversations_go_with_the_share_that_was_answered() -> None:
    columns = ("response_s", "max_gap_s", "completion_s")
    row: Row = {"load": 1, "response_s": 1.0, "max_gap_s": 1.0, "completion_s": 1.0}
    run = RunDocument(
        experiment="e",
        measures=columns,
        rows=(
            {**row, "policy": "robots", "share_served": 1.0, "share_answered": 0.5},
            {**row, "policy": "people", "share_served": 0.5, "share_answered": 1.0},
            {**row, "policy": "plans alone", "share_served": 0.5},
        ),
    )
    assert [c.partial for c in cells(run, "response (s)")] == [False, True, True]
    assert [c.partial for c in cells(run, "max gap (s)")] == [True, False, True]
    assert [c.partial for c in cells(run, "completion (s)")] == [True, False, True]


def test_settings_are_named_shortly() -> None:
    rows: tuple[Row, ...] = (
        {"lengths": "8-25:40-160", "rate": 0.1, "attainment": 1.0},
        {"lengths": "8-25:40-160", "rate": 2.0, "attainment": 0.5},
    )
    run = RunDocument(experiment="e", keys=("lengths", "rate"), measures=("attainment",), rows=rows)
    assert [cell.text for cell in cells(run, "rate")] == ["0.1", "2"]
    assert all(cell.is_name for cell in cells(run, "lengths"))


def test_unknown_numbers_are_dashes() -> None:
    run = compared(
        {"policy": "a", "load": 1, "response_s": None, "share_served": 0.0},
        {"policy": "b", "load": 1, "response_s": 0.5, "share_served": 1.0},
    )
    unknown, known = cells(run, "response (s)")
    assert (unknown.text, unknown.value) == ("–", None)  # noqa: RUF001
    assert (known.text, known.half) == ("0.500", "")


def test_the_papers_numbers_stand_beside_ours() -> None:
    run = simulated()
    paper = Paper(
        title="p",
        rows=(
            {"policy": "timely", "load": 1, "utility": 1.25, "where": "Fig. 5"},
            {"policy": "unknown", "load": 1, "utility": 0.5},
            {"policy": "timely", "utility": 0.5},
        ),
    )
    table = paper_table(run, paper)
    assert [head.text for head in table.heads] == [
        "policy", "load", "where", "utility: paper", "utility: here",
    ]  # fmt: skip
    ours, none, several = (row[-1] for row in table.rows)
    (mean,) = (
        row["utility"]
        for row in summary(run.rows, run.keys)
        if (row["policy"], row["load"]) == ("timely", 1)
    )
    assert ours.value == mean
    assert none.text == several.text == "–"  # noqa: RUF001
    assert table.rows[0][2].text == "Fig. 5"


def test_a_papers_tasks_are_compared_with_tasks() -> None:
    run = simulated()
    paper = Paper(title="p", rows=({"policy": "timely", "load": 1, "task": "find", "utility": 1},))
    (row,) = paper_table(run, paper).rows
    found = [
        one["utility"] for one in run.task_rows
        if (one["policy"], one["load"], one["task"]) == ("timely", 1, "find")
    ]  # fmt: skip
    assert row[-1].value == pytest.approx(sum(float(value or 0) for value in found) / len(found))


@pytest.mark.parametrize(
    ("mean", "half", "shown"),
    [
        (1.23456, 0.01234, "1.235 ± 0.012"), (1.0, 1e-5, "1.000 ± <0.001"),
        (1.0, 0.0, "1.000 ± 0.000"),
        (12345.6, math.inf, "12,346"), (99.99, 3.0, "99.99 ± 3.00"), (-0.5, 0.25, "-0.500 ± 0.250"),
    ],
)  # fmt: skip
def test_numbers_have_the_decimals_of_their_size(mean: float, half: float, shown: str) -> None:
    assert number(mean, half) == shown


def test_what_is_better_is_known_of_some() -> None:
    more = (
        "utility", "urgent_utility", "share_served", "share_first", "share_finished",
        "share_answered", "tokens_per_s", "rt_attainment",
    )  # fmt: skip
    assert [direction(name) for name in more] == [1] * 8
    assert [direction(name) for name in ("response_s", "p99_ms", "tokens")] == [-1, -1, 0]


def wide(policies: int, settings: int) -> RunDocument:
    """Return a run with more measures than a table has room for beside each other."""
    measures = tuple(f"long_name_of_measure_{n}" for n in range(14))
    rows: list[Row] = [
        {"policy": f"policy_{p}", "load": load, **dict.fromkeys(measures, float(p + load))}
        for p in range(policies)
        for load in range(settings)
    ]
    definitions = {name: f"meaning of {name}" for name in measures}
    return RunDocument(experiment="e", measures=measures, rows=tuple(rows), definitions=definitions)


def test_a_table_that_is_too_wide_is_turned_for_each_setting() -> None:
    first, second = summary_tables(wide(policies=3, settings=2))
    assert (first.title, second.title) == ("load 0", "load 1")
    assert [head.text for head in first.heads] == ["", "policy_0", "policy_1", "policy_2"]
    assert [head.is_number for head in first.heads] == [False, True, True, True]
    assert len(first.rows) == 14
    name, *values = first.rows[3]
    assert (name.text, name.about) == (
        "long name of measure 3", "meaning of long_name_of_measure_3"
    )  # fmt: skip
    assert [cell.value for cell in values] == [0.0, 1.0, 2.0]


def test_one_run_alone_has_what_its_measures_mean_beside_them() -> None:
    (table,) = summary_tables(wide(policies=1, settings=1))
    assert [head.text for head in table.heads] == ["", "policy_0", "what it means"]
    assert table.rows[0][-1].text == "meaning of long_name_of_measure_0"


def test_a_table_that_fits_stays_as_it_is() -> None:
    run = simulated()
    (table,) = summary_tables(run)
    assert table == summary_table(run)


def test_a_papers_table_is_turned_where_that_is_narrower() -> None:
    measures = {f"measure_with_a_long_name_{n}": 1.5 for n in range(9)}
    paper = Paper(title="p", rows=({"policy": "a", **measures}, {"policy": "b", **measures}))
    run = RunDocument(experiment="e", keys=("policy",), rows=({"policy": "a", **measures},))
    table = paper_table(run, paper)
    assert [head.text for head in table.heads] == ["policy", "a", "b"]
    assert len(table.rows) == 18
    assert table.rows[0][0].text == "measure with a long name 0: paper"


def test_tables_without_room_are_counted() -> None:
    tables = summary_tables(wide(policies=3, settings=5))
    kept, left = fitting(tables, 3 * 14 * 4)
    assert (len(kept), left) == (3, 2)
    assert fitting(tables, 1) == ((tables[0],), 4), "one table is always there"
    whole = summary_table(wide(policies=3, settings=5))
    (cut,), left = fitting([whole], 2 * sum(map(len, whole.groups[0])))
    assert (len(cut.groups), left) == (2, 3)


def test_a_caption_explains_only_the_signs_that_occur() -> None:
    plain = summary_table(compared({"policy": "a", "load": 1, "utility": 1.0}))
    assert caption([plain]) == ""
    marked = summary_table(simulated())
    assert "± half the width" in caption([marked]) and "★" in caption([marked])
    partial = summary_table(
        compared({"policy": "a", "load": 1, "response_s": 1.0, "share_served": 0.5})
    )
    assert caption([partial]).startswith("Times in brackets leave out requests")


def spans(*parts: tuple[Cause, float]) -> list[DecisionSpan]:
    made, start_s = [], 0.0
    for cause, seconds in parts:
        made.append(DecisionSpan(cause, start_s, start_s + seconds, 1))
        start_s += seconds
    return made


def test_the_request_that_waited_longest_comes_first_however_long_others_were_deferred() -> None:
    table = waits_table(
        {
            "deferred": spans((Cause.RUNS, 1.0), (Cause.NOT_DUE, 9.0)),
            "short": spans((Cause.MEMORY, 0.5), (Cause.NOT_DUE, 0.25)),
            "served": spans((Cause.RUNS, 3.0)),
            "long": spans((Cause.ROWS, 0.5), (Cause.MEMORY, 1.5), (Cause.RUNS, 0.125)),
        }
    )
    assert table is not None
    dash = text(None)
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["long", "0.12", "2.00", "memory (1.50 s); the step is full (0.50 s)", dash, dash],
        ["short", dash, "0.50", "memory", "0.25", "not due"],
        ["deferred", "1.00", dash, dash, "9.00", "not due"],
    ]
    assert table.title == "Requests that waited or were deferred, the longest wait first"


def test_a_table_of_waits_names_its_share_of_the_requests() -> None:
    many = {f"r{number}": spans((Cause.MEMORY, number)) for number in range(MOST_WAITS + 5)}
    table = waits_table(many)
    assert table is not None
    assert f"{MOST_WAITS} of {MOST_WAITS + 5} requests that waited" in table.title
    assert [row[0].text for row in table.rows][:2] == ["r16", "r15"]
    assert waits_table({}) is None


def test_a_table_without_waits_has_no_rows_and_says_so() -> None:
    table = waits_table({"a": spans((Cause.RUNS, 1.0)), "b": spans((Cause.ARRIVAL, 2.0))})
    assert table is not None
    assert (table.rows, table.title) == ([], "No request waited or was deferred")
