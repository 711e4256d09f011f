"""The workflow of continuous integration runs what a developer runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]


def workflow() -> dict[Any, Any]:
    loaded: dict[Any, Any] = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    return loaded


def commands(job: str) -> list[str]:
    return [step["run"] for step in workflow()["jobs"][job]["steps"] if "run" in step]


def test_every_check_runs_on_each_change() -> None:
    made = workflow()
    events = made[True]  # YAML reads the key `on` as true
    assert {"push", "pull_request"} <= events.keys()
    assert made["jobs"]["checks"]["if"] == "github.event_name != 'schedule'"
    assert made["jobs"]["fast"]["if"] == made["jobs"]["checks"]["if"]
    assert commands("fast") == ["make lint", "make test-fast", "make test-simulate"]
    assert commands("checks") == [".ci/run"]
    assert (ROOT / ".ci/run").stat().st_mode & 0o111


def test_pip_refuses_files_of_other_hashes_in_each_job() -> None:
    made = workflow()
    assert made["env"] == {"HASHES": "1"}
    steps = [step for job in made["jobs"].values() for step in (job, *job["steps"])]
    assert not [step for step in steps if "HASHES" in step.get("env", {})]


def test_what_is_left_out_or_run_in_short_runs_every_week() -> None:
    weekly = workflow()["jobs"]["weekly"]
    assert "schedule" in weekly["if"]
    assert commands("weekly") == ["make ${{ matrix.check }}"]
    run = set(weekly["strategy"]["matrix"]["check"])
    text = (ROOT / ".ci/run").read_text()
    short = {words.removesuffix(" SHORT=1") for words in re.findall(r"make (.* SHORT=1)", text)}
    assert short <= run
    targets = re.findall(r"^(test[\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {one for one in targets if f"make {one}" not in text} - {"test-fast"} <= run


def test_vllm_is_compared_every_week() -> None:
    made = workflow()
    ((entry),) = made[True]["schedule"]
    minute, hour, day, month, weekday = entry["cron"].split()
    assert (day, month) == ("*", "*")
    assert all(field.isdecimal() for field in (minute, hour, weekday))
    assert commands("vllm") == ["make check-vllm"]
    assert "schedule" in made["jobs"]["vllm"]["if"]
    assert re.search(r"^check-vllm:.*\n\tpython -m tools\.vllm_coupling",
                     (ROOT / "Makefile").read_text(), re.MULTILINE)  # fmt: skip


def test_jobs_have_a_known_python_and_no_rights_to_write() -> None:
    made = workflow()
    assert made["permissions"] == {"contents": "read"}
    for job in made["jobs"].values():
        (python,) = (s for s in job["steps"] if "setup-python" in s.get("uses", ""))
        assert python["with"]["python-version"] == "3.11"
        assert job["timeout-minutes"] <= 90


def test_jazzy_runs_the_tests_and_kilted_what_depends_on_ros() -> None:
    stages = re.findall(r'^stage "[^"]+" (.+)$', (ROOT / ".ci/run").read_text(), re.MULTILINE)
    assert stages[0] == "make install"
    assert {"make lint", "make test", "make test-colcon", "make test-ray"} <= set(stages)
    assert {"make test-faults SHORT=1", "make test-vllm SHORT=1"} <= set(stages)
    kilted = "ROS_WHEELS=kilted"
    assert stages[-2:] == [f"make install {kilted}", f"make test-ros {kilted} SHORT=1"]


def test_every_marker_has_a_target_and_every_target_is_listed() -> None:
    makefile = (ROOT / "Makefile").read_text()
    listed = set(re.split(r"[\s|#]+", makefile.partition("# VENV,")[0].partition("make ")[2]))
    for target in re.findall(r"^(test[\w-]*|demo|lint|clean|check-vllm):", makefile, re.MULTILINE):
        assert target in listed
    for marker in ("colcon", "extended", "faults", "long"):
        assert re.search(rf"^test-{marker}:.*\n\t.*-m \"?{marker}", makefile, re.MULTILINE)
