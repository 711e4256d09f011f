import math

from hypothesis import given, settings
from hypothesis import strategies as st

from test.report.runs import simulated
from timely_llm.experiments.results.document import Row, RunDocument
from timely_llm.experiments.results.metrics import interval
from timely_llm.report.series import averages, charts, meaning, subject, task_charts
from timely_llm.report.tables import columns_of, paper_table, summary_table, summary_tables


def run_of(*rows: Row, keys: tuple[str, ...] = ("policy", "load")) -> RunDocument:
    return RunDocument(experiment="e", keys=keys, rows=rows)


def test_loads_stand_along_x_and_policies_beside_each_other() -> None:
    rows: list[Row] = [
        {"policy": policy, "load": load, "seed": seed, "utility": load + seed / 10}
        for policy in ("a", "b")
        for load in (10, 2)
        for seed in (0, 1)
    ]
    (chart,) = charts(run_of(*rows))
    assert (chart.x_title, chart.places) == ("load", ("2", "10"))
    assert [series.name for series in chart.series] == ["a", "b"]
    (mean, half) = interval([2.0, 2.1])
    assert chart.series[0].points[0].mean == mean
    assert chart.series[0].points[0].half == half
    assert not chart.connected
    low, high = chart.limits
    assert low == 0 and high > 10.05 + chart.series[0].points[1].half


def test_all_other_settings_stand_along_x() -> None:
    rows: list[Row] = [
        {"workload": work, "load": load, "policy": policy, "utility": 1.0}
        for work in ("w2", "w1")
        for load in (10, 2)
        for policy in ("b", "a")
    ]
    (chart,) = charts(run_of(*rows, keys=("workload", "load", "policy")))
    assert chart.x_title == "workload, load"
    assert chart.places == ("w2, 2", "w2, 10", "w1, 2", "w1, 10")
    assert [series.name for series in chart.series] == ["b", "a"]


def test_places_where_a_measure_is_not_known_are_left_out() -> None:
    rows: list[Row] = [
        {"policy": policy, "load": load, "utility": None if load == 2 else 1.0}
        for policy in ("a", "b")
        for load in (1, 2, 3)
    ]
    (chart,) = charts(run_of(*rows))
    assert chart.places == ("1", "3")
    assert [point.place for point in chart.series[1].points] == [0, 1]


def test_policies_are_compared_or_runs_if_there_are_several() -> None:
    assert subject(("workload", "policy", "load")) == "policy"
    assert subject(("run", "policy", "load")) == "run"
    assert subject(("batch", "load")) == "batch"
    assert subject(()) == ""


def test_policies_alone_are_named_by_their_places() -> None:
    (chart,) = charts(run_of({"policy": "a", "utility": 1.0}, {"policy": "b", "utility": 2.0}))
    assert chart.places == ("a", "b")
    assert chart.named_by_place
    assert chart.series[0].points[0].half == math.inf
    assert chart.series[0].points[0].known_half == 0


def test_one_setting_alone_needs_no_plot() -> None:
    rows: list[Row] = [{"policy": "a", "load": 1, "seed": n, "utility": n} for n in range(3)]
    assert charts(run_of(*rows)) == []


def test_many_numbers_along_x_are_joined() -> None:
    rows: list[Row] = [
        {"policy": "a", "load": size, "utility": 1.0 / size} for size in (16, 1, 2, 4, 8)
    ]
    (chart,) = charts(run_of(*rows))
    assert chart.connected
    assert chart.places == ("1", "2", "4", "8", "16")
    assert [point.mean for point in chart.series[0].points] == [1, 0.5, 0.25, 0.125, 0.0625]


def test_tasks_have_plots_of_their_own() -> None:
    run = simulated()
    assert [chart.measure for chart in charts(run)] == [
        *run.measures, "share_first", "share_finished",
    ]  # fmt: skip
    by_task = task_charts(run)
    assert [chart.title for chart in by_task] == [
        f"{measure}, load {load}"
        for load in (1, 4)
        for measure in ("utility", "response (s)", "waiting (s)")
    ]
    assert by_task[0].places == ("dodge", "find")
    assert [series.name for series in by_task[0].series] == ["stream", "timely"]


def test_inputs_of_a_run_are_not_charted() -> None:
    rows: list[Row] = [
        {
            "policy": policy, "load": load, "requests": 10 * load, "conversations": load,
            "tokens": 64, "tpot_slo_ms": 100.0, "tpot_ms": 80.0 + load, "utility": 1.0,
        }
        for policy in ("a", "b")
        for load in (1, 2)
    ]  # fmt: skip
    asked = ("requests", "conversations", "tokens", "tpot_slo_ms")
    run = run_of(*rows).model_copy(update={"measures": (*asked, "tpot_ms", "utility")})
    assert [chart.measure for chart in charts(run)] == ["tpot_ms", "utility"]
    assert set(asked) < {head.text.replace(" (ms)", "_ms").replace(" ", "_")
                         for head in summary_table(run).heads}, "the table has them"  # fmt: skip
    by_task = run.model_copy(update={"task_rows": tuple({**row, "task": "x"} for row in rows)})
    assert {chart.measure for chart in task_charts(by_task)} == {"tpot_ms", "utility"}


def test_a_definition_that_refers_to_another_one_is_whole() -> None:
    run = RunDocument(
        experiment="e",
        definitions={"u": "worth, 0 if late: mean", "a": "the same, of urgent ones", "b": "other"},
    )
    assert meaning(run, "a") == "worth, 0 if late, of urgent ones"
    assert (meaning(run, "b"), meaning(run, "c")) == ("other", "")


def test_what_is_missing_is_left_out_of_means() -> None:
    rows: list[Row] = [{"p": 1, "u": 1.0}, {"p": 1, "u": None}, {"p": 1, "u": 3.0}, {"u": 5.0}]
    first, second = averages(rows, ["p"])
    assert (first["p"], first["seeds"], first["u"]) == (1, 3, 2.0)
    assert (second["p"], second["u"]) == (None, 5.0)


values = st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-1e9, 1e9) | st.text(max_size=3)
columns = st.sampled_from(["policy", "load", "task", "seed", "utility", "response_s", "x_ci", ""])
rows = st.dictionaries(columns, values, max_size=6)


@given(
    rows=st.lists(rows, min_size=1, max_size=8),
    keys=st.lists(columns, max_size=3, unique=True),
    measures=st.lists(columns, max_size=3),
)
@settings(deadline=None)
def test_no_rows_are_too_odd_for_tables_and_plots(
    rows: list[Row], keys: list[str], measures: list[str]
) -> None:
    run = RunDocument(
        experiment="e", keys=tuple(keys), measures=tuple(measures), rows=tuple(rows),
        task_rows=tuple(rows),
        papers=({"title": "p", "rows": rows},),  # type: ignore[arg-type]
    )  # fmt: skip
    for chart in (*charts(run), *task_charts(run)):
        low, high = chart.limits
        assert math.isfinite(low) and math.isfinite(high) and low < high
        for series in chart.series:
            assert all(0 <= point.place < len(chart.places) for point in series.points)
    assert set(columns_of(run, run.rows)) == {name for row in rows for name in row}
    tables = (
        summary_table(run),
        *summary_tables(run),
        paper_table(run, run.papers[0]),
    )
    for table in tables:
        assert all(len(row) == len(table.heads) for row in table.rows)
