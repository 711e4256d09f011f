"""Start the plan server: `ros2 launch timely_llm plan_server.launch.py engine:=simulated`."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path

from launch import LaunchContext, LaunchDescription
from launch.actions import DeclareLaunchArgument, LogInfo, OpaqueFunction, TimerAction
from launch.events.process import ProcessExited
from launch.substitutions import LaunchConfiguration, PathJoinSubstitution
from launch_ros.actions import Node
from launch_ros.parameter_descriptions import ParameterValue
from launch_ros.substitutions import FindPackageShare

# Parameters that are also arguments; params_file has the values of arguments that are not given.
PARAMETERS = {
    "engine": (str, "what runs the model: transformers, vllm, simulated, or my_module:MyEngine"),
    "model": (str, "folder or Hugging Face id of a causal model"),
    "engine_args": (list[str], "YAML list of options of vLLM or of your own engine: name=value"),
    "engine_process": (bool, "true: the engine runs in a process of its own"),
    "policy": (
        str,
        "chooses each step's requests: deadline, timely+slice, timely, slice, edf, stream, ..., or"
        " my_module:MyPolicy",
    ),
    "policy_options": (list[str], "YAML list of options of the policy: name=value"),
    "replicas": (int, "number of servers with an engine each behind this node"),
    "cluster": (str, "where replicas run: processes, ray, or ray:HOST:PORT"),
    "replica_resources": (list[str], "YAML list of what a replica takes of a node: name=number"),
    "pace": (str, "profile with the step times to keep, or none"),
    "skill_sets": (list[str], "YAML list of skill set files to register at the start"),
    "constrained": (bool, "true: the model may choose only what a skill set's grammar allows"),
    "accept_plans": (bool, "true: take plans written by hand, which come with their requests"),
    "recovery_journal": (str, "file with the open requests, for a server that is started again"),
    "agent_keys": (str, "file with an agent's key, or folder with such files"),
    "require_auth": (bool, "true: agents without a key are refused"),
    "cloud_url": (str, "base of the OpenAI-compatible API of a cloud that helps"),
    "cloud_model": (str, "name of the cloud's model"),
    "cloud_key_variable": (str, "name of the environment variable with the cloud's key"),
    "executor": (str, "how the node waits for messages: single, events"),
    "autostart": (bool, "false: the node waits for `ros2 lifecycle set`"),
    "use_sim_time": (bool, "true: robots are simulated, and their time is that of /clock"),
}


OTHERS = {"params_file", "namespace", "log_level", "sigterm_timeout", "respawn"}
RESPAWN_S = 2.0
"""Wait before a server that has ended is started again, seconds."""
NO_RESPAWN = (0, 78)
"""Statuses of a server that was asked to end, or that would end so again."""


LIKE = 0.75
"""Two names are almost the same from this share of equal letters on."""


def misspelt(context: LaunchContext, known: Sequence[str] = ()) -> list[LogInfo]:
    """Return a warning for each argument of the command line that is almost one of this file's.

    Launch itself ignores an argument that no file declares.
    """
    known = known or sorted({*PARAMETERS, *OTHERS})
    words = [word.partition(":=")[0] for word in context.argv if ":=" in word]
    return [
        LogInfo(msg=f"WARNING: the argument {word!r} is unknown and ignored: is {near!r} meant?")
        for word in words
        if word not in known
        for near in get_close_matches(word.lower().replace("-", "_"), known, 1, LIKE)
    ]


def check_file(context: LaunchContext, argument: str) -> None:
    """Check that an argument names a file of parameters.

    Raises:
        FileNotFoundError: there is no such file; launch itself would ignore that.
    """
    file = LaunchConfiguration(argument).perform(context)
    if not Path(file).is_file():
        raise FileNotFoundError(f"{argument} must name a file of ROS parameters, not {file!r}")


def overrides(
    context: LaunchContext, parameters: Mapping[str, tuple[type, str]]
) -> dict[str, ParameterValue]:
    """Return the parameters that are given as arguments; they count more than those of a file."""
    given = {name: LaunchConfiguration(name).perform(context) for name in parameters}
    return {
        name: ParameterValue(LaunchConfiguration(name), value_type=parameters[name][0])
        for name, value in given.items()
        if value
    }


def plan_server(context: LaunchContext, below: str = "") -> list[Node]:
    """Return the node, with the parameters of the file and of the arguments, which count more.

    Args:
        context: with the values of the arguments.
        below: namespace in that of the arguments; empty: none.

    Raises:
        FileNotFoundError: there is no such file; launch itself would ignore that.
    """
    check_file(context, "params_file")
    namespace = LaunchConfiguration("namespace").perform(context)
    parameters = [LaunchConfiguration("params_file"), overrides(context, PARAMETERS)]
    respawn = LaunchConfiguration("respawn", default="false").perform(context) == "true"

    def again(event: ProcessExited, now: LaunchContext) -> TimerAction | None:
        # Launch's own respawn would start a server for ever that ends at once.
        if now.is_shutdown or event.returncode in NO_RESPAWN:
            return None
        return TimerAction(period=RESPAWN_S, actions=[node()])

    def node() -> Node:
        return Node(
            package="timely_llm",
            executable="plan_server",
            name="plan_server",
            namespace=f"{namespace.rstrip('/')}/{below}" if below else namespace,
            parameters=parameters,
            ros_arguments=["--log-level", LaunchConfiguration("log_level")],
            output="screen",
            on_exit=again if respawn else None,
            # To finish open requests and to free the model may take longer than launch's own 5 s.
            sigterm_timeout=LaunchConfiguration("sigterm_timeout", default="30"),
        )

    return [node()]


def parameter_arguments(
    parameters: Mapping[str, tuple[type, str]], file: str
) -> list[DeclareLaunchArgument]:
    """Return the arguments that are parameters; `file` is the argument with the other values."""
    return [
        DeclareLaunchArgument(name, default_value="", description=f"{words}; empty: as in {file}")
        for name, (_, words) in parameters.items()
    ]


def arguments() -> list[DeclareLaunchArgument]:
    """Return all arguments of a server."""
    params_file = PathJoinSubstitution(
        [FindPackageShare("timely_llm"), "config", "plan_server.yaml"]
    )
    return [
        DeclareLaunchArgument(
            "params_file",
            default_value=params_file,
            description="file with the parameters of the node",
        ),
        *parameter_arguments(PARAMETERS, "params_file"),
        DeclareLaunchArgument("namespace", default_value="", description="namespace of the nodes"),
        DeclareLaunchArgument(
            "log_level", default_value="info", description="debug, info, warn, error or fatal"
        ),
        DeclareLaunchArgument(
            "respawn",
            default_value="false",
            choices=["true", "false"],
            description="true: start a server again that has ended by itself, if that can help",
        ),
    ]


def generate_launch_description() -> LaunchDescription:
    """Return the arguments and the node."""
    return LaunchDescription(
        [
            *arguments(),
            OpaqueFunction(function=misspelt),
            OpaqueFunction(function=plan_server),
        ]
    )
