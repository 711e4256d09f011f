"""Step times fitted to a recorded run: those of its engine are found again."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import astuple, replace
from itertools import product
from pathlib import Path

import pytest

from test.profiling.recorded_run import record
from timely_llm.core.errors import ConfigurationError, TimelyError
from timely_llm.core.events.schema import StepEvent
from timely_llm.core.step import StageTimes
from timely_llm.engines.paces import step_time_profile
from timely_llm.engines.simulated import PROFILES, Profile
from timely_llm.policies.annealing.latency import V100X2_QWEN25_7B as TABLE_2
from timely_llm.profiling.recorded_steps import PhaseFit, fit_recorded, read_steps
from timely_llm.profiling.step_profile import write_profile

ENGINE = PROFILES["v100x2-qwen2.5-7b"]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run") / "server.jsonl"
    record(path, ENGINE)
    return path


def rewritten(log: Path, change: Callable[[dict[str, object]], None], path: Path) -> Path:
    """Write an event log with other steps."""
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if line["event"] == "step":
            change(line)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def made(profile: Profile, contents: list[tuple[int, int, int]]) -> list[StepEvent]:
    """Return steps of (rows, prompt tokens, context tokens) that take the time of a profile."""
    return [
        StepEvent(0.0, profile.step_s(*content), ("r",) * max(content[0], 1), None, *content)
        for content in contents
    ]


def test_the_step_times_of_the_engine_are_found_again_in_its_event_log(
    log: Path, tmp_path: Path
) -> None:
    fit = fit_recorded(read_steps(log), "again", "test")
    found = fit.profile
    assert fit.median_error < 0.001
    assert fit.used > 4 * fit.tested - 5
    for name in ("base_s", "row_s", "prefill_token_s", "context_token_s", "prefill_s"):
        assert getattr(found, name) == pytest.approx(getattr(ENGINE, name), rel=0.02), name
    decode = fit.phases["decode"]
    assert isinstance(decode, PhaseFit)
    assert (decode.time.alpha, decode.time.beta, decode.time.delta) == pytest.approx(
        (ENGINE.context_token_s, ENGINE.row_s, ENGINE.base_s), rel=0.02
    )
    assert "do not determine the time of prefill" in str(fit.phases["prefill"])
    write_profile(found, tmp_path / "p.yaml")
    assert step_time_profile(f"measured:{tmp_path / 'p.yaml'}") == found


def test_noise_and_disturbed_steps_hardly_move_predicted_times(log: Path) -> None:
    draw, steps = random.Random(0), read_steps(log)
    noisy = [
        replace(step, s=step.s * max(draw.gauss(1.0, 0.05), 0.5) * (5 if place % 40 == 7 else 1))
        for place, step in enumerate(steps)
    ]
    fit = fit_recorded(noisy, "noisy", "test")
    assert 0.02 < fit.median_error < 0.05
    for step in steps:
        content = step.rows, step.prompt_tokens, step.context_tokens
        assert fit.profile.step_s(*content) == pytest.approx(step.s, rel=0.04)


def test_steps_that_no_line_fits_get_a_table_and_a_line_beyond_it() -> None:
    draw, engine = random.Random(0), PROFILES["rtx4060ti-chatglm2-6b"]
    contents = [(draw.randint(1, 12), 0, draw.randint(50, 5000)) for _ in range(400)]
    contents += [(draw.randint(0, 12), draw.randint(20, 500), 0) for _ in range(100)]
    found = fit_recorded(made(engine, contents), "table", "test").profile
    assert len(found.table_s) == 12
    for rows in (1, 2, 4, 8):
        assert found.step_s(rows) == pytest.approx(engine.step_s(rows), rel=0.05)
    assert found.step_s(40) > found.step_s(20) > found.step_s(12)


def test_the_coefficients_of_both_phases_are_found_where_batches_are_unlike() -> None:
    steps = [
        StepEvent(0.0, time.seconds(rows, length), ("r",) * rows, None,
                  0 if prompts else rows, rows * length if prompts else 0,
                  0 if prompts else rows * length)
        for rows, length in product((1, 2, 3, 4, 6, 8, 16), range(100, 2000, 97))
        for prompts, time in ((True, TABLE_2.prefill), (False, TABLE_2.decode))
    ]  # fmt: skip
    random.Random(0).shuffle(steps)
    phases = fit_recorded(steps, "phases", "test").phases
    for phase, wanted in (("prefill", TABLE_2.prefill), ("decode", TABLE_2.decode)):
        fit = phases[phase]
        assert isinstance(fit, PhaseFit)
        assert astuple(fit.time) == pytest.approx(astuple(wanted), rel=1e-3)
        assert fit.p95_error < 1e-3


def test_only_the_last_life_of_a_server_counts(log: Path, tmp_path: Path) -> None:
    lives = tmp_path / "two.jsonl"
    record(lives, PROFILES["millisecond"])
    lives.write_bytes(lives.read_bytes() + log.read_bytes())
    assert read_steps(lives) == read_steps(log)


def test_a_log_of_an_earlier_release_is_refused_and_one_of_both_is_not(
    log: Path, tmp_path: Path
) -> None:
    def strip(line: dict[str, object]) -> None:
        for name in ("rows", "prompt_tokens", "context_tokens"):
            line.pop(name, None)

    old = rewritten(log, strip, tmp_path / "old.jsonl")
    with pytest.raises(ConfigurationError, match="an earlier release wrote them"):
        read_steps(old)
    both = tmp_path / "both.jsonl"
    both.write_text(old.read_text() + "".join(log.read_text().splitlines(keepends=True)[1:]))
    assert read_steps(both) == read_steps(log)


def test_steps_of_stages_and_impossible_times_are_not_fitted(log: Path, tmp_path: Path) -> None:
    times = StageTimes((), (0.1, 0.1), (0.0,), (0.0, 0.0), (0.0, 0.0))
    staged = rewritten(
        log,
        lambda line: line.update(stages={n: list(t) for n, t in times._asdict().items()}),
        tmp_path / "staged.jsonl",
    )
    with pytest.raises(ConfigurationError, match="an engine in stages"):
        read_steps(staged)
    broken = rewritten(log, lambda line: line.update(s=None), tmp_path / "broken.jsonl")
    assert read_steps(broken) == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "has no step of an engine"),
        ('{"event": "opened", "t": 1.0}\n', "has no step of an engine"),
        ("skill,seconds\nmf,1\n", "line 1 must be a JSON object"),
        ('{"event": "step", "t": 1.0, "s": 1.0}\n', "has no 'ids'"),
    ],
)
def test_a_file_without_steps_gets_one_sentence(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "log").write_text(text)
    with pytest.raises(TimelyError, match=complaint):
        read_steps(tmp_path / "log")


PROMPTS = [(0, 20 + n, 0) for n in range(50)]


@pytest.mark.parametrize(
    ("contents", "complaint"),
    [
        ([], "0 steps cannot be fitted: at least 100 are needed"),
        ([(1, 0, 5), (2, 0, 9)] * 20, "40 steps cannot be fitted"),
        (PROMPTS * 3, "nearly all steps have 0 decode rows"),
        ([*PROMPTS, *((4, 0, 100 + n) for n in range(200))], "nearly all steps have 4 decode rows"),
        ([(1 + n % 4, 0, 100 + n) for n in range(200)], "only 0 steps of 160 computed prompts"),
        (
            [*PROMPTS, *((1 + n % 4, 0, 300 * (1 + n % 4)) for n in range(200))],
            "rows, prompt tokens and context tokens of the steps follow from each other",
        ),
    ],
)
def test_steps_that_do_not_determine_step_times_are_refused(
    contents: list[tuple[int, int, int]], complaint: str
) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        fit_recorded(made(ENGINE, contents), "few", "test")


def test_only_what_the_steps_determine_is_fitted() -> None:
    contents = [(1 + n % 7, 0, 100 + 37 * n % 900) for n in range(300)]
    contents += [(n % 5, 64, 0) for n in range(40)]
    found = fit_recorded(made(ENGINE, contents), "alike", "test").profile
    assert found.prefill_s == 0.0
    assert found.long_prefill_token_s is None
    assert 64 * found.prefill_token_s == pytest.approx(ENGINE.prefill_s + 64 * 0.00011, rel=0.01)
