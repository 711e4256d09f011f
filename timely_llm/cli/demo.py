"""`timely-llm demo`: a server, robots and people, and what each of them got when."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from timely_llm.cli.options import (
    DURATION,
    FILE,
    FOLDER,
    NO_PACE,
    ROBOTS,
    SEED,
    Pace,
    check_output,
    need_ros,
)
from timely_llm.core.output_file import JSON, write_text
from timely_llm.demo.history import History
from timely_llm.demo.live_view import LiveView
from timely_llm.demo.progress import ProgressLines
from timely_llm.demo.report import as_json, print_report, save_pictures
from timely_llm.demo.run import run
from timely_llm.demo.settings import ROBOTS as KINDS
from timely_llm.demo.settings import Settings
from timely_llm.engines.profiles import DEFAULT_PROFILE
from timely_llm.engines.registry import ENGINES
from timely_llm.policies.registry import DEFAULT_POLICY, POLICIES
from timely_llm.processes.nodes import random_domain

RATE = click.FloatRange(0.001, 1000.0)
LEAD = click.FloatRange(-1.0, 3600.0)


@click.command()
@click.option("--robots", type=ROBOTS, default=8, help="Simulated robots.")
@click.option(
    "--conversations",
    type=click.IntRange(0, 512),
    default=0,
    help="People who talk with the model at the same time; every other one hears, the others read.",
)
@click.option("--duration", type=DURATION, default=60.0, help="Seconds in which all of them ask.")
@click.option("--bursts", type=RATE, default=0.5, help="Mean bursts of tasks a second.")
@click.option("--seed", type=SEED, default=0, help="Seed of everything random in those who ask.")
@click.option("--robot", type=click.Choice(KINDS), default=KINDS[0], help="What the robots are.")
@click.option(
    "--failures",
    type=click.FloatRange(0.0, 0.5),
    default=0.0,
    help="Share of segments that robots report as failed: see new plans being made.",
)
@click.option(
    "--policy",
    "policies",
    type=click.Choice(list(POLICIES)),
    multiple=True,
    default=(DEFAULT_POLICY,),
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
    type=Pace(),
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
@click.option("--constrained", is_flag=True, help="Only what the robot's grammar allows.")
@click.option("--output", type=FOLDER, default=Path("demo"), help="Folder for logs and pictures.")
@click.option("--json", "json_file", type=FILE, help="Write the numbers to this file.")
@click.option("--plain", "--no-view", is_flag=True, help="Lines of text instead of the live view.")
@click.option(
    "--domain", type=click.IntRange(0, 232), help="ROS_DOMAIN_ID; a random one if not given."
)
def demo(
    robots: int, conversations: int, duration: float, bursts: float, seed: int, robot: str,
    failures: float, policies: tuple[str, ...], model: str, engine: str, pace: str, lead_s: float,
    constrained: bool, output: Path, json_file: Path | None, plain: bool, domain: int | None,
) -> None:  # fmt: skip
    """Run a server, robots and people who ask it, and show what each of them gets when."""
    need_ros()
    check_output(json_file, "--json")
    settings = Settings(
        robots=robots,
        conversations=conversations,
        duration_s=duration,
        bursts_per_s=bursts,
        seed=seed,
        robot=robot,
        failure_share=failures,
        constrained=constrained,
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
        write_text(json_file, JSON, as_json(settings, runs))
        files.append(json_file)
    print_report(console, settings, runs, files)


def _pace(pace: str, engine: str) -> str:
    """Return the profile in force, empty for none; the simulated engine always has one."""
    if pace != NO_PACE:
        return pace
    return DEFAULT_PROFILE if engine == "simulated" else ""
