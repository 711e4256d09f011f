"""`timely-llm demo`: a server, robots and people, and what each of them got when."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from timely_llm.cli.options import (
    DURATION,
    FOLDER,
    MAX_DOMAIN,
    MODEL,
    NO_PACE,
    PACE_NAMES,
    POLICY_NAMES,
    ROBOTS,
    SEED,
    Option,
    OutputFile,
    OwnOr,
    Pace,
    need_ros,
)
from timely_llm.core.output_file import write_json
from timely_llm.core.requirements import need
from timely_llm.demo.cloud import DemoHistory
from timely_llm.demo.live_view import LiveView
from timely_llm.demo.progress import ProgressLines
from timely_llm.demo.report import as_json, print_report, save_pictures
from timely_llm.demo.run import run
from timely_llm.demo.settings import CLOUD_PACE, EDGE_PACE, OWN_CLOUD, DemoSettings
from timely_llm.demo.settings import ROBOTS as KINDS
from timely_llm.engines.registry import ENGINES, EXTRAS
from timely_llm.engines.simulated import DEFAULT_PROFILE
from timely_llm.policies.registry import DEFAULT_POLICY, POLICIES
from timely_llm.processes.nodes import random_domain

RATE = click.FloatRange(0.001, 1000.0)
LEAD = click.FloatRange(-1.0, 3600.0)


@click.command()
@click.option("--robots", type=ROBOTS, default=8, help="Simulated robots.")
@click.option(
    "--people",
    "conversations",
    cls=Option,
    formerly=["--conversations"],
    type=click.IntRange(0, 512),
    default=0,
    help="People who talk with the model at the same time; every other one hears, the others read.",
)
@click.option(
    "--duration", type=DURATION, default=60.0, help="Seconds in which robots and people ask."
)
@click.option("--events-per-s", "bursts", cls=Option, formerly=["--bursts"], type=RATE,
              default=0.5, help="Mean bursts of tasks a second.")  # fmt: skip
@click.option(
    "--seed", type=SEED, default=0, help="Seed of everything random in robots and people."
)
@click.option("--robot", type=click.Choice(KINDS), default=KINDS[0], help="Kind of the robots.")
@click.option(
    "--failure-share",
    "failures",
    cls=Option,
    formerly=["--failures"],
    type=click.FloatRange(0.0, 1.0),
    default=0.0,
    help="Share of segments that robots report as failed; the server makes a new plan after each.",
)
@click.option(
    "--policy",
    "policies",
    type=OwnOr(list(POLICIES)),
    metavar="POLICY",
    multiple=True,
    default=(DEFAULT_POLICY,),
    help=f"Policy of the server; several run one after another and are compared. {POLICY_NAMES}",
)
@MODEL
@click.option(
    "--engine", type=click.Choice(ENGINES), default="transformers", help="What runs the model."
)
@click.option(
    "--pace",
    type=Pace(),
    default=DEFAULT_PROFILE,
    help=f"Stretch each step to the time that it takes on this hardware. {PACE_NAMES}",
)
@click.option(
    "--lead",
    "lead_s",
    type=LEAD,
    default=0.5,
    help="With timely, timely+slice, edf and fcfs-segments: seconds by which a suspended plan is"
    " resumed before its robot is idle; negative: at once, when the engine has room.",
)
@click.option(
    "--constrained", is_flag=True, help="Let the model choose only what the robot's grammar allows."
)
@click.option(
    "--explain",
    is_flag=True,
    help="Log why each request waited; `timely-llm report` and `timely-llm trace explain` show it.",
)
@click.option(
    "--servers",
    type=click.IntRange(1, 8),
    default=1,
    help="Plan servers. Several have a dispatcher and unlike paces, and one is killed midway and"
    " started again; their engine is simulated if --engine is not given.",
)
@click.option(
    "--cloud",
    metavar="URL",
    help="Base of a cloud's OpenAI-compatible API; all robots and people ask for its help."
    f" `{OWN_CLOUD}`: one of this machine at the pace of {CLOUD_PACE}, which is killed midway."
    f" If they are not given: 4 people, 2 robots, and the pace {EDGE_PACE}.",
)
@click.option("--cloud-model", metavar="NAME", help="Name of the cloud's model.")
@click.option(
    "--cloud-key-variable",
    metavar="NAME",
    help="Name of the environment variable with the cloud's key; no key is sent if not given.",
)
@click.option("--output", type=FOLDER, default=Path("demo"), help="Folder for logs and pictures.")
@click.option("--json", "json_file", type=OutputFile(), help="Write the numbers to this file.")
@click.option(
    "--plain",
    cls=Option,
    formerly=["--no-view"],
    is_flag=True,
    help="Print lines of text instead of the live view.",
)
@click.option("--namespace", default="", show_default=False,
              help="ROS namespace of all nodes; none if not given.")  # fmt: skip
@click.option("--domain", type=click.IntRange(0, MAX_DOMAIN),
              help="ROS domain of all nodes; a random one if not given.")  # fmt: skip
def demo(
    robots: int, conversations: int, duration: float, bursts: float, seed: int, robot: str,
    failures: float, policies: tuple[str, ...], model: str, engine: str, pace: str, lead_s: float,
    constrained: bool, explain: bool, servers: int, cloud: str | None, cloud_model: str | None,
    cloud_key_variable: str | None, output: Path, json_file: Path | None, plain: bool,
    namespace: str, domain: int | None,
) -> None:  # fmt: skip
    """Run a server with robots and people who ask it, and show what they get, and when."""
    need_ros()
    if servers > 1 and not _is_given("engine"):
        engine = "simulated"
    if cloud:
        _check_cloud(cloud, cloud_model or "", cloud_key_variable or "")
        robots = robots if _is_given("robots") else 2
        conversations = conversations if _is_given("conversations") else 4
        pace = pace if _is_given("pace") else EDGE_PACE
    elif cloud_model or cloud_key_variable:
        raise click.UsageError("--cloud-model and --cloud-key-variable need --cloud URL")
    need(f"the demo with the engine {engine}", "reports", *EXTRAS[engine])
    settings = DemoSettings(
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
        explain=explain,
        output=output,
        servers=servers,
        cloud=cloud or "",
        cloud_model=cloud_model or "",
        cloud_key_variable=cloud_key_variable or "",
        namespace=namespace,
        domain=random_domain() if domain is None else domain,
    )
    show(settings, tuple(dict.fromkeys(policies)), json_file, plain)


def show(
    settings: DemoSettings, policies: tuple[str, ...], json_file: Path | None, plain: bool
) -> None:
    """Run the demo with each policy, then print and write what came of it."""
    console = Console()
    view = LiveView if console.is_terminal and not plain else ProgressLines
    runs: dict[str, DemoHistory] = {}
    for policy in policies:
        runs[policy] = run(settings, policy, view(settings, policy, console))
    files = save_pictures(settings, runs)
    if json_file is not None:
        write_json(json_file, as_json(settings, runs))
        files.append(json_file)
    print_report(console, settings, runs, files)


def _check_cloud(url: str, model: str, key_variable: str) -> None:
    """Raise one sentence if a cloud cannot be asked."""
    need("a demo with a cloud", "cloud")
    if url == OWN_CLOUD:
        if model or key_variable:
            raise click.UsageError(f"--cloud {OWN_CLOUD} has no other model and needs no key")
        return
    from timely_llm.cloud.settings import CloudSettings  # most demos have no cloud

    CloudSettings(url, model, key_variable).key()


def _is_given(option: str) -> bool:
    """Return whether the user gave an option."""
    source = click.get_current_context().get_parameter_source(option)
    return source is not click.core.ParameterSource.DEFAULT


def _pace(pace: str, engine: str) -> str:
    """Return the profile in force, empty for none; the simulated engine always has one."""
    if pace != NO_PACE:
        return pace
    return DEFAULT_PROFILE if engine == "simulated" else ""
