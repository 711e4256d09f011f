from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from test.experiments.bursts import bursts, bursts_file
from timely_llm.core.errors import TimelyError
from timely_llm.experiments.contract import (
    Experiment,
    ExperimentError,
    Options,
    ReportProgress,
    WorkloadOptions,
)
from timely_llm.experiments.results.document import RunDocument, read_run, write_run
from timely_llm.experiments.results.metrics import plain, row, task_rows
from timely_llm.experiments.sweep import (
    Scored,
    cases,
    compared,
    document,
    settings,
    setup,
    sweep,
    workloads,
)
from timely_llm.experiments.virtual.simulation import SimulationSettings, simulate
from timely_llm.policies.registry import make_policy


def quiet(done: int, total: int) -> None:
    pass


def answer(options: WorkloadOptions, progress: ReportProgress) -> RunDocument:
    return document(DUMMY, options, sweep(options, (), progress))


@dataclass(frozen=True)
class Narrow(Options):
    seeds: int = 5
    loads: tuple[int, ...] = field(default=(1,), init=False)  # no option


DUMMY = Experiment("dummy", "Does it work?", answer, WorkloadOptions())


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> WorkloadOptions:
    trace = bursts_file(tmp_path_factory.mktemp("bursts"))
    return WorkloadOptions(policies=("fcfs", "timely:drops"), loads=(1, 3), seeds=2, trace=trace)


@pytest.fixture(scope="module")
def scored(options: WorkloadOptions) -> list[Scored]:
    """The runs of `options`, in this process."""
    return sweep(replace(options, jobs=1), ("wid1",), quiet)


def test_rows_are_those_of_the_simulation_in_order(scored: list[Scored]) -> None:
    names = ("workload", "load", "policy", "seed")
    assert [tuple(one.row[name] for name in names) for one in scored] == [
        ("small", load, policy, seed)
        for load in (1, 3)
        for policy in ("fcfs", "timely:drops")
        for seed in (0, 1)
    ]
    run = simulate(
        bursts(), make_policy("timely"), SimulationSettings(load=3, seed=1, drop_late=True)
    )
    columns = {"workload": "small", "policy": "timely:drops", "load": 3, "seed": 1}
    assert scored[-1].row == plain(row(run, **columns))
    assert list(scored[-1].task_rows) == [plain(one) for one in task_rows(run, **columns)]
    assert scored[-1].row["requests"] == 3 * (36 - 10)


def test_the_first_seed_and_the_minutes_are_the_users(tmp_path: Path) -> None:
    made = WorkloadOptions(seeds=2, first_seed=4, minutes=1.5)
    (short,) = workloads(made, ("wid2",)).values()
    (usual,) = workloads(replace(made, minutes=None), ("wid2",)).values()
    assert [case.settings.seed for case in cases(replace(made, policies=("fcfs",)), ("wid2",))] == [
        4,
        5,
    ]
    assert short[0].jobs[0].arrival_s == usual[0].jobs[0].arrival_s
    assert short[0].jobs[-1].arrival_s <= 91.0 < usual[0].jobs[-1].arrival_s
    with pytest.raises(ExperimentError, match="a trace has its own length: leave out minutes"):
        workloads(replace(made, trace=bursts_file(tmp_path)), ())


def test_several_processes_find_the_same_as_one(
    options: WorkloadOptions, scored: list[Scored]
) -> None:
    seen: list[tuple[int, int]] = []
    assert sweep(options, ("wid1",), lambda *done: seen.append(done)) == scored
    assert seen == [(done, 8) for done in range(9)]


def test_the_first_run_of_each_policy_is_drawn(scored: list[Scored]) -> None:
    drawn = [one.timeline for one in scored if one.timeline is not None]
    assert [timeline.name for timeline in drawn] == [
        "fcfs, workload small, load 1, seed 0",
        "timely:drops, workload small, load 1, seed 0",
    ]
    assert all(timeline.steps and timeline.spans for timeline in drawn)


