"""`slice-static`, `slice-dynamic`, `slice-ratio` and `slice-rate`."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from test.experiments.bursts import bursts_file
from timely_llm.experiments.contract import ExperimentError
from timely_llm.experiments.registry import experiment
from timely_llm.experiments.results.document import Row, RunDocument
from timely_llm.experiments.sweep import RunSpec
from timely_llm.experiments.virtual.slice_sweep import cases, settings
from timely_llm.report.load import LoadedRun
from timely_llm.report.page import render
from timely_llm.traces.files import write_trace

COLUMNS = {
    *("policy", "rate", "rt_ratio", "seed", "attainment", "rt_attainment", "nrt_attainment"),
    *("ttft_attainment", "tpot_attainment", "completion_s", "rt_completion_s"),
    *("nrt_completion_s", "max_gap_s", "share_served"),
}
SHORT = "2-4:5-10"
"""Answers that are simulated soon."""


def quiet(done: int, total: int) -> None:
    pass


def run(name: str, **options: object) -> RunDocument:
    found = experiment(name)
    return found.run(found.options(jobs=1, **options), quiet)


def of(made: RunDocument, **setting: object) -> Row:
    (row,) = (row for row in made.rows if all(row[key] == setting[key] for key in setting))
    return row


def test_static_gives_each_type_the_papers_speed_and_shows_the_largest_gaps() -> None:
    made = run("slice-static", policies=("orca", "slice", "slice:even=on"))
    assert made == run("slice-static", policies=("orca", "slice", "slice:even=on"))
    assert all(row.keys() >= COLUMNS for row in made.rows)
    for kind in "ABC":
        assert of(made, policy="orca", type=kind)["tpot_ms"] == pytest.approx(128.6, abs=0.01)
    together = [of(made, policy="slice", type=kind)["together_tpot_ms"] for kind in "ABC"]
    assert together == pytest.approx([963 / 10, 963 / 9, 963 / 4], rel=0.01), "Table II's period"
    attained = {row["policy"]: row["attainment"] for row in made.rows if row["type"] == "all"}
    assert attained == {"orca": pytest.approx(2 / 9), "slice": 1.0, "slice:even=on": 1.0}
    assert of(made, policy="slice", type="C")["max_gap_s"] == pytest.approx(0.58, abs=0.01)
    assert of(made, policy="slice:even=on", type="C")["max_gap_s"] == pytest.approx(0.29, abs=0.01)
    assert set(made.measures) <= {name for row in made.rows for name in row}


@pytest.mark.parametrize(
    ("name", "changed", "settings_of"),
    [
        ("slice-rate", {"rates": (0.5, 4.0)}, ("rate", {0.5, 4.0})),
        ("slice-ratio", {"ratios": (0.1, 1.0)}, ("rt_ratio", {0.1, 1.0})),
        ("slice-dynamic", {"lengths": (SHORT,)}, ("rate", {1.0})),
    ],
)
def test_a_sweep_has_a_row_for_each_policy_setting_and_seed(
    name: str, changed: dict[str, object], settings_of: tuple[str, set[float]]
) -> None:
    options = {"policies": ("orca", "slice"), "seeds": 2, "lengths": (SHORT,), **changed}
    made = run(name, **options)
    column, values = settings_of
    assert {row[column] for row in made.rows} == values
    assert len(made.rows) == 2 * 2 * len(values)
    assert all(row.keys() >= COLUMNS | {"lengths", "bound"} for row in made.rows)
    assert set(made.keys) | set(made.measures) <= made.rows[0].keys()
    assert set(made.keys) | set(made.measures) - {"policy"} <= {*made.definitions, "policy"}
    assert made.papers


def test_lengths_and_bounds_name_a_setting_only_if_there_are_several() -> None:
    small = {"policies": ("orca",), "seeds": 1, "rates": (2.0,)}
    one = run("slice-rate", lengths=(SHORT,), **small)
    assert one.keys == ("rt_ratio", "policy", "rate")
    assert (one.setup["lengths"], one.setup["bound"]) == (SHORT, 1.0)
    two = run("slice-rate", lengths=(SHORT,), bounds=(1.0, 2.0), **small)
    assert two.keys == ("bound", "rt_ratio", "policy", "rate")
    assert "slice-rate" in render([LoadedRun.of(two)])


def test_with_real_time_tasks_alone_there_is_no_value_of_others() -> None:
    made = run("slice-ratio", policies=("orca",), seeds=1, lengths=(SHORT,), ratios=(1.0,))
    row = of(made, policy="orca")
    assert (row["nrt_attainment"], row["max_gap_s"]) == (None, None)
    assert row["attainment"] == row["rt_attainment"] == 1.0


def test_dynamic_compares_completion_times_with_those_of_slice() -> None:
    made = run("slice-dynamic", policies=("slice", "orca"), seeds=1, lengths=(SHORT,))
    slice_, orca = of(made, policy="slice"), of(made, policy="orca")
    assert slice_["completion_s_vs_slice"] == 1.0
    ours, theirs = orca["rt_completion_s"], slice_["rt_completion_s"]
    assert isinstance(ours, float) and isinstance(theirs, float)
    assert orca["rt_completion_s_vs_slice"] == pytest.approx(ours / theirs)


def test_under_overload_policies_with_deadlines_meet_more_of_them() -> None:
    made = run("slice-rate", policies=("orca", "slice"), seeds=1, rates=(3.0,))
    orca, slice_ = of(made, policy="orca"), of(made, policy="slice")
    assert float(orca["rt_attainment"] or 0) < 0.5 < float(slice_["rt_attainment"] or 0)
    assert orca["share_served"] == slice_["share_served"] == 1.0


def test_tables_have_the_busy_gate_on_and_off_and_a_refused_answer_is_not_met() -> None:
    policies = experiment("slice-rate").defaults.policies
    assert {"orca:gate", "slice:gate", "deadline:gate", "prio:rows=4", "vtc"} <= set(policies)
    made = run("slice-rate", policies=("orca", "orca:gate"), seeds=1, rates=(2.0,), minutes=1.0)
    off, on = of(made, policy="orca"), of(made, policy="orca:gate")
    assert {"share_refused", "objective", "qoe"} <= set(made.measures)
    assert off["share_refused"] == 0.0 < float(on["share_refused"] or 0)
    assert float(on["attainment"] or 0) <= 1.0 - float(on["share_refused"] or 0)
    assert float(off["attainment"] or 0) < float(on["attainment"] or 0)


@pytest.mark.parametrize(
    ("policy", "rate", "max_rows", "at_least", "stalled_s"),
    [
        ("deadline", 3.0, 256, 0.74, 1.5),
        ("deadline:gate", 3.0, 256, 0.74, 1.0),
        pytest.param("deadline", 5.0, 256, 0.62, 2.5, marks=pytest.mark.extended),
        pytest.param("deadline:gate", 7.0, 256, 0.53, 4.0, marks=pytest.mark.extended),
        ("deadline", 2.0, 4, 0.85, 0.5),
        ("deadline:gate", 2.0, 4, 0.85, 0.5),
    ],
)
def test_the_default_policy_keeps_its_worth_for_people_under_load(
    policy: str, rate: float, max_rows: int, at_least: float, stalled_s: float
) -> None:
    """Its floors without the limit of rows are those of docs/deadline.md, of short answers."""
    made = run(
        "slice-rate", policies=("slice", policy), rates=(rate,), lengths=("8-25:40-160",), seeds=1,
        first_seed=100, max_rows=max_rows,
    )  # fmt: skip
    ours, theirs = of(made, policy=policy), of(made, policy="slice")
    assert float(ours["attainment"] or 0) > at_least
    assert float(ours["attainment"] or 0) > float(theirs["attainment"] or 0)
    assert float(ours["stalled_s"] or 0) < stalled_s
    assert float(ours["max_gap_s"] or 0) < 2.0


@pytest.mark.parametrize(
    ("ratio", "rate", "minutes"),
    [(0.0, 0.5, 2.0), (0.0, 1.0, 1.0), (0.0, 2.0, 1.0), (0.7, 2.0, 1.0)],
)
def test_timely_slice_meets_at_least_the_service_levels_that_orca_meets(
    ratio: float, rate: float, minutes: float
) -> None:
    options = {"lengths": ("8-25:40-160",), "ratios": (ratio,), "rates": (rate,), "seeds": 2}
    made = run("slice-rate", policies=("orca", "timely+slice"), minutes=minutes, **options)
    for seed in (0, 1):
        orca, both = (of(made, policy=name, seed=seed) for name in ("orca", "timely+slice"))
        assert float(both["attainment"] or 0) >= float(orca["attainment"] or 0)
        assert float(both["objective"] or 0) >= float(orca["objective"] or 0)


def test_prompts_take_time_only_if_that_is_asked_for() -> None:
    found = experiment("slice-rate")
    free, charged = (settings(found.options(**given)) for given in ({}, {"charged": True}))
    assert free.profile.prompts_are_free
    assert not charged.profile.prompts_are_free
    made = run("slice-rate", policies=("orca",), seeds=1, rates=(1.0,), lengths=(SHORT,))
    slower = run(
        "slice-rate", policies=("orca",), seeds=1, rates=(1.0,), lengths=(SHORT,), charged=True
    )
    (a,), (b,) = made.rows, slower.rows
    assert float(a["completion_s"] or 0) < float(b["completion_s"] or 0)
    assert made.setup["prompts"] != slower.setup["prompts"]


def test_all_policies_see_the_same_tasks_and_bounds_are_declared() -> None:
    found = experiment("slice-rate")
    made = cases(
        found.options(policies=("orca", "slice"), seeds=2, rates=(1.0,), bounds=(1.0, 4.0))
    )
    by_bound: dict[object, list[RunSpec]] = {}
    for case in made:
        by_bound.setdefault((case.names["bound"], case.names["seed"]), []).append(case)
    assert all(one.trace is other.trace for one, other in by_bound.values())
    bounds = {talk.max_tokens for talk in by_bound[4.0, 0][0].trace.conversations}
    assert bounds == {72, 1600}


def test_seeds_follow_the_first_one() -> None:
    small = {"policies": ("orca",), "lengths": (SHORT,), "rates": (2.0,)}
    both = run("slice-rate", seeds=2, **small)
    second = run("slice-rate", seeds=1, first_seed=1, **small)
    assert [row["seed"] for row in both.rows] == [0, 1]
    assert second.rows == both.rows[1:]
    assert (both.setup["seeds"], second.setup["seeds"]) == ("0 to 1", "1 to 1")


def test_minutes_are_the_time_in_which_tasks_arrive() -> None:
    found = experiment("slice-rate")
    options = {"policies": ("orca",), "rates": (2.0,), "seeds": 1}
    short, long = (cases(found.options(minutes=m, **options))[0].trace for m in (0.5, 5.0))
    assert short.conversations == long.conversations[: len(short.conversations)]
    assert long.conversations[-1].arrival_s <= 300.0 < long.conversations[-1].arrival_s + 10.0
    assert len(long.conversations) == pytest.approx(600, rel=0.15)


def test_conversations_ask_for_the_given_ttft_and_real_time_tasks_do_not() -> None:
    found = experiment("slice-rate")
    usual, patient = (
        cases(found.options(policies=("orca",), rates=(2.0,), seeds=1, **given))[0].trace
        for given in ({}, {"ttft_s": 9.0})
    )
    for one, other in zip(usual.conversations, patient.conversations, strict=True):
        assert other == (one if one.deadline_s < math.inf else replace(one, ttft_s=9.0))
    overload = {"policies": ("slice",), "rates": (3.0,), "seeds": 1, "minutes": 1.0}
    strict = of(run("slice-rate", ttft_s=0.5, **overload), policy="slice")
    loose = run("slice-rate", ttft_s=60.0, **overload)
    assert float(of(loose, policy="slice")["ttft_attainment"] or 0) > float(
        strict["ttft_attainment"] or 0
    )
    assert "60 s to the first token (this package's" in str(loose.setup["workload"])


def test_answers_longer_than_declared_end_there() -> None:
    options = {"policies": ("orca", "deadline"), "seeds": 1, "rates": (2.0,), "lengths": (SHORT,)}
    whole = run("slice-rate", **options)
    made = run("slice-rate", bounds=(0.5,), **options)
    assert {row["share_cut"] for row in whole.rows} == {0.0}
    assert "share_cut" in made.measures and "share_cut" not in whole.measures
    tasks = cases(experiment("slice-rate").options(bounds=(0.5,), **options))[0].trace
    longer = [one.output_tokens > one.max_tokens for one in tasks.conversations]
    for row in made.rows:
        assert row["share_cut"] == pytest.approx(sum(longer) / len(longer))
        assert row["share_served"] == 1.0


def test_a_trace_stands_in_place_of_the_tasks(tmp_path: Path) -> None:
    found = experiment("slice-rate")
    options = {"rates": (2.0,), "lengths": (SHORT,), "seeds": 1, "policies": ("orca",)}
    (case,) = cases(found.options(**options))
    file = tmp_path / "asked.jsonl"
    write_trace(replace(case.trace, name="asked"), file)
    made = run("slice-rate", trace=file, policies=("orca", "slice"))
    composed = of(run("slice-rate", **options), policy="orca")
    recorded = of(made, policy="orca")
    assert [row["policy"] for row in made.rows] == ["orca", "slice"]
    named = {"lengths", "bound", "rate", "rt_ratio"}
    assert {k: v for k, v in recorded.items() if k not in named} == pytest.approx(
        {k: v for k, v in composed.items() if k not in named}
    )
    assert recorded["rate"] == pytest.approx(2.0, rel=0.2)
    with pytest.raises(ExperimentError, match=r"asked.jsonl has tasks of its own: leave out rates"):
        run("slice-rate", trace=file, rates=(2.0,))
    with pytest.raises(ExperimentError, match=r"bursts.jsonl has no conversations"):
        run("slice-rate", trace=bursts_file(tmp_path))


def test_options_that_change_nothing_are_refused() -> None:
    with pytest.raises(ExperimentError, match="slice-rate has no option loads, only: bounds"):
        experiment("slice-rate").options(loads=(2,))
    with pytest.raises(ExperimentError, match="slice-static has no option rates"):
        experiment("slice-static").options(rates=(2.0,))
    with pytest.raises(ExperimentError, match="timelyllm-drone has no option rates"):
        experiment("timelyllm-drone").options(rates=(2.0,))
    with pytest.raises(ExperimentError, match="lengths must be like 8-25:40-160"):
        run("slice-rate", lengths=("8",))
