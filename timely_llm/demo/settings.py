"""What a demo is asked to do, and the commands and files that follow from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from timely_llm.core.errors import TimelyError
from timely_llm.processes.nodes import (
    FLEET,
    SERVER,
    TALKERS,
    local_environment,
    random_domain,
    ros_command,
)
from timely_llm.resources import resource

ROBOTS = ("drone", "arm")
"""The robots that have a skill set and tasks in `config/`."""


class OutputError(TimelyError):
    """The output folder cannot be used."""


@dataclass(frozen=True)
class Files:
    """Where one policy's run leaves its traces."""

    journal: Path
    fleet_log: Path
    talkers_log: Path
    server_output: Path
    fleet_output: Path
    talkers_output: Path

    @classmethod
    def fresh(cls, folder: Path, policy: str) -> Files:
        """Return the files of a run, none of which exists.

        Raises:
            OutputError: the folder cannot be written.
        """
        files = cls(
            journal=folder / f"server-{policy}.jsonl",
            fleet_log=folder / f"fleet-{policy}.jsonl",
            talkers_log=folder / f"talkers-{policy}.jsonl",
            server_output=folder / f"server-{policy}.log",
            fleet_output=folder / f"fleet-{policy}.log",
            talkers_output=folder / f"talkers-{policy}.log",
        )
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for path in vars(files).values():
                path.unlink(missing_ok=True)
            files.journal.touch()
        except OSError as error:
            raise OutputError(f"cannot write to the folder {folder}: {error.strerror}") from error
        return files


@dataclass(frozen=True)
class Settings:
    """One demo.

    Attributes:
        duration_s: seconds in which robots ask.
        bursts_per_s: mean bursts of tasks a second.
        conversations: people who talk with the server beside the robots.
        seed: of everything random in the fleet, and of everything random in the people.
        robot: which of the shipped robots, drone or arm.
        failure_share: share of segments that robots report as failed.
        model: folder or hub id; empty for the embedded one.
        pace: profile that every step keeps to; empty for none.
        constrained: let the model say only what the robot's grammar allows.
        lead_s: how long before its robot will be idle a suspended plan is resumed; negative for
            as early as there is room.
        output: folder for logs and pictures.
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
    output: Path = Path("demo")
    domain: int = field(default_factory=random_domain)
    server: tuple[str, ...] = SERVER
    fleet: tuple[str, ...] = FLEET
    talkers: tuple[str, ...] = TALKERS

    @property
    def model_name(self) -> str:
        """What to call the model in tables and pictures."""
        if self.engine == "simulated":
            return "simulated"
        return Path(self.model).name if self.model else "tiny_planner"

    @property
    def pace_name(self) -> str:
        """What to call the pace in tables and pictures."""
        return self.pace or "none"

    @property
    def environment(self) -> dict[str, str]:
        """Variables of all processes: a ROS domain of their own, on this machine only."""
        return local_environment(self.domain)

    def server_command(self, policy: str, files: Files) -> list[str]:
        """Return the command line of the plan server."""
        return ros_command(
            self.server,
            {
                "policy": policy,
                "engine": self.engine,
                "model": self.model or None,
                "pace": self.pace or None,
                "lead_s": float(self.lead_s),
                "constrained": self.constrained or None,
                "journal": str(files.journal.resolve()),
                "name_check_s": 0.0,
            },
        )

    def fleet_command(self, files: Files) -> list[str]:
        """Return the command line of the robots."""
        return ros_command(
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
        return ros_command(
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
        }
