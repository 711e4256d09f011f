"""What the command line of the tree at hand has: JSON of all commands, and of experiments.

`commands` has click's own description of each command by its words, with the help at 80 columns.
`experiments` has the options that each experiment understands.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import click
from click.testing import CliRunner

from timely_llm.cli.main import cli

WIDTH = 80
NO_PROFILE = "no-such-profile"
ALL = {
    "--policies": "no-such-policy", "--load": "1", "--rates": "1", "--requests": "1",
    "--tokens": "2", "--repeats": "1",
}  # fmt: skip
"""Options of which an experiment refuses one, and says which it has."""


def text(value: object) -> str:
    """Return what is no JSON as text, without an address in memory."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def walk(command: click.Command = cli, words: str = "") -> Iterator[tuple[str, click.Command]]:
    """Yield all commands by their words."""
    yield words, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from walk(inner, f"{words} {name}".strip())


def described(words: str, command: click.Command) -> dict[str, Any]:
    """Return what click knows of a command."""
    context = click.Context(command)
    info = command.to_info_dict(context)
    info.pop("commands", None)
    for one, parameter in zip(info["params"], command.get_params(context), strict=True):
        one["formerly"] = list(getattr(parameter, "formerly", ()))
        one["metavar"] = parameter.metavar
        if callable(one.get("default")):
            one["default"] = parameter.get_default(context)
    shown = CliRunner().invoke(cli, [*words.split(), "--help"], terminal_width=WIDTH)
    return {**info, "shown": shown.output}


def understood(name: str) -> list[str] | None:
    """Return the options that an experiment understands; None: it takes no profile."""
    options = {"--profile": NO_PROFILE}
    while True:
        words = [word for pair in options.items() for word in pair]
        done = CliRunner().invoke(cli, ["experiment", name, *words])
        said = f"{done.exception} {done.output}"
        if found := re.search(r"has no option (\w+), only: ([\w, ]+)", said):
            names = [one.strip() for one in found[2].split(",")]
            return names if "profile" in names else None
        # All options so far are understood: one more, until one is not.
        left = [option for option in ALL if option not in options]
        if not left:
            raise SystemExit(f"experiment {name} refuses none of {', '.join(ALL)}: {said[:200]}")
        options[left[0]] = ALL[left[0]]


def experiments() -> dict[str, list[str]]:
    """Return the options of each experiment in virtual time."""
    # The registry's names; those that take no profile run in real time.
    command = cli.get_command(click.Context(cli), "experiment")
    assert command is not None
    (names,) = [
        one.type.choices
        for one in command.params
        if isinstance(one, click.Argument) and isinstance(one.type, click.Choice)
    ]
    found = {name: understood(name) for name in names}
    return {name: options for name, options in found.items() if options is not None}


if __name__ == "__main__":
    commands = {words: described(words, command) for words, command in walk()}
    print(json.dumps({"commands": commands, "experiments": experiments()}, default=text))
