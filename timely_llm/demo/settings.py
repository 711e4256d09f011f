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
    STAND_IN,
    TALKERS,
    in_namespace,
    local_environment,
    random_domain,
    ros_command,
)
from timely_llm.resources import resource

ROBOTS = ("drone", "arm")
"""The robots that have a skill set and tasks in `config/`."""

OWN_CLOUD = "stand-in"
"""The cloud that a demo brings along, and its model's name."""
CLOUD_PACE, EDGE_PACE = "a100x4-llama3-70b", "orin-llama3-8b"
"""Pace of the stand-in, and that of a server beside a cloud if none is given."""
HELPED_REQUESTS = 16
"""Requests at a server beside a cloud from which on nothing more gets help: a demo shows help."""
HELPED_TOKENS = 256
"""Most tokens of an answer with help."""

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
        cloud: base of the interface of a cloud, which helps with plans and answers; `OWN_CLOUD`: a
            stand-in on this machine, killed midway; empty: none.
        cloud_model: its model's name; of the stand-in it does not matter.
        cloud_key_variable: name of the environment variable with the cloud's key; empty: no key.
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
    cloud: str = ""
    cloud_model: str = ""
    cloud_key_variable: str = ""
    server: tuple[str, ...] = SERVER
    dispatcher: tuple[str, ...] = DISPATCHER
    fleet: tuple[str, ...] = FLEET
    talkers: tuple[str, ...] = TALKERS
    stand_in: tuple[str, ...] = STAND_IN

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

    @property
    def has_own_cloud(self) -> bool:
        """Whether the cloud is a stand-in that the demo starts, and kills midway."""
        return self.cloud == OWN_CLOUD

    @property
    def cloud_name(self) -> str:
        """The cloud in words."""
        if self.has_own_cloud:
            return f"a stand-in of this machine at the pace of {CLOUD_PACE}"
        return f"{self.cloud_model} at {self.cloud}"

    def stand_in_command(self) -> list[str]:
        """Return the command line of the stand-in for a cloud; it prints its URL."""
        return [*self.stand_in, "--pace", CLOUD_PACE, "--ignore-system"]

    def server_command(
        self, policy: str, files: Files, name: str = ONE, cloud_url: str = ""
    ) -> list[str]:
        """Return the command line of a plan server.

        Args:
            policy: of the server.
            files: of the run.
            name: of one of several servers.
            cloud_url: base of the stand-in's interface; empty: there is no stand-in.
        """
        own = self.has_own_cloud
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
                "cloud_url": cloud_url or self.cloud or None,
                "cloud_model": (OWN_CLOUD if own else self.cloud_model) or None,
                "cloud_key_variable": self.cloud_key_variable or None,
                "cloud_max_requests": HELPED_REQUESTS if self.cloud else None,
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
                "mode": "progressive" if self.cloud else None,
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
                "mode": "progressive" if self.cloud else None,
                "max_tokens": HELPED_TOKENS if self.cloud else None,
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
            **({"cloud": self.cloud_name} if self.cloud else {}),
        }
