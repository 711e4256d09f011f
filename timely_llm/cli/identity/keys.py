"""`timely-llm keys`: keys of agents, by which a server knows them."""

from __future__ import annotations

from pathlib import Path

import click

from timely_llm.cli.help import Group
from timely_llm.identity.keys import new_key


@click.group(cls=Group)
def keys() -> None:
    """Keys of agents: by them, a server knows which agent sent a message."""


@keys.command()
@click.argument("agent")
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path), required=True,
              help="Folder of keys; made if there is none.")  # fmt: skip
def new(agent: str, folder: Path) -> None:
    """Make a key for AGENT, in a file that only its owner can read.

    The server reads it by its parameter agent_keys, and the agent's client by key_file. A file that
    exists is not replaced.
    """
    path = new_key(agent, folder)
    click.echo(f"Wrote {path}: copy it to the machine of {agent}, and keep it secret")
