"""The command `timely-llm experiment`."""

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import psutil
import pytest

from test.alive import runs
from test.cli.command import error_line, run_command
from test.experiments.bursts import bursts_file
from timely_llm.experiments.registry import EXPERIMENTS
from timely_llm.experiments.results.document import read_run

run = partial(run_command, "experiment")


def test_tables_are_shown_and_the_run_and_its_report_are_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    trace, file, page = str(bursts_file(tmp_path)), tmp_path / "run.json", tmp_path / "run.html"
    words = ("timelyllm-drone", "--trace", trace, "--policies", "fcfs,deadline", "--load", "1,2",
             "--seeds", "2", "--json", str(file), "--html", str(page))  # fmt: skip
    assert run(monkeypatch, *words) == 0
    captured = capsys.readouterr()
    assert "| policy" in captured.out
    assert "workload small, load 2" in captured.out
    assert captured.err == ""
    written = json.loads(file.read_text())
    assert written["experiment"] == "timelyllm-drone"
    assert written["command"] == f"timely-llm experiment {' '.join(words)}"
    assert written["profile"] == "rtx4090-llama3-8b"
    assert len(written["rows"]) == 2 * 2 * 2
    assert read_run(file).rows[0]["policy"] == "fcfs"
    assert "timelyllm-drone" in page.read_text()


def test_the_list_says_what_each_experiment_asks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "--list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == list(EXPERIMENTS)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("nosuch", "'nosuch' is not one of 'timelyllm-drone', 'timelyllm-trace'"),
        ("", "Missing argument 'NAME'"),
        ("ablation --policies best", "unknown policy 'best': choose one of fcfs,"),
        ("ablation --policies ,", "no policy is named: choose one of fcfs"),
        ("ablation --profile none", "unknown profile 'none': choose one of rtx4090-llama3-8b"),
        ("ablation --seeds 0", "0 is not in the range 1<=x<=1000"),
        ("ablation --load 0", "'0' is not like 1,2,4: whole numbers of 1 to 100"),
        ("ablation --load 1,101", "'1,101' is not like 1,2,4"),
        ("ablation --load ,", "',' is not like 1,2,4"),
        ("ablation --error nan", "nan is not a number"),
        ("ablation --noise 4", "4.0 is not in the range 0<=x<=3"),
        ("ablation --rates 1", "ablation has no option rates, only: canceled, durations"),
        ("slice-rate --load 2", "slice-rate has no option loads, only: bounds"),
        ("optimal --load 2", "optimal has no option loads, only: first_seed, jobs, policies, prof"),
        (
            "optimal --trace .",
            "optimal has no option trace, since it composes requests that are few",
        ),
        ("slice-static --first-seed 1", "has no option first_seed, since nothing in it is random"),
        ("optimal --minutes 2", "optimal has no option minutes, only: first_seed"),
        ("ablation --first-seed -1", "-1 is not in the range"),
        ("ablation --minutes 0.1", "0.1 minutes of wid2 have"),
        ("slice-rate --minutes nan", "nan is not a number"),
        ("slice-rate --ttft 0", "0.0 is not in the range"),
        ("slice-weight --weights 0", "'0' is not like 1,10,100: 0.01 to 1e+06"),
        ("bursts --sizes 0", "'0' is not like 10,20: whole numbers of 1 to 1024"),
        ("slice-rate --rates 1,x", "'1,x' is not like 0.5,1,2: 0 to 1000"),
        ("slice-rate --rates nan", "'nan' is not like 0.5,1,2: 0 to 1000"),
        ("slice-rate --rates ,", "',' is not like 0.5,1,2"),
        ("slice-rate --rates 0", "the rate must be above 0: at 0 no request comes"),
        ("slice-ratio --ratios 1.5", "'1.5' is not like 0.1,0.7: 0 to 1"),
        ("slice-rate --bounds 0", "'0' is not like 1,4: 0.01 to 100"),
        ("slice-rate --bounds 50", "a bound of 50 times 400 tokens is more than 4096"),
        ("slice-rate --lengths 8-25", "lengths must be like 8-25:40-160"),
        ("slice-rate --lengths ,", "no lengths are named: they are like 8-25:40-160"),
        ("slice-rate --profile none", "unknown profile 'none': choose one of rtx4090-llama3-8b"),
        ("ablation --trace /no/such.jsonl", "'/no/such.jsonl' does not exist"),
        ("ablation --json /no/such/run.json", "/no/such is not a folder"),
        ("ablation --html /no/such/run.html", "/no/such is not a folder"),
    ],
)
def test_a_mistake_is_answered_in_one_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: str,
    complaint: str,
) -> None:
    assert run(monkeypatch, *words.split()) in (1, 2)
    errors = error_line(capsys)
    assert complaint in errors


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_whatever_ends_it_no_process_is_left(signum: signal.Signals) -> None:
    command = [sys.executable, "-m", "timely_llm.cli.main", "experiment", "ablation"]
    child = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
    )
    try:
        workers = _workers(child.pid)
        os.killpg(child.pid, signum) if signum == signal.SIGINT else child.send_signal(signum)
        _, errors = child.communicate(timeout=20)
        psutil.wait_procs(workers, timeout=20)
        assert not [worker for worker in workers if runs(worker.pid)]
        if signum == signal.SIGINT:
            assert child.returncode == 130
            last = errors.decode().splitlines()[-1]
            assert last == "timely-llm: ended by SIGINT; nothing is left running"
            assert b"Traceback" not in errors
    finally:
        child.kill()
        child.wait()


def _workers(pid: int) -> list[psutil.Process]:
    """Return the processes that work for one, as soon as there are two."""
    deadline_s = time.monotonic() + 20
    while time.monotonic() < deadline_s:
        found = [
            process
            for process in psutil.Process(pid).children(recursive=True)
            if "spawn_main" in " ".join(process.cmdline())
        ]
        if len(found) == 2:
            return found
        time.sleep(0.02)
    raise AssertionError("it did not start two processes")
