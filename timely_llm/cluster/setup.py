"""Replicas as the values of the plan server's parameters describe them."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from timely_llm.cluster.configured import read_skill_sets
from timely_llm.cluster.place import Place, Processes
from timely_llm.cluster.replicas import Replicas
from timely_llm.core.clock import Clock
from timely_llm.core.errors import ConfigurationError
from timely_llm.core.text import quoted
from timely_llm.dispatch.assign.registry import DEFAULT_DISPATCHER, make_dispatcher
from timely_llm.dispatch.relay import Relay
from timely_llm.dispatch.settings import DispatchSettings
from timely_llm.serving.limits import RequestLimits
from timely_llm.serving.server.agent_budgets import agent_rates
from timely_llm.serving.server.registration import read_apart
from timely_llm.serving.sink import ServerSink

PROCESSES = "processes"
RAY = "ray"
_ADDRESS = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s:\[\]]+):\d{1,5}")
_LOOPBACK = re.compile(r"(localhost|127(\.\d+){3}|\[::1\]):\d+")
NONE_THERE = "no replica serves now: try again in some seconds"


def is_cluster(values: Mapping[str, Any]) -> bool:
    """Return whether the parameters ask for replicas, not for a server in this process."""
    return bool(values["replicas"] > 1 or values["cluster"] != PROCESSES)


def open_place(values: Mapping[str, Any]) -> Place:
    """Return the place for the replicas of the parameters.

    Raises:
        ConfigurationError: there is no such place, or it has no room for them.
        EngineError: it needs a package, or cannot be reached.
    """
    resources = [one for one in values["replica_resources"] if one]
    address = ray_address(values["cluster"])
    if address is not None:
        from timely_llm.cluster.ray_place import RayPlace  # Ray is an extra

        return RayPlace(address, resources, values["replicas"])
    if resources:
        raise ConfigurationError(
            "parameter replica_resources is for replicas in a Ray cluster: set cluster to ray"
        )
    return Processes()


def ray_address(cluster: str) -> str | None:
    """Return the address of the Ray cluster that a parameter names.

    Args:
        cluster: value of the parameter.

    Returns:
        Host and port; empty: the node's own cluster; None: the replicas are processes.

    Raises:
        ConfigurationError: it names neither Ray nor processes.
    """
    if cluster == PROCESSES:
        return None
    kind, colon, address = cluster.partition(":")
    if kind != RAY or (colon and not _ADDRESS.fullmatch(address)):
        raise ConfigurationError(
            f"parameter cluster must be processes, ray or ray:HOST:PORT, not {quoted(cluster)}"
        )
    return address


def without_token(cluster: str) -> str:
    """Return the warning about a Ray cluster that may take clients without a token.

    Ray's variable RAY_AUTH_MODE says whether a cluster does: `token` or `disabled`. A cluster with
    a token takes no other clients.

    Args:
        cluster: value of the parameter.

    Returns:
        A sentence; empty: the cluster has a token, or is this node's own, which has one.

    Raises:
        ConfigurationError: the cluster is not on this machine alone, and the variable does not say
            that it has no token; or the parameter names no cluster.
    """
    address, mode = ray_address(cluster), os.environ.get("RAY_AUTH_MODE", "")
    if not address or mode == "token":
        return ""
    risk = (
        f"this node has no token for the Ray cluster at {quoted(address)}, and one that takes such"
        " clients runs the code of any process that reaches it"
    )
    if mode != "disabled" and not _LOOPBACK.fullmatch(address):
        raise ConfigurationError(
            f"{risk}: start the cluster and this node with RAY_AUTH_MODE=token, or this node with"
            " RAY_AUTH_MODE=disabled if only trusted processes reach the cluster"
        )
    return f"{risk}: start the cluster and this node with RAY_AUTH_MODE=token"


def make_replicas(
    values: Mapping[str, Any], name: str, sink: ServerSink, clock: Clock,
    say: Callable[[str], None], wake: Callable[[], None],
    meanwhile: Callable[[], None] = lambda: None,
) -> Replicas:  # fmt: skip
    """Return replicas that all serve, behind a relay.

    Args:
        values: of the plan server's parameters, by name.
        name: full name of the node.
        sink: takes requests, segments and results.
        clock: of the relay.
        say: takes a sentence for the log.
        wake: lets the node tick soon; called from any thread.
        meanwhile: called often while the replicas begin; an exception of it ends that.

    Raises:
        TimelyError: there is no place for them, or one cannot begin.
    """
    count, skill_sets = values["replicas"], read_skill_sets(values)
    limits = RequestLimits(
        count * values["max_requests"], values["max_requests_per_agent"],
        values["max_skill_sets"], values["accept_plans"], agent_rates(values),
    )  # fmt: skip
    settings = DispatchSettings(
        name, limits, count * values["max_conversations"], values["queue_timeout_s"], math.inf,
        none_there=NONE_THERE,
    )  # fmt: skip
    rule = make_dispatcher(DEFAULT_DISPATCHER)
    relay = Relay(rule, sink, clock, settings, read_apart, say, wake)
    unsafe = without_token(values["cluster"])
    place = open_place(values)
    if unsafe:
        say(unsafe)
    replicas = Replicas(place, relay, count, values, skill_sets, clock, say, wake)
    replicas.wait_ready(meanwhile)
    return replicas
