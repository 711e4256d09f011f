"""Groups of commands: help in whole sentences, and modules that are imported when they are used."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click


class Group(click.Group):
    """A group of commands, each with the whole first sentence of its help.

    Args:
        places: commands by name, each with its place in `timely_llm.cli`, such as
            "trace.record:record"; a module is imported when its command is used.
    """

    def __init__(
        self, *arguments: Any, places: Mapping[str, str] | None = None, **settings: Any
    ) -> None:
        super().__init__(*arguments, **settings)
        self._places = dict(places or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands."""
        return sorted({*self.commands, *self._places})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command; None: there is none of that name."""
        if cmd_name not in self._places:
            return super().get_command(ctx, cmd_name)
        module, _, function = self._places[cmd_name].partition(":")
        command: click.Command = getattr(import_module(f"timely_llm.cli.{module}"), function)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands."""
        rows = []
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                rows.append((name, first_sentence(command)))
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)


def first_sentence(command: click.Command) -> str:
    """Return the first paragraph of a command's help."""
    text = inspect.cleandoc(command.help or "").partition("\n\n")[0]
    return " ".join(text.split())
