from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from test.cli.command import error_line, run_command
from test.engines.conftest import make_model, tokenizer  # noqa: F401
from test.profiling.bag_writer import BagWriter
from test.profiling.recorded_run import record
from test.skills.plans import DRONE
from timely_llm.engines.paces import pace_profile, step_time_profile
from timely_llm.engines.pipelined import PipelineProfile
from timely_llm.engines.simulated import PROFILES
from timely_llm.resources import resource
from timely_llm.skills.skill_set import load_skill_set

SKILLS = str(resource("config/skill_sets/drone.yaml"))


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")


run = partial(run_command, "profile")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Executions of a robot that moves slower than its skill set says."""
    rng, lines = np.random.default_rng(0), ["skill,seconds,arg1"]
    for cm in rng.integers(10, 501, 60):
        lines.append(f"mf,{(3.0 + 0.009 * cm) * rng.lognormal(0, 0.05):.4f},{cm}")
    lines += [f"s,{seconds:.4f},cat" for seconds in rng.uniform(2, 14, 30)]
    lines += ["mb,60,100", "tc,2,90", "tc,2,90"]
    (tmp_path / "runs.csv").write_text("\n".join(lines))
    return tmp_path / "runs.csv"


def test_durations_are_fitted_shown_and_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], table: Path
) -> None:
    folder = table.parent
    assert run(
        monkeypatch, str(table), "--skill-set", SKILLS, "--output", str(folder / "new.yaml"),
        "--plot", str(folder / "fit.png"), "--json", str(folder / "fit.json"),
    ) == 0  # fmt: skip
    shown = capsys.readouterr().out
    assert "Left as they are, fewer than 3 executions: mb (1), ml (0)" in shown
    assert f"Wrote {folder / 'new.yaml'}" in shown
    new = load_skill_set(folder / "new.yaml")
    assert new.skills["mf"].duration.polynomial == pytest.approx((3.0, 0.009), rel=0.05)
    assert new.skills["mf"].duration.spread is not None
    assert new.skills["mb"] == DRONE.skills["mb"]
    assert new.skills["s"].duration.quantiles is not None
    assert new.prompt_text() == DRONE.prompt_text()
    rows = json.loads((folder / "fit.json").read_text())
    assert [(row["skill"], row["executions"]) for row in rows] == [("mf", 60), ("s", 30)]
    assert rows[0]["error_after_s"] < rows[0]["error_before_s"]
    assert imread(folder / "fit.png").shape[1] > 800


def test_a_bag_is_fitted_like_a_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with BagWriter(tmp_path / "bag") as bag:
        for number in range(4):
            bag.plan(DRONE, f"r{number}", "g('cat');2{tc(90)}", [4.0, 4.5])
    assert run(monkeypatch, str(tmp_path / "bag"), "--skill-set", SKILLS) == 0
    shown = capsys.readouterr().out
    assert ["g", "4", "0", "4", "1.5", "0"] in [line.split() for line in shown.splitlines()]
    assert "Not used: 4 segments with calls that may not have been made, or more than once" in shown


@pytest.mark.parametrize(
    ("content", "complaint", "status"),
    [
        ("skill,seconds,arg1\nfly,1,1\n", "line 2: unknown skill 'fly'", 1),
        ("skill,seconds,arg1\nmf,1,50\n", "has no skill with 3 executions or more", 1),
        (None, "does not exist", 2),
    ],
)
def test_what_cannot_be_fitted_gets_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path,
    content: str | None, complaint: str, status: int,
) -> None:  # fmt: skip
    file = tmp_path / "runs.csv"
    if content is not None:
        file.write_text(content)
    assert run(monkeypatch, str(file), "--skill-set", SKILLS) == status
    errors = error_line(capsys)
    assert complaint in errors


def test_a_skill_set_is_needed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], table: Path
) -> None:
    assert run(monkeypatch, str(table)) == 2
    assert "Missing option '--skill-set'" in capsys.readouterr().err


def test_packages_that_are_missing_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], table: Path
) -> None:
    monkeypatch.setitem(sys.modules, "rosbags.highlevel", None)
    monkeypatch.setitem(sys.modules, "ruamel.yaml", None)
    monkeypatch.delitem(sys.modules, "timely_llm.profiling.skill_file", raising=False)
    assert run(monkeypatch, str(table.parent), "--skill-set", SKILLS) == 1
    assert "the Python package rosbags is missing: pip install '" in capsys.readouterr().err
    new = str(table.parent / "new.yaml")
    assert run(monkeypatch, str(table), "--skill-set", SKILLS, "--output", new) == 1
    assert "ruamel.yaml is missing: pip install 'ruamel.yaml>=" in capsys.readouterr().err


def test_an_engine_is_measured_and_its_profile_is_one_that_can_be_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:  # fmt: skip
    model = request.getfixturevalue("make_model")("Llama", max_position_embeddings=800)
    file, plot, steps = (tmp_path / name for name in ("here.yaml", "here.png", "steps.json"))
    assert run(
        monkeypatch, "--engine", "--model", str(model), "--output", str(file), "--plot", str(plot),
        "--json", str(steps),
    ) == 0  # fmt: skip
    shown = capsys.readouterr().out
    assert "Error on steps not seen by the fit: median" in shown
    assert f"Use it wherever a profile is named: measured:{file}" in shown
    profile = step_time_profile(f"measured:{file}")
    assert profile.name == f"{model.name}, measured"
    assert "float32" in profile.source
    assert "/" not in profile.source
    assert profile.step_s(64, 1000, 10_000) > profile.step_s(1) > 0
    rows = json.loads(steps.read_text())["steps"]
    assert sum(row["unseen"] for row in rows) == 24
    assert all(row["measured_s"] > 0 for row in rows)
    assert imread(plot).shape[1] > 800


def test_an_engine_in_stages_gets_a_profile_of_each_stage_and_link(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file, plot, steps = (tmp_path / name for name in ("two.yaml", "two.png", "steps.json"))
    assert run(
        monkeypatch, "--engine", "simulated", "--pace", "two-boxes", "--output", str(file),
        "--plot", str(plot), "--json", str(steps), "--layers", "16,16", "--most-layers", "12,32",
    ) == 0  # fmt: skip
    shown = capsys.readouterr().out
    assert "Layers as measured, 16,16: a step of 16 rows keeps the busiest stage or link" in shown
    assert "VLLM_PP_LAYER_PARTITION=12,20: a step" in shown
    assert ["link", "1", "0.2", "131", "131", "0.0%", "0.0%"] in map(str.split, shown.splitlines())
    assert "A transfer keeps both its stages from computing." in shown
    profile = pace_profile(f"measured:{file}")
    assert isinstance(profile, PipelineProfile)
    assert profile.name == "two-boxes, measured"
    row = json.loads(steps.read_text())["steps"][0]
    assert list(row["parts"]) == ["stage 1", "stage 2", "link 1", "whole step"]
    assert imread(plot).shape[0] == 1200


def test_step_times_are_fitted_to_an_event_log_and_can_be_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    log, file, numbers = (tmp_path / name for name in ("run.jsonl", "here.yaml", "fit.json"))
    engine = PROFILES["v100x2-qwen2.5-7b"]
    record(log, engine)
    assert run(monkeypatch, "--event-log", log, "--output", file, "--json", numbers) == 0
    shown = capsys.readouterr().out
    assert "steps not seen by the fit: median 0.0%, 95th percentile 0.0%." in shown
    assert "steps, of at most 8 decode rows, " in shown
    assert ["decode", "0.2", "275"] in [line.split()[:3] for line in shown.splitlines()]
    assert "do not determine the time of prefill" in shown
    assert f"Use it wherever a profile is named: measured:{file}" in shown
    profile = step_time_profile(f"measured:{file}")
    assert profile.name == "run, recorded"
    assert profile.step_s(4, 100, 2000) == pytest.approx(engine.step_s(4, 100, 2000), rel=0.01)
    found = json.loads(numbers.read_text())
    assert found["profile"]["base_s"] == profile.base_s
    assert found["latency"]["prefill"] is None
    assert found["latency"]["decode"]["delta"] == pytest.approx(engine.base_s, rel=0.01)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [("skill,seconds\nmf,1\n", "line 1 must be a JSON object"), ("", "has no step of an engine")],
)
def test_what_is_no_log_of_a_server_gets_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str,
    complaint: str,
) -> None:  # fmt: skip
    (tmp_path / "x.jsonl").write_text(text)
    assert run(monkeypatch, "--event-log", tmp_path / "x.jsonl") == 1
    assert complaint in error_line(capsys)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("", "give a FILE with executions and --skill-set, or --engine"),
        ("--engine", "--engine needs --output"),
        ("--engine none --output x.yaml", "'none' is not one of 'simulated', 'transformers'"),
        ("--engine simulated --output x.yaml --model x", "for --engine transformers or vllm only"),
        ("--engine --output x.yaml --pace two-boxes", "--pace is for --engine simulated only"),
        ("FILE --skill-set SKILLS --pace two-boxes", "--pace is for --engine only"),
        ("--engine --output x.yaml --skill-set SKILLS", "takes no FILE and no --skill-set"),
        ("FILE --engine --output x.yaml", "takes no FILE and no --skill-set"),
        ("FILE --skill-set SKILLS --threads 2", "--threads is for --engine only"),
        ("FILE --skill-set SKILLS --model x", "--model is for --engine only"),
        ("FILE --skill-set SKILLS --layers 8,8", "--layers is for --engine only"),
        ("--engine --output x.yaml --layers 8,x", "'8,x' is not like 16,16: whole numbers"),
        ("FILE --skill-set SKILLS --dtype float16", "--dtype is for --engine only"),
        ("FILE --event-log FILE", "--event-log fits step times: it takes no FILE"),
        ("--engine --output x.yaml --event-log FILE", "give --engine or --event-log, not both"),
        ("--event-log FILE --model x", "--model is for --engine only"),
        ("--engine --output no/folder/x.yaml", "no/folder is not a folder"),
    ],
)
def test_what_does_not_go_together_gets_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], table: Path,
    words: str, complaint: str,
) -> None:  # fmt: skip
    given = [{"FILE": str(table), "SKILLS": SKILLS}.get(word, word) for word in words.split()]
    assert run(monkeypatch, *given) == 2
    errors = error_line(capsys)
    assert complaint in errors
