"""`timely-llm serve`, `fleet` and `talkers`: the nodes, by options instead of ROS arguments."""

from __future__ import annotations

from pathlib import Path

import click

from timely_llm.cli.options import (
    DOMAIN,
    DURATION,
    EXISTING_FILE,
    LOG,
    MODE,
    MODEL_HELP,
    NAMESPACE,
    PACE_NAMES,
    PARAMS_FILE,
    POLICY_NAMES,
    ROBOTS,
    ROS_ARGUMENTS,
    SEED,
    OwnOr,
    Pace,
    as_given,
    at_server,
    become,
)
from timely_llm.dispatch.assign.registry import DISPATCHERS
from timely_llm.engines.registry import ENGINES
from timely_llm.policies.registry import POLICIES
from timely_llm.processes import nodes
from timely_llm.processes.nodes import ros_command


@click.command()
@click.option("--engine", type=OwnOr(ENGINES), metavar="ENGINE",
              help=f"What runs the model: {', '.join(ENGINES)}, or your own as my_module:MyEngine."
              )  # fmt: skip
@click.option("--model", help=MODEL_HELP)
@click.option(
    "--engine-arg",
    "engine_args",
    metavar="NAME=VALUE",
    multiple=True,
    help="Option of vLLM, or of an engine of your own; may be given several times.",
)
@click.option("--engine-process", is_flag=True, help="Run the engine in a process of its own.")
@click.option("--policy", type=OwnOr(list(POLICIES)), metavar="POLICY",
              help=f"Policy that decides each step. {POLICY_NAMES}")  # fmt: skip
@click.option(
    "--policy-option",
    "policy_options",
    metavar="NAME=VALUE",
    multiple=True,
    help="Option of the policy, such as people=2; may be given several times.",
)
@click.option(
    "--pace",
    type=Pace(),
    help=f"Stretch each step to the time that it takes on this hardware. {PACE_NAMES}",
)
@click.option(
    "--constrained",
    is_flag=True,
    help="Let the model choose only what a skill set's grammar allows.",
)
@click.option("--accept-plans", is_flag=True, help="Accept requests with a plan written by hand.")
@click.option(
    "--recovery-journal",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the open requests to this file, and go on with those in it; docs/recovery.md.",
)
@click.option(
    "--skill-set",
    "skill_sets",
    type=EXISTING_FILE,
    multiple=True,
    help="File of a skill set to register; may be given several times.",
)
@click.option(
    "--replicas",
    type=click.IntRange(1, 256),
    help="Servers with an engine each behind this one interface; 1 if not given.",
)
@click.option(
    "--cluster",
    metavar="CLUSTER",
    help="Where replicas run: processes of this machine (`processes`, if not given), a"
    " Ray cluster of this machine (`ray`), or one that runs (`ray:HOST:PORT`).",
)
@click.option(
    "--replica-resource",
    "replica_resources",
    metavar="NAME=NUMBER",
    multiple=True,
    help="Ray: what a replica takes of its node, such as GPU=1; may be given several times.",
)
@click.option(
    "--cloud-url",
    metavar="URL",
    help="Base of a cloud's OpenAI-compatible API, which helps with requests of mode progressive or"
    " auto; docs/cloud.md.",
)
@click.option("--cloud-model", metavar="NAME", help="Name of the cloud's model.")
@click.option(
    "--cloud-key-variable",
    metavar="NAME",
    help="Name of the environment variable with the cloud's key; no key is sent if not given.",
)
@NAMESPACE
@DOMAIN
@PARAMS_FILE
@ROS_ARGUMENTS
def serve(
    engine: str | None, model: str | None, engine_args: tuple[str, ...], engine_process: bool,
    policy: str | None, policy_options: tuple[str, ...], pace: str | None, constrained: bool,
    accept_plans: bool, recovery_journal: Path | None, skill_sets: tuple[Path, ...],
    replicas: int | None, cluster: str | None,
    replica_resources: tuple[str, ...], cloud_url: str | None, cloud_model: str | None,
    cloud_key_variable: str | None, namespace: str, domain: int | None,
    params_file: Path | None, ros_arguments: tuple[str, ...],
) -> None:  # fmt: skip
    """Run the plan server until Ctrl-C.

    What stands after `--` goes to ROS, such as `-p max_requests:=32`; docs/parameters.md has all
    parameters.
    """
    paths = [str(path.resolve()) for path in skill_sets]
    parameters = {
        "engine": engine,
        "model": model,
        "engine_args": list(engine_args) or None,
        "engine_process": engine_process or None,
        "policy": policy,
        "policy_options": list(policy_options) or None,
        "pace": pace,
        "constrained": constrained or None,
        "accept_plans": accept_plans or None,
        "recovery_journal": str(recovery_journal.resolve()) if recovery_journal else None,
        "skill_sets": paths or None,
        "replicas": replicas,
        "cluster": cluster,
        "replica_resources": list(replica_resources) or None,
        "cloud_url": cloud_url,
        "cloud_model": cloud_model,
        "cloud_key_variable": cloud_key_variable,
    }
    command = ros_command(nodes.SERVER, parameters)
    become(command, namespace, domain, params_file, ros_arguments)


