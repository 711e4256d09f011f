"""Writes the table of all commands and their parameters, from which a Tab is answered.

`python -m timely_llm.cli.completion_table`, after a command was changed.
"""

from __future__ import annotations

import json
from typing import Any

import click

from timely_llm.cli.help import first_sentence
from timely_llm.cli.main import cli
from timely_llm.cli.options import Pace, SkillSetName
from timely_llm.completion import TABLE
from timely_llm.engines.paces import MEASURED, PACES


def table(command: click.Command = cli, name: str = "timely-llm") -> dict[str, Any]:
    """Return the parameters and subcommands of a command, for completion."""
    context = click.Context(command, info_name=name)
    params = [_parameter(found) for found in command.params]
    entry: dict[str, Any] = {"name": name, "help": first_sentence(command), "params": params}
    if isinstance(command, click.Group):
        inner = [(word, command.get_command(context, word)) for word in
                 command.list_commands(context)]  # fmt: skip
        entry["commands"] = [table(found, word) for word, found in inner if found is not None]
    return entry


def written() -> str:
    """Return the text of the table's file."""
    return json.dumps(table(), indent=1) + "\n"


def _parameter(found: click.Parameter) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": _kind(found.type)}
    if isinstance(found, click.Option):
        opts, hidden = [*found.opts, *found.secondary_opts], found.hidden
        return entry | {"opts": opts, "flag": bool(found.is_flag), "multiple": found.multiple,
                        "help": found.help or "", "hidden": hidden}  # fmt: skip
    return entry | {"name": found.name, "nargs": found.nargs, "required": found.required}


def _kind(kind: Any) -> str | list[str]:
    """Return the names that there are, or what else is completed."""
    if isinstance(kind, click.Choice):
        return list(map(str, kind.choices))
    if isinstance(kind, Pace):
        return [*PACES, MEASURED, "none"]
    if isinstance(kind, SkillSetName):
        return "skill set"
    if isinstance(kind, click.Path):
        return "file" if kind.file_okay else "directory"
    return ""


if __name__ == "__main__":
    TABLE.write_text(written(), encoding="utf-8")
