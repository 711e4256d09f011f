"""What commands share: kinds of options, and how a node replaces the command's process."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click
from click.shell_completion import CompletionItem

from timely_llm.completion import shipped_skill_sets
from timely_llm.core.errors import EngineError, TimelyError
from timely_llm.core.object_reference import is_reference
from timely_llm.core.output_file import JSON, Kind, OutputFileError, check
from timely_llm.core.request import RequestMode
from timely_llm.engines.paces import MEASURED, PACES, pace_profile
from timely_llm.policies.registry import POLICIES
from timely_llm.processes import signals
from timely_llm.processes.nodes import in_namespace

NO_PACE = "none"
PACE_NAMES = f"Profiles: {', '.join(PACES)}, {MEASURED}FILE or {NO_PACE}."
POLICY_NAMES = f"Policies: {', '.join(POLICIES)}, or your own as my_module:MyPolicy."
MAX_DOMAIN = 232
ROBOTS = click.IntRange(1, 512)
DURATION = click.FloatRange(0.1, 86_400)
SEED = click.IntRange(0, 2**31 - 1)
FILE = click.Path(dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)
EXISTING_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


class OutputFile(click.Path):
    """A file that a command writes at its end; one that may not be written is refused at once.

    Args:
        kind: of the file; a file of another kind is not replaced.
    """

    def __init__(self, kind: Kind = JSON) -> None:
        super().__init__(dir_okay=False, path_type=Path)
        self._kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path if it may be written."""
        file = Path(str(super().convert(value, param, ctx)))
        check_output(file, param.opts[-1] if param is not None else "", self._kind)
        return file


def check_output(file: Path, option: str, kind: Kind) -> None:
    """Find out whether a file may be written, before the work that it is for.

    Raises:
        click.BadParameter: its folder does not exist, or it is a file of another kind.
    """
    try:
        check(file, kind)
    except OutputFileError as error:
        raise click.BadParameter(str(error), param_hint=option) from error


class Pace(click.ParamType):  # type: ignore[type-arg] # older clicks have none
    """The name of a step-time profile, measured:FILE, or none."""

    name = "profile"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the value if there is such a profile."""
        if value != NO_PACE:
            try:
                pace_profile(value)
            except EngineError as error:
                self.fail(str(error), param, ctx)
        return value

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the profiles that begin so."""
        return [CompletionItem(name) for name in (*PACES, MEASURED, NO_PACE)
                if name.startswith(incomplete)]  # fmt: skip

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        """Return what a user may write."""
        return "PROFILE"


class Layers(click.ParamType):  # type: ignore[type-arg] # older clicks have none
    """Numbers of layers of stages, such as 16,16."""

    name = "layers"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Return the numbers."""
        words = [word.strip() for word in str(value).split(",")]
        if not all(w.isascii() and w.isdecimal() and 1 <= int(w[:5]) <= 1000 for w in words):
            self.fail(f"{value!r} is not like 16,16: whole numbers of 1 to 1000", param, ctx)
        return tuple(map(int, words))


class OwnOr(click.Choice):  # type: ignore[type-arg] # older clicks have none
    """One of some names, or something of a user's own, such as my_module:MyPolicy."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value if it is one of the names, or has the form of a reference."""
        return value if is_reference(str(value)) else super().convert(value, param, ctx)


