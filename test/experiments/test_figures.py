"""`timelyllm-drone`, `timelyllm-policies` and `ablation`: sweeps that differ in what they ask."""

from operator import mul
from pathlib import Path

import pytest

from test.experiments.bursts import bursts_file
from test.published import TRACE, needs_published
from timely_llm.experiments.catalog.ablation import CHANGED
from timely_llm.experiments.catalog.pice.ensemble import pick
from timely_llm.experiments.catalog.pice.parallel import RULES
from timely_llm.experiments.catalog.pice.plans import WAYS
from timely_llm.experiments.contract import ExperimentError
from timely_llm.experiments.policy_spec import parse
from timely_llm.experiments.registry import EXPERIMENTS, experiment
from timely_llm.experiments.results.document import Row
from timely_llm.experiments.virtual.sketches.score import method
from timely_llm.policies.batch_bound import SpeedSource
from timely_llm.policies.registry import options_of
from timely_llm.policies.timely import Timely, TimelyLlm
from timely_llm.traces.files import write_trace
from timely_llm.traces.imported.lrtrace import read_lrtrace

REQUIRED = (
    *("policy", "load", "seed", "requests", "share_served"),
    *("utility", "urgent_utility", "normal_utility"),
    *("utility_unclamped", "urgent_utility_unclamped", "normal_utility_unclamped"),
    *("response_s", "urgent_response_s", "normal_response_s", "waiting_s"),
)


def quiet(done: int, total: int) -> None:
    pass


@pytest.mark.parametrize("name", ["timelyllm-drone", "timelyllm-policies", "ablation"])
def test_a_run_has_every_policy_and_column_that_is_promised(name: str, tmp_path: Path) -> None:
    found = experiment(name)
    options = found.options(trace=bursts_file(tmp_path), loads=(1,), seeds=1, jobs=1)
    run = found.run(options, quiet)
    assert run.experiment == name
    assert [row["policy"] for row in run.rows] == list(options.policies)
    assert all(set(REQUIRED) <= row.keys() for row in run.rows)
    assert set(run.measures) <= run.rows[0].keys()
    assert {row["task"] for row in run.task_rows} == {"0", "1", "2"}
    assert run == found.run(options, quiet), "the same each time"
    assert run.papers == (), "the paper's workload is another one"


def test_an_ablation_with_canceled_plans_says_what_was_generated_in_vain(tmp_path: Path) -> None:
    found = experiment("ablation")
    options = found.options(
        trace=bursts_file(tmp_path), loads=(1,), seeds=1, jobs=1, canceled=0.5,
        policies=("deadline", "deadline:lead_s=0"),
    )  # fmt: skip
    run = found.run(options, quiet)
    assert {row["canceled"] for row in run.rows} == {0.5}
    always, due = (row["share_in_vain"] for row in run.rows)
    assert isinstance(always, float)
    assert isinstance(due, float)
    assert 0.0 <= due < always < 1.0


@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_an_experiment_says_what_it_asks_and_its_policies_exist(name: str) -> None:
    found = experiment(name)
    assert found.name == name
    assert found.question.endswith(("?", ")"))
    for text in getattr(found.defaults, "policies", ()):
        if name == "pice-parallel":
            assert text in RULES
        elif name == "pice-ensemble":
            pick(text)
        elif name == "pice-plans":
            assert text in WAYS
        elif name.startswith("pice-"):
            method(text)
        else:
            parse(text).make()


def test_an_unknown_experiment_is_a_mistake() -> None:
    with pytest.raises(ExperimentError, match="unknown experiment 'x': choose one of timelyllm-d"):
        experiment("x")


def test_each_option_of_deadline_is_tried_at_another_value() -> None:
    defaults = options_of("deadline")
    specs = [parse(text) for text in CHANGED]
    assert {name for spec in specs for name in spec.values} == defaults.keys()
    for spec in specs:
        assert all(value != defaults[name] for name, value in spec.values.items())


