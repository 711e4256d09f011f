"""`timely-llm serve`, `fleet` and `talkers`: the nodes, by options instead of ROS arguments."""

from __future__ import annotations

from pathlib import Path

import click

from timely_llm.cli.options import DURATION, EXISTING_FILE, FILE, ROBOTS, SEED, Pace, become
from timely_llm.engines.registry import ENGINES
from timely_llm.policies.registry import POLICIES
from timely_llm.processes.nodes import FLEET, SERVER, TALKERS, ros_command


@click.command()
@click.option("--engine", type=click.Choice(ENGINES), help="What runs the model.")
@click.option("--model", help="Folder or Hugging Face id; the embedded model if not given.")
@click.option(
    "--engine-arg",
    "engine_args",
    metavar="NAME=VALUE",
    multiple=True,
    help="Option of vLLM's own; may be given several times.",
)
@click.option("--engine-process", is_flag=True, help="Run the engine in a process of its own.")
@click.option("--policy", type=click.Choice(list(POLICIES)), help="Decides each step.")
@click.option(
    "--pace",
    type=Pace(),
    help="Let every step take as long as on this hardware.",
)
@click.option(
    "--constrained",
    is_flag=True,
    help="The model may choose only what a skill set's grammar allows.",
)
@click.option(
    "--skill-set",
    "skill_sets",
    type=EXISTING_FILE,
    multiple=True,
    help="Skill set to register; may be given several times.",
)
@click.argument("ros_arguments", nargs=-1, type=click.UNPROCESSED)
def serve(
    engine: str | None, model: str | None, engine_args: tuple[str, ...], engine_process: bool,
    policy: str | None, pace: str | None, constrained: bool, skill_sets: tuple[Path, ...],
    ros_arguments: tuple[str, ...],
) -> None:  # fmt: skip
    """Run the plan server until Ctrl-C. After `--`: ROS arguments, such as `-r __ns:=/lab`."""
    paths = [str(path.resolve()) for path in skill_sets]
    parameters = {
        "engine": engine,
        "model": model,
        "engine_args": list(engine_args) or None,
        "engine_process": engine_process or None,
        "policy": policy,
        "pace": pace,
        "constrained": constrained or None,
        "skill_sets": paths or None,
    }
    become([*ros_command(SERVER, parameters), *ros_arguments])


@click.command()
@click.option("--robots", type=ROBOTS, default=8, help="Simulated robots.")
@click.option("--duration", type=DURATION, default=60.0, help="Seconds in which robots ask.")
@click.option("--seed", type=SEED, default=0, help="Seed of everything random.")
@click.option(
    "--failure-share",
    type=click.FloatRange(0.0, 1.0),
    help="Share of segments that fail; default 0.",
)
@click.option("--server", default="plan_server", help="Name of the plan server's node.")
@click.option("--log", type=FILE, help="Write what happens to this file as JSON lines.")
@click.argument("ros_arguments", nargs=-1, type=click.UNPROCESSED)
def fleet(
    robots: int, duration: float, seed: int, failure_share: float | None, server: str,
    log: Path | None, ros_arguments: tuple[str, ...],
) -> None:  # fmt: skip
    """Run simulated robots against a plan server. After `--`: ROS arguments."""
    parameters = {
        "robots": robots,
        "duration_s": duration,
        "seed": seed,
        "failure_share": failure_share,
        "server": server,
        "log": None if log is None else str(log.resolve()),
    }
    become([*ros_command(FLEET, parameters), *ros_arguments])


@click.command()
@click.option(
    "--people",
    type=click.IntRange(1, 512),
    default=4,
    help="Simulated people; every other one hears, the others read.",
)
@click.option("--duration", type=DURATION, default=60.0, help="Seconds in which people ask.")
@click.option("--seed", type=SEED, default=0, help="Seed of everything random.")
@click.option("--questions", type=EXISTING_FILE, help="Question set; small talk if not given.")
@click.option("--server", default="plan_server", help="Name of the plan server's node.")
@click.option("--log", type=FILE, help="Write what happens to this file as JSON lines.")
@click.argument("ros_arguments", nargs=-1, type=click.UNPROCESSED)
def talkers(
    people: int, duration: float, seed: int, questions: Path | None, server: str,
    log: Path | None, ros_arguments: tuple[str, ...],
) -> None:  # fmt: skip
    """Run simulated people who talk with a plan server. After `--`: ROS arguments."""
    parameters = {
        "people": people,
        "duration_s": duration,
        "seed": seed,
        "questions": None if questions is None else str(questions.resolve()),
        "server": server,
        "log": None if log is None else str(log.resolve()),
    }
    become([*ros_command(TALKERS, parameters), *ros_arguments])
