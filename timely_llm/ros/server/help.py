"""The parameters of a cloud that helps, and the server with help that they describe."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from timely_llm.core.clock import Clock
from timely_llm.core.request import MAX_TOKENS
from timely_llm.ros.parameters import NodeParameter
from timely_llm.serving.sink import ServerSink

if TYPE_CHECKING:
    from timely_llm.progressive.server import ProgressiveServer

CLOUD = (
    NodeParameter("cloud_url", "",
              "base of an OpenAI-compatible API of a cloud that helps with requests of mode"
              " PROGRESSIVE or AUTO, such as https://api.example.com/v1; empty: no cloud is asked"),
    NodeParameter("cloud_model", "", "name of the cloud's model, as the cloud lists it"),
    NodeParameter("cloud_key_variable", "",
              "name of the environment variable with the cloud's key; empty: no key is sent"),
    NodeParameter("cloud_plain_key", False,
              "send the key over plain HTTP to another machine, too"),
    NodeParameter("cloud_timeout_s", 20.0,
              "longest time for a whole sketch, retries included, seconds", 0.1, 3600.0),
    NodeParameter("cloud_first_token_s", 10.0,
              "longest time to the first word of a sketch, seconds", 0.1, 3600.0),
    NodeParameter("cloud_silence_s", 5.0,
              "longest time between two words of a sketch, seconds", 0.1, 3600.0),
    NodeParameter("cloud_connect_s", 3.0,
              "longest time to open a connection, seconds", 0.1, 3600.0),
    NodeParameter("cloud_max_questions", 64, "most open questions to the cloud", 1, 1024),
    NodeParameter("cloud_never_for", [""],
              "agents; nothing of their requests is sent to the cloud, whatever the mode"),
    NodeParameter("cloud_sketch_tokens", 256, "most tokens of a sketch", 16, MAX_TOKENS),
    NodeParameter("cloud_max_requests", 4,
              "nothing gets help, in any mode, while this many requests are served, parts of others"
              " included: help delays them", 1, 100_000),
    NodeParameter("cloud_auto_tokens", 200,
              "AUTO: answers that may have at least this many tokens get help", 1, MAX_TOKENS),
    NodeParameter("cloud_auto_words", 16,
              "AUTO: plans for tasks of at least this many words get help", 1, 10_000),
    NodeParameter("cloud_auto_requests", 4,
              "AUTO: nothing gets help while this many requests are served, parts of others"
              " included", 1, 100_000),
    NodeParameter("cloud_token_price", 0.0,
              "AUTO: worth that a token of the cloud costs, beside 1 of an answer or plan with"
              " help; 0: help costs nothing", 0.0, 1.0),
    NodeParameter("cloud_alone_worth", 0.9,
              "AUTO: worth of a plan, or of an answer of at least cloud_auto_tokens tokens, that"
              " the server makes alone", 0.0, 1.0),
    NodeParameter("cloud_plan_candidates", 1,
              "plans that the edge makes of the cloud's steps while it serves fewer requests than"
              " cloud_auto_requests; from 2 on, a dry run in simulated worlds decides between them",
              1, 8),
)  # fmt: skip
"""Parameters that are read once, at the start: any node can set a parameter of any other."""


def make_help(
    values: dict[str, Any], sink: ServerSink, clock: Clock, wake: Callable[[], None]
) -> ProgressiveServer | None:
    """Return a server that asks the cloud of the parameters; None: they name none.

    Args:
        values: of `CLOUD`, and `max_conversations`, by name.
        sink: takes what clients get.
        clock: of the server.
        wake: lets the node tick soon; called from any thread.

    Raises:
        TimelyError: a value is impossible, or a package of the client is missing.
    """
    if not values.get("cloud_url"):
        return None
    from timely_llm.cloud.settings import CloudSettings, open_cloud  # most servers have no cloud
    from timely_llm.progressive.server import ProgressiveServer
    from timely_llm.progressive.settings import HelpSettings
    from timely_llm.robots.world import World

    settings = CloudSettings(
        values["cloud_url"], values["cloud_model"], values["cloud_key_variable"],
        values["cloud_timeout_s"], values["cloud_first_token_s"], values["cloud_silence_s"],
        values["cloud_connect_s"], values["cloud_max_questions"], values["cloud_plain_key"],
    )  # fmt: skip
    helps = HelpSettings(
        timeout_s=values["cloud_timeout_s"],
        sketch_tokens=values["cloud_sketch_tokens"],
        max_requests=values["cloud_max_requests"],
        auto_tokens=values["cloud_auto_tokens"],
        auto_words=values["cloud_auto_words"],
        auto_requests=values["cloud_auto_requests"],
        token_price=values["cloud_token_price"],
        alone_worth=values["cloud_alone_worth"],
        plan_candidates=values["cloud_plan_candidates"],
        never_for=frozenset(filter(None, values["cloud_never_for"])),
    )
    cloud = open_cloud(settings, wake, clock)
    most = values["max_conversations"]
    return ProgressiveServer(cloud, sink, helps, clock, wake, most, World)
