"""The command `timely-llm`."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import click
from rich.console import Console

from timely_llm import __version__
from timely_llm.core.errors import TimelyError
from timely_llm.demo.history import History
from timely_llm.demo.live_view import LiveView
from timely_llm.demo.processes import Interrupted
from timely_llm.demo.progress import ProgressLines
from timely_llm.demo.report import as_json, print_report, save_pictures
from timely_llm.demo.run import run
from timely_llm.demo.settings import FLEET, SERVER, Settings, random_domain, ros_command
from timely_llm.engines.profiles import DEFAULT_PROFILE, PROFILES
from timely_llm.engines.registry import ENGINES
from timely_llm.policies.registry import POLICIES

NO_PACE = "none"
ROBOTS = click.IntRange(1, 512)
DURATION = click.FloatRange(0.1, 86_400)
RATE = click.FloatRange(0.001, 1000.0)
LEAD = click.FloatRange(-1.0, 3600.0)
SEED = click.IntRange(0, 2**31 - 1)
FOLDER = click.Path(file_okay=False, path_type=Path)
FILE = click.Path(dir_okay=False, path_type=Path)
SKILL_SET = click.Path(exists=True, dir_okay=False, path_type=Path)


class NoRosError(TimelyError):
    """ROS 2's Python client cannot be imported."""


class Commands(click.Group):
    """A group whose error for an unknown command names those that exist."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that `args` begin with."""
        if args[0] not in self.commands and not args[0].startswith("-"):
            ctx.fail(f"unknown command {args[0]!r}: choose one of {', '.join(self.commands)}")
        return super().resolve_command(ctx, args)


@click.group(
    cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "show_default": True}
)
@click.version_option(__version__, prog_name="timely-llm")
def cli() -> None:
    """Serve language-model plans to robots in time."""


@cli.command()
@click.option("--robots", type=ROBOTS, default=8, help="Simulated robots.")
@click.option("--duration", type=DURATION, default=60.0, help="Seconds in which robots ask.")
@click.option("--bursts", type=RATE, default=0.5, help="Mean bursts of tasks a second.")
@click.option("--seed", type=SEED, default=0, help="Seed of everything random in the fleet.")
@click.option(
    "--policy",
    "policies",
    type=click.Choice(list(POLICIES)),
    multiple=True,
    default=("timely",),
    help="Give several to compare them, one after another.",
)
@click.option(
    "--model",
    default="",
    show_default=False,
    help="Folder or Hugging Face id; the embedded model if not given.",
)
@click.option(
    "--engine", type=click.Choice(ENGINES), default="transformers", help="What runs the model."
)
@click.option(
    "--pace",
    type=click.Choice([*PROFILES, NO_PACE]),
    default=DEFAULT_PROFILE,
    help="Let every step take as long as on this hardware.",
)
@click.option(
    "--lead",
    "lead_s",
    type=LEAD,
    default=0.5,
    help="Resume a suspended plan so many seconds before its robot will be idle; negative: as soon"
    " as there is room. Policy timely.",
)
@click.option("--output", type=FOLDER, default=Path("demo"), help="Folder for logs and pictures.")
@click.option("--json", "json_file", type=FILE, help="Write the numbers to this file.")
@click.option("--plain", "--no-view", is_flag=True, help="Lines of text instead of the live view.")
@click.option(
    "--domain", type=click.IntRange(0, 232), help="ROS_DOMAIN_ID; a random one if not given."
)
def demo(
    robots: int, duration: float, bursts: float, seed: int, policies: tuple[str, ...], model: str,
    engine: str, pace: str, lead_s: float, output: Path, json_file: Path | None, plain: bool,
    domain: int | None,
) -> None:  # fmt: skip
    """Run a plan server and a fleet of robots, and show what each robot gets when."""
    _need_ros()
    if json_file is not None and not json_file.absolute().parent.is_dir():
        raise click.BadParameter(f"{json_file.parent} is not a folder", param_hint="--json")
    settings = Settings(
        robots=robots,
        duration_s=duration,
        bursts_per_s=bursts,
        seed=seed,
        engine=engine,
        model=model,
        pace=_pace(pace, engine),
        lead_s=lead_s,
        output=output,
        domain=random_domain() if domain is None else domain,
    )
    show(settings, tuple(dict.fromkeys(policies)), json_file, plain)