@click.command()
@click.option(
    "--dispatcher",
    metavar="RULE",
    help=f"Rule that assigns requests: {', '.join(DISPATCHERS)}, or your own as my_module:MyRule.",
)
@click.option(
    "--server",
    "servers",
    metavar="NAME",
    multiple=True,
    help="Full name of a server's node, such as /s1/plan_server; may be given several times. All"
    " that are found if not given.",
)
@click.option("--hedge", is_flag=True, help="Ask two servers for urgent plans.")
@NAMESPACE
@DOMAIN
@PARAMS_FILE
@ROS_ARGUMENTS
def dispatch(
    dispatcher: str | None, servers: tuple[str, ...], hedge: bool, namespace: str,
    domain: int | None, params_file: Path | None, ros_arguments: tuple[str, ...],
) -> None:  # fmt: skip
    """Run a dispatcher until Ctrl-C: several plan servers behind one server's interface.

    Each server runs in a namespace of its own: `timely-llm serve --namespace s1`. What stands after
    `--` goes to ROS, such as `-p silence_s:=5.0`.
    """
    parameters = {
        "dispatcher": dispatcher,
        "servers": list(servers) or None,
        "hedge": hedge or None,
    }
    command = ros_command(nodes.DISPATCHER, parameters)
    become(command, namespace, domain, params_file, ros_arguments)


@click.command()
@click.option("--robots", type=ROBOTS, default=8, help="Simulated robots.")
@click.option("--duration", type=DURATION, default=60.0, help="Seconds in which robots ask.")
@click.option("--seed", type=SEED, default=0, help="Seed of everything random.")
@click.option(
    "--failure-share",
    type=click.FloatRange(0.0, 1.0),
    help="Share of segments that the robots cannot execute; 0 if not given.",
)
@MODE
@at_server
@PARAMS_FILE
@LOG
@ROS_ARGUMENTS
def fleet(
    robots: int, duration: float, seed: int, failure_share: float | None, mode: str, server: str,
    namespace: str, domain: int | None, params_file: Path | None, log: Path | None,
    ros_arguments: tuple[str, ...],
) -> None:  # fmt: skip
    """Run simulated robots against a plan server.

    What stands after `--` goes to ROS, such as `-p events_per_s:=2.0`.
    """
    parameters = {
        "robots": robots,
        "duration_s": duration,
        "seed": seed,
        "failure_share": failure_share,
        "mode": None if mode == "direct" else mode,
        "server": server,
        "log": None if log is None else str(log.resolve()),
    }
    command = ros_command(nodes.FLEET, as_given(parameters, params_file))
    become(command, namespace, domain, params_file, ros_arguments)


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
@MODE
@at_server
@PARAMS_FILE
@LOG
@ROS_ARGUMENTS
def talkers(
    people: int, duration: float, seed: int, questions: Path | None, mode: str, server: str,
    namespace: str, domain: int | None, params_file: Path | None, log: Path | None,
    ros_arguments: tuple[str, ...],
) -> None:  # fmt: skip
    """Run simulated people who talk with a plan server.

    What stands after `--` goes to ROS, such as `-p pause_s:=1.0`.
    """
    parameters = {
        "people": people,
        "duration_s": duration,
        "seed": seed,
        "questions": None if questions is None else str(questions.resolve()),
        "mode": None if mode == "direct" else mode,
        "server": server,
        "log": None if log is None else str(log.resolve()),
    }
    command = ros_command(nodes.TALKERS, as_given(parameters, params_file))
    become(command, namespace, domain, params_file, ros_arguments)
