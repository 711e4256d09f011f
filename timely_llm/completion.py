"""How a command line goes on, fast enough for a Tab: from a table, without the commands' modules.

The table is written by `python -m timely_llm.cli.completion_table`; click does the rest.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

TABLE = Path(__file__).with_name("completion.json")


class Names(click.ParamType):  # type: ignore[type-arg] # older clicks have none
    """One of some names; others are completed as well as they can be."""

    name = "name"

    def __init__(self, names: Callable[[], list[str]]) -> None:
        self._names = names

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the names that begin so."""
        return [CompletionItem(name) for name in self._names() if name.startswith(incomplete)]


def main() -> None:
    """Answer the shell that set the variable, or print its script; does not return."""
    command(json.loads(TABLE.read_text(encoding="utf-8"))).main(prog_name="timely-llm")


def command(entry: dict[str, Any]) -> click.Command:
    """Return a command that has the parameters of one in the table, and does nothing."""
    params = [_parameter(found) for found in entry["params"]]
    name, words = entry["name"], entry["help"]
    settings = {"help_option_names": ["-h", "--help"]}
    if "commands" not in entry:
        return click.Command(name, params=params, help=words, context_settings=settings)
    inner = {found["name"]: command(found) for found in entry["commands"]}
    return _Group(name, inner, params=params, help=words, context_settings=settings)


class _Group(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


def _parameter(found: dict[str, Any]) -> click.Parameter:
    kind = _kind(found["type"])
    if "opts" not in found:
        return click.Argument(
            [found["name"]], type=kind, nargs=found["nargs"], required=found["required"]
        )
    return click.Option(
        found["opts"], type=None if found["flag"] else kind, is_flag=found["flag"],
        multiple=found["multiple"], help=found["help"], hidden=found["hidden"],
    )  # fmt: skip


def _kind(found: str | list[str]) -> click.ParamType:  # type: ignore[type-arg] # as above
    if isinstance(found, list):
        return Names(lambda: found)
    if found == "skill set":
        return Names(shipped_skill_sets)
    if found == "directory":
        return click.Path(file_okay=False)
    return click.Path() if found == "file" else click.STRING


def shipped_skill_sets() -> list[str]:
    """Return the names of the skill sets that come with the package."""
    from timely_llm.resources import resource

    return sorted(path.stem for path in resource("config/skill_sets").glob("*.yaml"))
