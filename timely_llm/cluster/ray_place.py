"""Replicas as actors of a Ray cluster: Ray places them, and says when one is dead.

What replicas and front say to each other goes over their own connection, not through Ray. Nothing
here retries or restarts: the front does, since it knows which requests a replica had.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from timely_llm.core.errors import ConfigurationError, EngineError, EngineSettingError, first_line
from timely_llm.core.requirements import RequirementError, need
from timely_llm.core.text import count_of, joined, listed, quoted
from timely_llm.processes.signals import ENDING
from timely_llm.processes.tied import tie_to_parent

OBJECT_STORE_BYTES = 75 * 2**20
"""Memory of Ray's object store, the least that it takes: replicas put nothing there."""
ANSWER_S = 15.0
"""Longest wait for an answer of a Ray cluster, seconds."""
GET_S = 2.0
"""Longest wait for a result that is there, seconds."""
OPTIONS = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}
"""Resources that are options of an actor by themselves; others are the cluster's own."""


class ReplicaActor:
    """The process of a replica."""

    def serve(self, address: tuple[str, int], nonce: bytes) -> int:
        """Serve a front until it is gone; see `replica.serve`.

        Ray asks an actor to end when its node ends; a stopped process cannot obey, so the kernel
        ends it.
        """
        tie_to_parent(os.getppid())  # the node's own process
        from timely_llm.cluster.replica import serve  # in the actor's process alone

        return serve(address, nonce)


class RayReplica:
    """A replica in an actor.

    Args:
        actor: handle of a `ReplicaActor`.
        serving: reference to the result of its `serve`.
    """

    def __init__(self, actor: Any, serving: Any) -> None:
        self._actor = actor
        self._serving = serving

    def ended(self) -> str:
        """Return how it ended; empty: it has not."""
        import ray

        done, _ = ray.wait([self._serving], timeout=0)
        if not done:
            return ""
        try:
            return f"its actor ended with status {ray.get(self._serving, timeout=GET_S)}"
        except Exception as error:  # whatever an actor, or Ray, raises
            return f"its actor has ended: {first_line(error)}"

    def kill(self) -> None:
        """End it, in whatever state it is."""
        import ray

        with contextlib.suppress(Exception):  # it is dead, or Ray is
            ray.kill(self._actor, no_restart=True)


class RayPlace:
    """Starts replicas in a Ray cluster.

    A cluster of its own listens on this machine alone, and takes only clients with its token.

    Args:
        address: host and port of a cluster with a node on this machine; empty: one of its own.
        resources: what each replica takes of its node, each as name=number.
        count: number of replicas.

    Attributes:
        host: address at which the front listens for connections of replicas.

    Raises:
        EngineError: Ray is not installed, or the cluster does not answer.
        ConfigurationError: a resource cannot be read, or the nodes do not have it.
    """

    def __init__(self, address: str, resources: Sequence[str], count: int) -> None:
        wanted = parse_resources(resources)
        try:
            need("a Ray cluster", "ray")
        except RequirementError as error:
            raise EngineSettingError(str(error)) from error
        self.host = "127.0.0.1"
        self._folder = ""
        self._options = _options(wanted)
        self._variables: dict[str, str | None] = {}  # as they were
        self._set({"RAY_USAGE_STATS_ENABLED": "0"})
        try:
            if address:
                _begin({"address": _checked(address)})
                self.host = _node_address()
            else:
                self._begin_own()
            _check_room(wanted, count)
        except BaseException:
            self.close()
            raise

    def start(self, name: str, address: tuple[str, int], nonce: bytes) -> RayReplica:
        """Start a replica; see `Place`."""
        import ray

        remote = ray.remote(ReplicaActor).options(
            max_restarts=0, max_task_retries=0, scheduling_strategy="SPREAD", **self._options
        )
        try:
            actor = remote.remote()
            return RayReplica(actor, actor.serve.remote(address, nonce))
        except Exception as error:  # whatever Ray raises
            raise EngineError(f"{name} cannot be started: {first_line(error)}") from error

    def close(self) -> None:
        """Leave the cluster; one of its own ends."""
        if "ray" in sys.modules:
            sys.modules["ray"].shutdown()
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)
        for name, value in self._variables.items():
            os.environ.pop(name, None)
            os.environ |= {} if value is None else {name: value}

    def _set(self, variables: Mapping[str, str]) -> None:
        """Set environment variables until the place is closed."""
        self._variables |= {name: os.environ.get(name) for name in variables}
        os.environ |= variables

    def _begin_own(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="timely-ray-")  # readable by its owner alone
        token = Path(self._folder, "token")
        token.write_text(_token())
        token.chmod(0o600)
        variables = {
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # all ports on 127.0.0.1
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
        }
        self._set(variables)
        _begin(
            {
                "address": "local",
                "object_store_memory": OBJECT_STORE_BYTES,
                "include_dashboard": False,
                "_temp_dir": str(Path(self._folder, "r")),  # Ray opens it to all users
            }
        )


