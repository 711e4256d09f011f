"""The document of all parameters, written by a command.

`python -m timely_llm.ros.parameters_document > docs/parameters.md`
"""

from __future__ import annotations

import json

from timely_llm.ros.bags import recorder
from timely_llm.ros.dispatch import setup as dispatch
from timely_llm.ros.fleet import robot_fleet, talkers
from timely_llm.ros.parameters import NodeParameter
from timely_llm.ros.probes import delivery_probe
from timely_llm.ros.server import setup

NODES = {
    "plan_server": setup.PARAMETERS,
    "dispatcher": dispatch.PARAMETERS,
    "robot_fleet": robot_fleet.PARAMETERS,
    "talkers": talkers.PARAMETERS,
    "recorder": recorder.PARAMETERS,
    "delivery_probe": delivery_probe.PARAMETERS,
}
"""The table of each node that declares parameters."""
TYPES = {
    bool: "bool", int: "integer", float: "double", str: "string", list: "string array",
}  # fmt: skip
HEAD = """# Parameters

`python -m timely_llm.ros.parameters_document` writes this document from the nodes' declarations; a
test compares both. A value that is not allowed ends the node, or is refused, with one sentence.
`ros2 param describe` prints the same at run time.

Parameters of `plan_server` can be set while it is not configured (`ros2 lifecycle set /plan_server
cleanup`, `ros2 param set ...`, `configure`, `activate`), except those marked *at the start*. All
other nodes read their parameters at the start. Parameters that name a file, a model or an option of
the engine are marked *at the start*: any node can set a parameter of any other, and no message may
choose what a server reads, runs or writes. `ros2 param set` refuses them as read-only, and it
refuses a policy of your own. Give them by `--ros-args -p`, a launch argument or a parameter file.

Topics take `qos_overrides`: `qos_overrides./plan_server/segments.publisher.depth` (and `.history`,
`.reliability`), with the topic's full name; likewise `stream_chunks`, `stats` and `/diagnostics`
(`publisher`), and `plan_requests`, `stream_requests` and `execution_reports` (`subscription`).
"""


def document() -> str:
    """Return the whole document."""
    parts = [HEAD]
    for node, parameters in NODES.items():
        parts.append(f"\n## {node}\n\n| name | type | default | allowed | meaning |\n")
        parts.append("|---|---|---|---|---|\n")
        settable = any(not parameter.fixed for parameter in parameters)
        parts += [row(parameter, settable) for parameter in parameters]
    return "".join(parts)


def row(parameter: NodeParameter, settable: bool) -> str:
    """Return a parameter's line.

    Args:
        parameter: the parameter.
        settable: other parameters of its node can be set later.
    """
    when = "; at the start" if settable and parameter.fixed else ""
    default = json.dumps(parameter.default)
    kind = TYPES[type(parameter.default)]
    return (
        f"| `{parameter.name}` | {kind} | `{default}` | {allowed(parameter)} |"
        f" {parameter.description}{when} |\n"
    )


def allowed(parameter: NodeParameter) -> str:
    """Return the allowed values of a parameter in words."""
    if parameter.choices:
        choices = ", ".join(f"`{choice}`" for choice in parameter.choices)
        own = f"; at the start also your own, `{parameter.reference}`"
        return choices + own * bool(parameter.reference)
    return "" if parameter.low is None else parameter.range


if __name__ == "__main__":
    print(document(), end="")
