"""The options of each experiment, as its command line takes and refuses them."""

from __future__ import annotations

import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from timely_llm.cli import main
from timely_llm.cli.experiment import experiment as command
from timely_llm.experiments.contract import REASONS, ExperimentError, Options
from timely_llm.experiments.registry import EXPERIMENTS, experiment

PLANS = (
    "error first_seed harness jobs loads minutes network_s noise policies profile seeds uncached"
)
WORKLOADS = f"{PLANS} durations trace"
TIMELINES = f"{WORKLOADS} explain"
OF_REAL_TIME = "engine engine_args model own_pace scripted seconds"
REAL_TIME = f"{TIMELINES} {OF_REAL_TIME}"
TASKS = (
    "bounds charged first_seed jobs lengths max_rows minutes network_s policies profile rates"
    " ratios seeds trace ttft_s"
)
SKETCHES = "first_seed jobs minutes policies seeds"
ENGINES = "engine engine_args model repeats tokens"
UNDERSTOOD = {
    "timelyllm-drone": REAL_TIME,
    "timelyllm-trace": TIMELINES,
    "timelyllm-batch": WORKLOADS,
    "timelyllm-policies": REAL_TIME,
    "ablation": f"{TIMELINES} canceled",
    "row-cost": WORKLOADS.replace(" profile", ""),
    "timelyllm-arm": REAL_TIME,
    "timelyllm-chatbot": f"{PLANS} trace",
    "timelyllm-memory": WORKLOADS.replace(" uncached", ""),
    "timelyllm-phases": ENGINES,
    "timelyllm-overhead": "policies seeds",
    "slice-static": "charged jobs max_rows network_s policies profile",
    "slice-dynamic": TASKS,
    "slice-ratio": TASKS,
    "slice-rate": TASKS,
    "slice-lengths": " ".join(sorted(set(TASKS.split()) - {"policies", "trace"})),
    "slice-adaptor": TASKS,
    "slice-weight": f"{TASKS} weights",
    "slice-overload": TASKS,
    "slice-restarts": f"{WORKLOADS} rates",
    "mixed": f"{WORKLOADS} lengths max_rows rates",
    "fleet": "error first_seed jobs network_s policies profile robots seconds seeds trace",
    "bursts": f"{WORKLOADS} sizes",
    "urgent": f"{WORKLOADS} sizes",
    "optimal": "first_seed jobs policies profile seeds",
    "annealing-order": "figures first_seed jobs policies profile rates seeds sizes",
    "annealing-search": "first_seed jobs policies profile seeds sizes",
    "annealing-lengths": "figures first_seed jobs profile seeds sizes",
    "annealing-fit": "first_seed jobs policies profile seeds",
    "annealing-servers": "dispatchers first_seed jobs policies profile seeds servers",
    "servers-scale": "dispatchers error first_seed jobs minutes network_s policies profile seeds"
    " servers trace",
    "servers-mixed": "dispatchers error first_seed jobs loads minutes network_s policies rates"
    " seeds trace",
    "pipeline-offline": "bandwidths budgets jobs kv links pipelines policies workloads",
    "pipeline-online": "bandwidths budgets first_seed jobs links policies rates requests seeds"
    " tpot_s ttft_s",
    "pipeline-timeline": "bandwidths budgets jobs kv links pipelines policies seconds workloads",
    "pipeline-plans": " ".join(
        sorted(
            {*WORKLOADS.split(), *["bandwidths", "budgets", "links", "pipelines", "rates"]}
            - {"profile"}
        )
    ),
    "pice-throughput": f"{SKETCHES} models",
    "pice-schedule": SKETCHES,
    "pice-parallel": SKETCHES.replace("minutes", "sizes"),
    "pice-ensemble": SKETCHES,
    "pice-load": f"{SKETCHES} rates",
    "pice-queue": f"{SKETCHES} sizes",
    "pice-bandwidth": f"{SKETCHES} bandwidths",
    "pice-options": SKETCHES,
    "pice-plans": "first_seed jobs policies rates seeds",
    "engine-overhead": f"{ENGINES} requests",
    "engine-resume": ENGINES,
}
GIVEN = {
    "policies": ("fcfs",), "loads": (3,), "seeds": 9, "trace": Path("x"), "profile": "millisecond",
    "harness": True, "uncached": True, "error": 0.4, "noise": 0.3, "network_s": 0.5, "jobs": 7,
    "engine": "transformers", "seconds": 9.0, "model": "m", "engine_args": ("a=1",),
    "scripted": True, "own_pace": True, "rates": (4.0,), "ratios": (0.4,), "lengths": ("1-2:3-4",),
    "bounds": (3.0,), "charged": True, "requests": (2,), "tokens": 99, "repeats": 8,
    "explain": True, "durations": "model", "robots": (2,), "first_seed": 3, "minutes": 2.0,
    "ttft_s": 2.0, "weights": (3.0,), "sizes": (5,), "dispatchers": ("two-choices",),
    "servers": (2,), "figures": (13,), "workloads": ("1/2/3",), "pipelines": ("x",),
    "links": ("overlapping",), "bandwidths": (9.0,), "kv": ("unlimited",), "budgets": (7,),
    "tpot_s": 0.3, "models": ("qwen2.5-7b",), "canceled": 0.4,
    "max_rows": 5,
}  # fmt: skip


def names(options: Options) -> set[str]:
    return {option.name for option in fields(options) if option.init}


def test_every_experiment_has_options_of_its_own() -> None:
    assert list(UNDERSTOOD) == list(EXPERIMENTS)
    kinds = [type(experiment(name).defaults) for name in EXPERIMENTS]
    assert len(set(kinds)) == len(kinds)
    for name, kind in zip(EXPERIMENTS, kinds, strict=True):
        assert kind.__module__ == f"timely_llm.experiments.catalog.{name.replace('-', '.', 1)}"
        assert names(experiment(name).defaults) == set(UNDERSTOOD[name].split())


def test_the_command_line_has_the_options_of_all_experiments_and_no_other() -> None:
    on_the_line = {option.name for option in command.params} - {"name", "list", "json_file"}
    known = set[str]().union(*(names(experiment(name).defaults) for name in EXPERIMENTS))
    assert on_the_line - {"html_file"} == known == GIVEN.keys()


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_what_is_given_replaces_a_default_and_nothing_else(name: str) -> None:
    found = experiment(name)
    for option in names(found.defaults):
        given: dict[str, Any] = {option: GIVEN[option]}
        if found.real_time is not None and option in OF_REAL_TIME.split():
            given["engine"] = "transformers"
        expected: Any = found.real_time if found.real_time and "engine" in given else found.defaults
        made = found.options(**given)
        for other in names(made):
            assert getattr(made, other) == given.get(other, getattr(expected, other))


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_option_of_another_experiment_is_refused_in_one_sentence(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found, understood = experiment(name), sorted(UNDERSTOOD[name].split())
    for option in GIVEN.keys() - set(understood):
        with pytest.raises(ExperimentError) as error:
            found.options(**{option: GIVEN[option]})
        why = {**REASONS, **found.reasons}.get(option, f"only: {', '.join(understood)}")
        assert str(error.value) == f"{name} has no option {option}, {why}"
    words = ["--tokens", "8"] if "tokens" not in understood else ["--seeds", "3"]
    monkeypatch.setattr(sys, "argv", ["timely-llm", "experiment", name, *words])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 1
    assert len(capsys.readouterr().err.splitlines()) == 1
