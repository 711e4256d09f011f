"""A signal ends a process in one sentence, whatever it is importing."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from timely_llm.entry import NODES

SIGNAL_DURING_IMPORT = """
import os, signal, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.{signal})

sys.meta_path.insert(0, Finder())
from timely_llm import entry
sys.argv = {argv!r}
{call}
"""


def run(module: str, argv: list[str], call: str, name: str = "SIGINT") -> tuple[int, str]:
    """Run a program that is sent a signal when it imports a module; return status and errors."""
    code = SIGNAL_DURING_IMPORT.format(module=module, argv=argv, call=call, signal=name)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("module", "name"),
    [("numpy", "SIGINT"), ("rclpy", "SIGINT"), ("timely_llm.ros.process", "SIGTERM")],
)
def test_a_node_that_is_still_importing_says_that_it_ends(module: str, name: str) -> None:
    status, errors = run(module, ["x"], "sys.exit(entry.node('plan_server'))", name)
    assert (status, errors) == (0, f"plan_server: ended by {name}; nothing is left running\n")


def test_a_node_that_is_run_as_a_module_says_that_it_ends_while_it_is_importing() -> None:
    for name in NODES:
        begun = f"import runpy; runpy.run_module('timely_llm.ros.{name}', run_name='__main__')"
        status, errors = run("rclpy", ["x"], begun)
        assert (status, errors) == (0, f"{name}: ended by SIGINT; nothing is left running\n")


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("click", ["--help"]),
        ("timely_llm.cli.ask", ["ask", "x"]),
        ("rclpy.action", ["ask", "x"]),
        ("timely_llm.experiments.registry", ["experiment", "timelyllm-drone"]),
    ],
)
def test_a_command_that_is_still_importing_says_that_it_ends(module: str, words: list[str]) -> None:
    status, errors = run(module, ["timely-llm", *words], "entry.main()")
    # Where the command has begun, a new line ends that of the terminal's ^C.
    assert (status, errors.lstrip("\n")) == (
        130,
        "timely-llm: ended by SIGINT; nothing is left running\n",
    )


def test_a_signal_that_was_held_back_by_the_command_before_reaches_the_node() -> None:
    code = """
import os, signal, sys
from timely_llm.processes import signals
signals.hold()
os.kill(os.getpid(), signal.SIGINT)
os.execv(sys.executable, [sys.executable, "-m", "timely_llm.entry", "talkers"])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0
    assert done.stderr == "talkers: ended by SIGINT; nothing is left running\n"


def test_a_node_that_does_not_exist_is_answered_with_those_that_do() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "timely_llm.entry", "fly"], capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert re.fullmatch(rf"timely_llm.entry: name a node, one of {', '.join(NODES)}\n", done.stderr)
