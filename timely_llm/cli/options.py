"""What several commands share: kinds of options, and nodes that take the command's place."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import NoReturn

import click

from timely_llm.core.errors import TimelyError

NO_PACE = "none"
ROBOTS = click.IntRange(1, 512)
DURATION = click.FloatRange(0.1, 86_400)
SEED = click.IntRange(0, 2**31 - 1)
FILE = click.Path(dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)
EXISTING_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


class NoRosError(TimelyError):
    """ROS 2's Python client cannot be imported."""


def need_ros() -> None:
    """Find out whether ROS is there.

    Raises:
        NoRosError: it is not.
    """
    if importlib.util.find_spec("rclpy") is None:
        raise NoRosError(
            "ROS 2 is missing, rclpy cannot be imported: install timely_llm with pip, "
            "or source a ROS 2 setup file first"
        )


def become(command: list[str]) -> NoReturn:
    """Replace this process by a node: signals and exit status are then the node's own."""
    need_ros()
    sys.stdout.flush()
    os.execv(command[0], command)


def check_output(file: Path | None, option: str) -> None:
    """Find out whether a file can be written, before the work that it is for.

    Raises:
        click.BadParameter: its folder does not exist.
    """
    if file is not None and not file.absolute().parent.is_dir():
        raise click.BadParameter(f"{file.parent} is not a folder", param_hint=option)