def test_the_papers_numbers_stand_beside_settings_that_are_run() -> None:
    found = experiment("timelyllm-drone")
    options = found.options(
        policies=("fcfs", "fcfs:harness", "timely"), loads=(1,), seeds=1, minutes=2.0
    )
    run = found.run(options, quiet)
    settings = {(row["workload"], row["load"], row["policy"]) for row in run.rows}
    (paper,) = run.papers
    assert {(row["workload"], row["load"], row["policy"]) for row in paper.rows} <= settings
    assert {key for row in paper.rows for key in row} <= set(run.rows[0])


def test_the_experiments_of_ling_et_al_have_its_network_and_its_model_of_times(
    tmp_path: Path,
) -> None:
    of_drones = ("drone", "trace", "batch", "policies", "arm", "memory")
    defaults = [experiment(f"timelyllm-{name}").defaults for name in of_drones]
    assert {(one.network_s, one.predicted) for one in defaults} == {(0.008, "model")}
    assert experiment("timelyllm-chatbot").defaults.network_s == 0.008
    found = experiment("timelyllm-drone")
    of_times = found.options(trace=bursts_file(tmp_path))
    assert of_times.predicted == "noisy", "a trace may know no calls"
    assert found.options(trace=bursts_file(tmp_path), durations="model").predicted == "model"


@pytest.mark.parametrize("name", ["drone", "trace", "batch", "policies", "arm", "memory"])
def test_timely_stands_in_each_table_as_it_serves_without_limits_and_with_the_papers_bound(
    name: str,
) -> None:
    made = [parse(text).make() for text in experiment(f"timelyllm-{name}").defaults.policies]
    rows = [one for one in made if isinstance(one, Timely) and type(one) in (Timely, TimelyLlm)]
    assert any(one.lead_s == 0.5 for one in rows)
    assert any((one.rows, one.admissions) == (256, 8) for one in rows)
    assert any(one.bound.speed is SpeedSource.MEASURED for one in rows)
    assert any((one.rows, one.admissions, one.adaptive) == (8, 1, True) for one in rows)


def test_figure_8_has_fixed_batches_and_means_over_requests(tmp_path: Path) -> None:
    found = experiment("timelyllm-policies")
    options = found.options(trace=bursts_file(tmp_path), loads=(1,), seeds=1, jobs=1)
    run = found.run(options, quiet)
    by_policy = {str(row["policy"]): row for row in run.rows}
    for text in options.policies[:3]:
        policy = parse(text).make()
        assert isinstance(policy, Timely)
        assert (policy.rows, policy.adaptive) == (6, False)
        kinds = [row for row in run.task_rows if row["policy"] == text and row["urgent"]]
        counts = [int(row["requests"] or 0) for row in kinds]
        worths = [float(row["utility_unclamped"] or 0.0) for row in kinds]
        mean = sum(map(mul, counts, worths)) / sum(counts)
        assert by_policy[text]["urgent_over_requests"] == pytest.approx(mean)
    timely = by_policy[options.policies[2]]
    assert timely["urgent_vs_timely"] == 1.0
    assert set(run.measures) <= run.definitions.keys()


@needs_published
def test_on_the_published_trace_policies_earn_what_was_measured_before(tmp_path: Path) -> None:
    file = tmp_path / "published.jsonl"
    write_trace(read_lrtrace(TRACE), file)
    found = experiment("timelyllm-drone")
    known = {
        (1, "fcfs"): (1.012, 0.532),
        (1, "stream"): (1.178, 0.354),
        (1, "timely"): (1.213, 0.435),
        (1, "deadline"): (1.330, 0.416),
        (2, "fcfs"): (0.765, 0.709),
        (2, "stream"): (0.855, 0.515),
        (2, "timely"): (0.959, 1.018),
        (2, "deadline"): (1.216, 0.555),
    }
    policies = tuple(dict.fromkeys(policy for _, policy in known))
    options = found.options(trace=file, policies=policies, loads=(1, 2), seeds=1, network_s=0.001)
    run = found.run(options, quiet)
    assert all(row["share_served"] == 1.0 for row in run.rows)
    assert {key: _measured(run.rows, *key) for key in known} == {
        key: pytest.approx(value, rel=0.01) for key, value in known.items()
    }


def _measured(rows: tuple[Row, ...], load: int, policy: str) -> tuple[object, object]:
    (row,) = (row for row in rows if (row["load"], row["policy"]) == (load, policy))
    return row["utility"], row["waiting_s"]
