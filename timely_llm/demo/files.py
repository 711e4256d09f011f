"""The files of a demo's run in its folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from timely_llm.core.errors import TimelyError

ONE = ""
"""The name of the server where there is only one."""
SERVER_LOG = "server-{}.jsonl"
"""The event log of the one server, by policy."""
NAMED_LOG = "server_{}-{}.jsonl"
"""The event log of one of several servers, by name and policy."""


class OutputError(TimelyError):
    """The output folder cannot be used."""


@dataclass(frozen=True)
class Files:
    """The files of one policy's run.

    Attributes:
        event_logs: of each server, by name; `ONE` is that of the only one.
    """

    folder: Path
    policy: str
    event_logs: Mapping[str, Path]

    @classmethod
    def of(cls, folder: Path, policy: str, servers: Sequence[str] = ()) -> Files:
        """Return where the files of a run are; `servers` are the names of several."""
        logs = {name: folder / NAMED_LOG.format(name, policy) for name in servers}
        return cls(folder, policy, logs or {ONE: folder / SERVER_LOG.format(policy)})

    @classmethod
    def found(cls, folder: Path) -> list[Files]:
        """Return the files of each run in a folder, in order of the policies' names."""
        one, many = SERVER_LOG.split("{}")[0], NAMED_LOG.split("{}")[0]
        runs: dict[str, list[str]] = {}
        for path in sorted(folder.glob(SERVER_LOG.format("*"))):
            runs[path.stem.removeprefix(one)] = []
        for path in sorted(folder.glob(NAMED_LOG.format("*", "*"))):
            name, _, policy = path.stem.removeprefix(many).partition("-")
            runs.setdefault(policy, []).append(name)
        return [cls.of(folder, policy, names) for policy, names in sorted(runs.items())]

    @classmethod
    def fresh(cls, folder: Path, policy: str, servers: Sequence[str] = ()) -> Files:
        """Return the files of a run, none of which exists.

        Raises:
            OutputError: the folder cannot be written.
        """
        files = cls.of(folder, policy, servers)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            earlier = folder.glob(NAMED_LOG.format("*", policy))
            for path in (*earlier, folder / SERVER_LOG.format(policy), files.fleet_log,
                         files.talkers_log):  # fmt: skip
                path.unlink(missing_ok=True)
            for path in files.event_logs.values():
                path.touch()
        except OSError as error:
            raise OutputError(f"cannot write to the folder {folder}: {error.strerror}") from error
        return files

    @property
    def fleet_log(self) -> Path:
        """The events of the robots."""
        return self.folder / f"fleet-{self.policy}.jsonl"

    @property
    def talkers_log(self) -> Path:
        """The events of the people."""
        return self.folder / f"talkers-{self.policy}.jsonl"

    @property
    def all_logs(self) -> dict[Path, str]:
        """Return all event logs, and the server of each; empty: not one of several servers."""
        clients = {self.fleet_log: "", self.talkers_log: ""}
        return clients | {path: name for name, path in self.event_logs.items()}

    def output(self, node: str) -> Path:
        """Return the file of what a node prints: of `server`, `server_s1`, `fleet`."""
        return self.folder / f"{node}-{self.policy}.log"