class Option(click.Option):
    """An option that is also known by the names that it had before.

    Args:
        formerly: its names until the release before; they are not in the help.
    """

    def __init__(self, *arguments: Any, formerly: Sequence[str] = (), **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.formerly = list(formerly)

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Let the parser take all names."""
        shown = self.opts
        self.opts = [*shown, *self.formerly]
        try:
            super().add_to_parser(parser, ctx)
        finally:
            self.opts = shown


Command = TypeVar("Command", bound=Callable[..., Any])
_SERVER = click.option("--server", default="plan_server", help="Name of the plan server's node.")
NAMESPACE = click.option(
    "--namespace", default="", show_default=False,
    help="ROS namespace of the plan server; none if not given.",
)  # fmt: skip
DOMAIN = click.option(
    "--domain", type=click.IntRange(0, MAX_DOMAIN),
    help="ROS domain; that of ROS_DOMAIN_ID if not given.",
)  # fmt: skip
MODEL_HELP = "Folder or Hugging Face id; the embedded model if not given."
MODEL = click.option("--model", default="", show_default=False, help=MODEL_HELP)
WAIT = click.option(
    "--wait", "wait_s", cls=Option, formerly=["--server-timeout"],
    type=click.FloatRange(0.1, 86_400), default=10.0,
    help="How many seconds to wait for the plan server.",
)  # fmt: skip
TEMPERATURE = click.option(
    "--temperature", type=click.FloatRange(0.0, 2.0), default=0.0,
    help="Sampling temperature; with 0 the model always takes the most likely token.",
)  # fmt: skip
DRAWN = click.option(
    "--seed", type=SEED, default=0, help="Seed of sampling; without effect at temperature 0."
)
MODE = click.option(
    "--mode", type=click.Choice([mode.name.lower() for mode in RequestMode]), default="direct",
    help="The author. direct: the server alone. progressive: a cloud writes a short sketch, and the"
    " server expands it. auto: the server chooses.",
)  # fmt: skip
KEY = click.option(
    "--key-file", type=EXISTING_FILE,
    help="File with the agent's key, for a server that checks keys.",
)  # fmt: skip
UNSIGNED = click.option(
    "--accept-unsigned", is_flag=True,
    help="With --key-file, believe a server that checks no keys, or a dispatcher: any node can"
    " send in its name.",
)  # fmt: skip
PARAMS_FILE = click.option(
    "--params-file", type=EXISTING_FILE,
    help="File with ROS parameters of the node; options of this command override it.",
)  # fmt: skip
LOG = click.option("--log", type=FILE, help="Write what happens to this file as JSON lines.")
ROS_ARGUMENTS = click.argument("ros_arguments", nargs=-1, type=click.UNPROCESSED)


def at_server(command: Command) -> Command:
    """Add the options that name a running plan server."""
    for option in (DOMAIN, NAMESPACE, _SERVER):
        command = option(command)
    return command


class SkillSetName(click.ParamType):  # type: ignore[type-arg] # older clicks have none
    """The name of a skill set that a server has; those that are shipped can be completed."""

    name = "name"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the shipped ones that begin so."""
        names = shipped_skill_sets()
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


class NoRosError(TimelyError):
    """ROS 2's Python client cannot be imported."""


def need_ros() -> None:
    """Check that ROS can be imported.

    Raises:
        NoRosError: it cannot.
    """
    if importlib.util.find_spec("rclpy") is None:
        raise NoRosError(
            "ROS 2 is missing, rclpy cannot be imported: install timely_llm with pip, "
            "or source a ROS 2 setup file first"
        )


def enter_domain(domain: int | None) -> None:
    """Set the ROS domain of this process and its children; None: leave it."""
    if domain is not None:
        os.environ["ROS_DOMAIN_ID"] = str(domain)


def as_given(parameters: dict[str, Any], params_file: Path | None) -> dict[str, Any]:
    """Return parameters of a node; beside a file of parameters, only those that the user gave.

    Args:
        parameters: by name, that of an option, or with `_s` after it.
        params_file: the file.
    """
    if params_file is None:
        return parameters
    source = click.get_current_context().get_parameter_source
    default = click.core.ParameterSource.DEFAULT
    return {
        name: None if source(name.removesuffix("_s")) is default else value
        for name, value in parameters.items()
    }


def become(
    command: list[str], namespace: str = "", domain: int | None = None,
    params_file: Path | None = None, more: Sequence[str] = (),
) -> NoReturn:  # fmt: skip
    """Replace this process by a node: signals and exit status are then the node's own.

    Args:
        command: of the node, with its parameters as ROS arguments.
        namespace: ROS namespace of the node; empty: none.
        domain: ROS domain; None: that of the environment.
        params_file: with parameters for what is not given in the command.
        more: ROS arguments of the user's own.
    """
    need_ros()
    enter_domain(domain)
    if params_file is not None:
        place = command.index("--ros-args") + 1  # what comes later stands above it
        command[place:place] = ["--params-file", str(params_file.resolve())]
    command = [*command, *in_namespace(namespace), *more]
    sys.stdout.flush()
    signals.hold()  # until the node can say that it ends
    try:
        os.execv(command[0], command)
    finally:
        signals.release()
