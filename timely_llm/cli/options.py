"""What several commands share: kinds of options, and nodes that take the command's place."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import NoReturn

import click

from timely_llm.core.errors import EngineError, TimelyError
from timely_llm.core.output_file import JSON, Kind, OutputFileError, check
from timely_llm.engines.profiles import MEASURED, PROFILES, step_time_profile

NO_PACE = "none"
ROBOTS = click.IntRange(1, 512)
DURATION = click.FloatRange(0.1, 86_400)
SEED = click.IntRange(0, 2**31 - 1)
FILE = click.Path(dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)
EXISTING_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


class Pace(click.ParamType):  # type: ignore[type-arg] # older clicks have none
    """The name of a step-time profile, measured:FILE, or none."""

    name = "profile"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the value if there is such a profile."""
        if value != NO_PACE:
            try:
                step_time_profile(value)
            except EngineError as error:
                self.fail(str(error), param, ctx)
        return value

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        """Return what a user may write."""
        return f"[{'|'.join(PROFILES)}|{MEASURED}FILE|{NO_PACE}]"


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


def check_output(file: Path | None, option: str, kind: Kind = JSON) -> None:
    """Find out whether a file may be written, before the work that it is for.

    Raises:
        click.BadParameter: its folder does not exist, or it is a file of another kind.
    """
    if file is not None:
        try:
            check(file, kind)
        except OutputFileError as error:
            raise click.BadParameter(str(error), param_hint=option) from error
