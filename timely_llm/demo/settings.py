"""The settings of a demo, and the command lines of its nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from timely_llm.demo.files import ONE, Files
from timely_llm.processes.nodes import (
    DISPATCHER,
    FLEET,
    SERVER,
    TALKERS,
    in_namespace,
    local_environment,
    random_domain,
    ros_command,
)
from timely_llm.resources import resource

ROBOTS = ("drone", "arm")
"""The robots that have a skill set and tasks in `config/`."""

UNLIKE = (
    "rtx4090-llama3-8b", "h100-llama3-8b", "rtx4060ti-chatglm2-6b", "v100x2-qwen2.5-7b",
)  # fmt: skip
"""Paces of several servers, in turn after that of the first one."""


@dataclass(frozen=True)
class DemoSettings:
    """One demo.

    Attributes:
        duration_s: seconds in which robots ask.
        bursts_per_s: mean bursts of tasks a second.
        conversations: people who talk with the server beside the robots.
        seed: of everything random in the fleet, and of everything random in the people.
        robot: which of the shipped robots, drone or arm.
        failure_share: share of segments that robots report as failed.
        model: folder or hub id; empty for the embedded one.
        pace: step-time profile to which each step is stretched; empty for none. Of several servers
            it is that of the first.
        constrained: let the model generate only tokens that the robot's grammar allows.
        lead_s: seconds by which a suspended plan is resumed before its robot is idle; negative: as
            soon as the engine has room.
        explain: whether the server's event log has the reasons of each step plan.
        output: folder for logs and pictures.
        servers: number of plan servers; several have a dispatcher, and one is killed midway.
        namespace: ROS namespace of all nodes; empty: none.
        domain: ROS_DOMAIN_ID of all processes.
    """

    robots: int = 8
    conversations: int = 0
    duration_s: float = 60.0
    bursts_per_s: float = 0.5
    seed: int = 0
    robot: str = ROBOTS[0]
    failure_share: float = 0.0
    constrained: bool = False
    engine: str = "transformers"
    model: str = ""
    pace: str = ""
    lead_s: float = 0.5
    explain: bool = False
    output: Path = Path("demo")
    namespace: str = ""
    domain: int = field(default_factory=random_domain)
    servers: int = 1
    server: tuple[str, ...] = SERVER
    dispatcher: tuple[str, ...] = DISPATCHER
    fleet: tuple[str, ...] = FLEET
    talkers: tuple[str, ...] = TALKERS

    @property
    def model_name(self) -> str:
        """The model's name in tables and pictures."""
        if self.engine == "simulated":
            return "simulated"
        return Path(self.model).name if self.model else "tiny_planner"

    @property
    def pace_name(self) -> str:
        """The pace's name in tables and pictures."""
        return self.pace or "none"

    @property
    def environment(self) -> dict[str, str]:
        """Variables of all processes: a ROS domain of their own, on this machine only."""
        return local_environment(self.domain)

    @property
    def server_names(self) -> tuple[str, ...]:
        """The names of several servers, which are also their namespaces; one server has none."""
        return tuple(f"s{number + 1}" for number in range(self.servers)) * (self.servers > 1)

    @property
    def paces(self) -> Mapping[str, str]:
        """The pace of each server by its name; empty texts for none."""
        unlike = [self.pace, *(pace for pace in UNLIKE if pace != self.pace)] if self.pace else [""]
        names = self.server_names or (ONE,)
        return {name: unlike[place % len(unlike)] for place, name in enumerate(names)}

    def node_name(self, server: str) -> str:
        """Return the full name of a server's node."""
        return "/" + "/".join(filter(None, (self.namespace.strip("/"), server, "plan_server")))

    def _command(
        self, command: Sequence[str], parameters: dict[str, Any], below: str = ""
    ) -> list[str]:
        namespace = f"{self.namespace}/{below}"
        return [*ros_command(command, parameters), *in_namespace(namespace)]

    def server_command(self, policy: str, files: Files, name: str = ONE) -> list[str]:
        """Return the command line of a plan server."""
        return self._command(
            self.server,
            {
                "policy": policy,
                "engine": self.engine,
                "model": self.model or None,
                "pace": self.paces[name] or None,
                "lead_s": float(self.lead_s),
                "constrained": self.constrained or None,
                "event_log": str(files.event_logs[name].resolve()),
                "explain": self.explain or None,
                "name_check_s": 0.0,
            },
            name,
        )

    def dispatcher_command(self) -> list[str]:
        """Return the command line of the dispatcher."""
        return self._command(self.dispatcher, {"name_check_s": 0.0})

    def fleet_command(self, files: Files) -> list[str]:
        """Return the command line of the robots."""
        return self._command(
            self.fleet,
            {
                "robots": self.robots,
                "duration_s": float(self.duration_s),
                "events_per_s": float(self.bursts_per_s),
                "seed": self.seed,
                "failure_share": float(self.failure_share),
                "skill_set": str(resource(f"config/skill_sets/{self.robot}.yaml")),
                "tasks": str(resource(f"config/tasks/{self.robot}.yaml")),
                "server": "plan_server",
                "log": str(files.fleet_log.resolve()),
            },
        )

    def talkers_command(self, files: Files) -> list[str]:
        """Return the command line of the people."""
        return self._command(
            self.talkers,
            {
                "people": self.conversations,
                "duration_s": float(self.duration_s),
                "seed": self.seed,
                "server": "plan_server",
                "log": str(files.talkers_log.resolve()),
            },
        )

    def as_json(self) -> dict[str, Any]:
        """Return the facts of a run that `--json` writes beside the numbers."""
        return {
            "robots": self.robots,
            "people": self.conversations,
            "duration_s": self.duration_s,
            "bursts_per_s": self.bursts_per_s,
            "seed": self.seed,
            "robot": self.robot,
            "failure_share": self.failure_share,
            "engine": self.engine,
            "model": self.model_name,
            "pace": self.pace_name,
            "lead_s": self.lead_s,
            **({"servers": dict(self.paces)} if self.servers > 1 else {}),
        }