def show(
    settings: Settings, policies: tuple[str, ...], json_file: Path | None, plain: bool
) -> None:
    """Run the demo with each policy, then print and write what came of it."""
    console = Console()
    view = LiveView if console.is_terminal and not plain else ProgressLines
    runs: dict[str, History] = {}
    for policy in policies:
        runs[policy] = run(settings, policy, view(settings, policy, console))
    files = save_pictures(settings, runs)
    if json_file is not None:
        json_file.write_text(as_json(settings, runs), encoding="utf-8")
        files.append(json_file)
    print_report(console, settings, runs, files)


@cli.command()
@click.option("--engine", type=click.Choice(ENGINES), help="What runs the model.")
@click.option("--model", help="Folder or Hugging Face id; the embedded model if not given.")
@click.option("--policy", type=click.Choice(list(POLICIES)), help="Decides each step.")
@click.option(
    "--pace",
    type=click.Choice([*PROFILES, NO_PACE]),
    help="Let every step take as long as on this hardware.",
)
@click.option(
    "--skill-set",
    "skill_sets",
    type=SKILL_SET,
    multiple=True,
    help="Skill set to register; may be given several times.",
)
@click.argument("ros_arguments", nargs=-1, type=click.UNPROCESSED)
def serve(
    engine: str | None, model: str | None, policy: str | None, pace: str | None,
    skill_sets: tuple[Path, ...], ros_arguments: tuple[str, ...],
) -> None:  # fmt: skip
    """Run the plan server until Ctrl-C. After `--`: ROS arguments, such as `-r __ns:=/lab`."""
    paths = [str(path.resolve()) for path in skill_sets]
    parameters = {
        "engine": engine,
        "model": model,
        "policy": policy,
        "pace": pace,
        "skill_sets": paths or None,
    }
    _become([*ros_command(SERVER, parameters), *ros_arguments])


@cli.command()
@click.option("--robots", type=ROBOTS, default=8, help="Simulated robots.")
@click.option("--duration", type=DURATION, default=60.0, help="Seconds in which robots ask.")
@click.option("--seed", type=SEED, default=0, help="Seed of everything random.")
@click.option("--server", default="plan_server", help="Name of the plan server's node.")
@click.option("--log", type=FILE, help="Write what happens to this file as JSON lines.")
@click.argument("ros_arguments", nargs=-1, type=click.UNPROCESSED)
def fleet(
    robots: int, duration: float, seed: int, server: str, log: Path | None,
    ros_arguments: tuple[str, ...],
) -> None:  # fmt: skip
    """Run simulated robots against a plan server. After `--`: ROS arguments."""
    parameters = {
        "robots": robots,
        "duration_s": duration,
        "seed": seed,
        "server": server,
        "log": None if log is None else str(log.resolve()),
    }
    _become([*ros_command(FLEET, parameters), *ros_arguments])


def _pace(pace: str, engine: str) -> str:
    """Return the profile in force, empty for none; the simulated engine always has one."""
    if pace != NO_PACE:
        return pace
    return DEFAULT_PROFILE if engine == "simulated" else ""


def _need_ros() -> None:
    if importlib.util.find_spec("rclpy") is None:
        raise NoRosError(
            "ROS 2 is missing, rclpy cannot be imported: install timely_llm with pip, "
            "or source a ROS 2 setup file first"
        )


def _become(command: list[str]) -> NoReturn:
    """Replace this process by a node: signals and exit status are then the node's own."""
    _need_ros()
    sys.stdout.flush()
    os.execv(command[0], command)


def exit_with(work: Callable[[], object]) -> NoReturn:
    """Do the work and exit; every error is one line that says what to do."""
    try:
        work()
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(error.exit_code)
    except click.ClickException as error:
        words, status = error.format_message(), error.exit_code
    except (TimelyError, OSError) as error:
        words, status = str(error), 1
    except Interrupted as error:
        words, status = f"ended by {error}; nothing is left running", 128 + error.signum
    except (click.Abort, KeyboardInterrupt):
        words, status = "ended by SIGINT; nothing is left running", 130
    else:
        sys.exit(0)
    print(f"timely-llm: {' '.join(words.split())}", file=sys.stderr)
    sys.exit(status)


def main() -> NoReturn:
    """Run the command line."""
    exit_with(lambda: cli.main(prog_name="timely-llm", standalone_mode=False))


if __name__ == "__main__":
    main()