@cache
def _token() -> str:
    """Return the token of this process's own clusters: Ray reads it once in a process."""
    return secrets.token_hex(32)


def parse_resources(texts: Sequence[str]) -> dict[str, float]:
    """Return the amounts of resources by name.

    Raises:
        ConfigurationError: a text is not name=number, or a name comes twice.
    """
    wanted: dict[str, float] = {}
    for text in texts:
        name, _, value = text.partition("=")
        try:
            amount = float(value)
        except ValueError:
            amount = 0.0
        if not name or name in wanted or not 0.0 < amount < float("inf"):
            raise ConfigurationError(
                "parameter replica_resources must have entries name=number, each name once and"
                f" each number above 0, not {quoted(text)}"
            )
        wanted[name] = amount
    return wanted


def room(wanted: Mapping[str, float], nodes: Sequence[Mapping[str, float]]) -> int | None:
    """Return how many replicas fit into nodes; None: any number.

    Args:
        wanted: what a replica takes.
        nodes: what each node has.
    """
    if not wanted:
        return None
    return sum(
        min(int(node.get(name, 0.0) / amount + 1e-9) for name, amount in wanted.items())
        for node in nodes
    )


def _check_room(wanted: Mapping[str, float], count: int) -> None:
    """Check that the nodes have the resources of all replicas: Ray itself would wait for ever."""
    import ray

    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    fits = room(wanted, nodes)
    if fits is not None and fits < count:
        one = joined([f"{name}={amount:g}" for name, amount in wanted.items()])
        names = {
            name for node in nodes for name in node if not name.startswith("node:")
        } - {"object_store_memory"}  # fmt: skip
        raise ConfigurationError(
            f"the Ray cluster has room for {fits} of {count} replicas with {one}: its"
            f" {count_of(len(nodes), 'node has', 'nodes have')} {listed(sorted(names))}"
        )


def _options(wanted: Mapping[str, float]) -> dict[str, Any]:
    """Return the options of an actor that takes resources."""
    own = {name: amount for name, amount in wanted.items() if name not in OPTIONS}
    given = {OPTIONS[name]: amount for name, amount in wanted.items() if name in OPTIONS}
    return {"num_cpus": 0, "resources": own} | given


def _checked(address: str) -> str:
    """Return the address of a cluster that answers.

    `ray.init` may wait for minutes for one that does not.

    Raises:
        EngineError: it does not answer in time.
    """
    command = [sys.executable, "-m", "ray.scripts.scripts", "health-check", "--address", address]
    try:
        subprocess.run(command, capture_output=True, timeout=ANSWER_S, check=True)
    except (subprocess.SubprocessError, OSError) as error:
        raise EngineError(
            f"no Ray cluster answers at {quoted(address)}: start its head with ray start --head,"
            " and give this node its token if it has one"
        ) from error
    return address


def _begin(options: Mapping[str, Any]) -> None:
    """Connect this process with a cluster.

    Raises:
        EngineError: that fails.
    """
    import ray

    before = {signum: signal.getsignal(signum) for signum in ENDING}
    try:
        ray.init(logging_level="warning", **options)
    except Exception as error:  # whatever Ray raises
        raise EngineError(f"the Ray cluster cannot be used: {first_line(error)}") from error
    finally:
        with contextlib.suppress(ValueError):  # this is not the main thread
            for signum, handler in before.items():
                signal.signal(signum, handler)  # Ray has replaced that of SIGTERM


def _node_address() -> str:
    import ray

    address: str = ray.util.get_node_ip_address()
    return address