def test_a_document_explains_its_rows_and_can_be_read_again(
    options: WorkloadOptions, scored: list[Scored], tmp_path: Path
) -> None:
    shares = compared(scored, "utility", "fcfs")
    made = document(DUMMY, options, shares, notes=("A note.",))
    assert (made.experiment, made.question) == ("dummy", "Does it work?")
    assert set(made.rows[0]) - set(made.definitions) == {"workload", "policy", "load", "seed"}
    assert made.definitions["utility_vs_fcfs"].startswith("utility over that of fcfs")
    assert made.notes[0] == "A note."
    assert any("must not be compared" in note for note in made.notes), "drops served fewer"
    assert any(note.startswith("`drops` after a policy's name") for note in made.notes)
    assert made.setup["seeds"] == "0 to 1"
    write_run(made, tmp_path / "run.json")
    assert read_run(tmp_path / "run.json") == made


def test_a_comparison_is_a_share_of_the_same_setting(scored: list[Scored]) -> None:
    shares = compared(scored, "utility", "fcfs")
    for one in shares:
        (base,) = (
            other.row["utility"]
            for other in shares
            if other.row["policy"] == "fcfs"
            and all(other.row[key] == one.row[key] for key in ("load", "seed"))
        )
        share, own = one.row["utility_vs_fcfs"], one.row["utility"]
        assert isinstance(base, float) and isinstance(own, float)
        assert share == (pytest.approx(own / base) if base else None)


def test_options_become_settings() -> None:
    asked = WorkloadOptions(profile="millisecond", error=0.5, noise=0.1, network_s=0.008)
    made = settings(asked, 4, 2)
    assert (made.load, made.seed, made.profile.name) == (4, 2, "millisecond")
    assert (made.prediction_error, made.true_noise, made.network_s) == (0.5, 0.1, 0.008)
    assert settings(WorkloadOptions(), 1, 0) == SimulationSettings()


def test_the_set_up_names_predictions_of_the_model(options: WorkloadOptions) -> None:
    modelled = replace(options, durations="model", trace=None)
    assert settings(modelled, 1, 0).durations == "model"
    assert "lower bounds of searches" in str(setup(modelled)["predicted execution times"])
    assert "sigma 0.2" in str(setup(options)["predicted execution times"])
    with pytest.raises(ExperimentError, match="durations must be noisy or model, not 'sure'"):
        replace(options, durations="sure")
    with pytest.raises(TimelyError, match="durations model needs the plan of each job"):
        sweep(replace(options, durations="model", jobs=1), (), quiet)


def test_what_is_not_possible_is_a_sentence(options: WorkloadOptions) -> None:
    for wrong, complaint in (
        (replace(options, profile="none"), "unknown profile 'none'"),
        (replace(options, loads=(100_000,)), "a load of 100000 makes 3600000 requests: at most"),
        (
            replace(options, policies=("deadline:urgent=11",), jobs=1),
            "urgent must be from 0 to 10, not 11",
        ),
    ):
        with pytest.raises(TimelyError, match=complaint):
            sweep(wrong, (), quiet)


def test_presets_are_composed_for_each_seed() -> None:
    made = workloads(WorkloadOptions(seeds=2), ("wid1", "wid2"))
    assert [(name, len(traces)) for name, traces in made.items()] == [("wid1", 2), ("wid2", 2)]
    assert made["wid1"][0] != made["wid1"][1]


def test_an_option_that_an_experiment_does_not_understand_is_a_mistake() -> None:
    narrow = Experiment(
        "dummy", "Does it work?", lambda *_: answer(WorkloadOptions(), quiet), Narrow()
    )
    assert narrow.options(seeds=3) == Narrow(3)
    with pytest.raises(ExperimentError, match="trace, since it composes its own"):
        narrow.options(trace=Path("x"))
    with pytest.raises(ExperimentError, match="dummy has no option loads, only: seeds"):
        narrow.options(loads=(2,))
