"""The dispatcher's parameters, and the relay that they describe."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from timely_llm.core.clock import Clock
from timely_llm.dispatch.assign.registry import DEFAULT_DISPATCHER, DISPATCHERS, make_dispatcher
from timely_llm.dispatch.relay import Relay
from timely_llm.dispatch.settings import DispatchSettings
from timely_llm.ros.parameters import NodeParameter
from timely_llm.ros.server import setup
from timely_llm.serving.limits import RequestLimits
from timely_llm.serving.server.agent_budgets import agent_rates
from timely_llm.serving.server.registration import read_apart
from timely_llm.serving.sink import ServerSink

_SHARED = (
    "max_tokens", "max_answer_tokens", "slo_classes", "max_requests_per_agent", "max_skill_sets",
    "agent_requests_per_s", "agent_burst", "new_agents_requests_per_s", "new_agents_burst",
    "agent_worth_per_min",
    "queue_timeout_s", "drain_timeout_s", "shutdown_drain_s", "stats_period_s", "autostart",
    "executor", "name_check_s", "diagnostics", "result_timeout_s", "max_results",
)  # fmt: skip
"""Parameters with the meaning and the default of a plan server's."""

_OWN = (
    NodeParameter("dispatcher", DEFAULT_DISPATCHER,
                  "rule that assigns requests to servers, with options as in two-choices:seed=3:"
                  f" {', '.join(DISPATCHERS)}, or your own as my_module:MyRule"),
    NodeParameter("servers", [""],
                  "full names of the servers' nodes, such as /s1/plan_server; empty: all that are"
                  " found in the dispatcher's namespace and below it"),
    NodeParameter("max_requests", 1024, "most requests served at a time", 1, 100_000),
    NodeParameter("max_conversations", 256,
                  "most conversations that are remembered, so that any server can go on with them",
                  0, 100_000),
    NodeParameter("silence_s", 10.0,
                  "a server that has published no load for this time is lost though its"
                  " process lives, seconds", 0.5, 3600.0),
    NodeParameter("move", True,
                  "requests that have not begun move to another server where they are worth more"),
    NodeParameter("hedge", False,
                  "ask two servers for urgent plans, and end the one that delivers later"),
)  # fmt: skip

_BY_NAME = {parameter.name: parameter for parameter in setup.PARAMETERS}
_REAL_TIME = NodeParameter(
    "realtime_priority", 0,
    "real-time priority of the process (SCHED_RR), where the system permits one; 0: none", 0, 99,
)  # fmt: skip

PARAMETERS = (
    *(replace(one, fixed=False) for one in _OWN),
    *(_BY_NAME[name] for name in _SHARED),
    _REAL_TIME,
)


def make_relay(
    values: dict[str, Any], name: str, sink: ServerSink, clock: Clock,
    say: Callable[[str], None], wake: Callable[[], None],
) -> Relay:  # fmt: skip
    """Return a relay without servers.

    Args:
        values: of `PARAMETERS`, by name.
        name: full name of the dispatcher's node.
        sink: takes requests, segments and results.
        clock: of the relay.
        say: takes a sentence for the log.
        wake: lets the node tick soon; called from any thread.

    Raises:
        ConfigurationError: there is no such rule, or an option of it is impossible.
    """
    limits = RequestLimits(
        values["max_requests"], values["max_requests_per_agent"], values["max_skill_sets"],
        accept_plans=True, rates=agent_rates(values),
    )  # fmt: skip
    settings = DispatchSettings(
        name, limits, values["max_conversations"], values["queue_timeout_s"], values["silence_s"],
        values["move"], values["hedge"],
    )  # fmt: skip
    rule = make_dispatcher(values["dispatcher"], say)
    return Relay(rule, sink, clock, settings, read_apart, say, wake)
