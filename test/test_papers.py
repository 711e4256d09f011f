"""What docs/papers.md names is in the code: objects, files, commands, policies and profiles."""

import importlib
import re
from typing import Any

import click
import pytest

from timely_llm.cli.main import COMMANDS
from timely_llm.dispatch.assign.registry import DISPATCHERS, make_dispatcher
from timely_llm.engines.simulated import PROFILES
from timely_llm.experiments.policy_spec import parse
from timely_llm.experiments.registry import EXPERIMENTS
from timely_llm.policies.registry import POLICIES
from timely_llm.resources import resource

ROOT = resource("package.xml").parent
PAGE = (ROOT / "docs/papers.md").read_text()
CODES = sorted({*re.findall(r"`([^`\n]+)`", PAGE)})
FAITHFUL = {"exact", "extended", "differs", "partly", "not reproduced", "missing", ""}


def rows() -> list[list[str]]:
    """Return the cells of each element: name, place in the code, how faithful, difference."""
    lines = re.findall(r"^\| (?!element \|)(.+)\|$", PAGE, re.M)
    return [[cell.strip() for cell in line.split("|")] for line in lines]


def named(code: str) -> object:
    """Return what a name of the page means; None if it means nothing."""
    if code == "timely_llm/":
        return ROOT / code
    if code.startswith("timely-llm "):
        return _command(code.split()[1:])
    if code in PROFILES:
        return PROFILES[code]
    if code.partition(":")[0] in POLICIES:
        return parse(code).make()
    if code.partition(":")[0] in DISPATCHERS:
        return make_dispatcher(code)
    if "/" in code:
        return ROOT / code if (ROOT / code).is_file() else None
    return _object(code)


def _object(path: str) -> object:
    """Return the object of a dotted path in the package: a module, and names in it."""
    found: Any = importlib.import_module("timely_llm")
    for name in path.split("."):
        if hasattr(found, name):
            found = getattr(found, name)
            continue
        try:
            found = importlib.import_module(f"{getattr(found, '__name__', '')}.{name}")
        except ModuleNotFoundError:
            return None
    return found


def _command(words: list[str]) -> object:
    """Return the command of a line, if its experiment and its options exist."""
    name = words.pop(0)
    if name not in COMMANDS:
        return None
    command: click.Command | None
    command = getattr(importlib.import_module(f"timely_llm.cli.{COMMANDS[name]}"), name)
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        command = command.get_command(click.Context(command), words.pop(0))
    if command is None or (name == "experiment" and words.pop(0) not in EXPERIMENTS):
        return None
    options = {option for param in command.params for option in param.opts}
    return command if {word for word in words if word.startswith("-")} <= options else None


@pytest.mark.parametrize("code", CODES)
def test_what_the_page_of_the_papers_names_is_in_the_code(code: str) -> None:
    assert named(code) is not None, f"docs/papers.md names {code}, which is gone"


@pytest.mark.parametrize(
    "gone",
    [
        *("policies.slice.gone", "policies.gone.Slice", "core.slo.Slo.gone", "test/gone.py"),
        *("timely-llm gone", "timely-llm experiment gone", "timely-llm profile --gone"),
        "timely-llm benchmark gone",
    ],
)
def test_a_name_that_is_gone_is_found(gone: str) -> None:
    assert named(gone) is None


def test_each_element_has_a_line_that_says_how_faithful_it_is() -> None:
    assert len(rows()) > 50
    for element, place, faithful, difference in rows():
        assert faithful in FAITHFUL, element
        assert bool(place) == bool(faithful), f"{element} has a place or is not in the code"
        assert difference or faithful == "exact", f"{element}: what differs?"


def test_each_experiment_of_the_three_papers_has_a_line() -> None:
    places = " ".join(place for _, place, *_ in rows())
    of_papers = {
        name for name in EXPERIMENTS if name.startswith(("timelyllm-", "slice-", "annealing-"))
    }
    assert {name for name in of_papers if name not in places} == set()
