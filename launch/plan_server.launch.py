"""Start the plan server: `ros2 launch timely_llm plan_server.launch.py engine:=simulated`."""

from difflib import get_close_matches
from pathlib import Path

from launch import LaunchContext, LaunchDescription
from launch.actions import DeclareLaunchArgument, LogInfo, OpaqueFunction
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
    "pace": (str, "profile with the step times to keep, or none"),
    "skill_sets": (list[str], "YAML list of skill set files to register at the start"),
    "constrained": (bool, "true: the model may choose only what a skill set's grammar allows"),
    "accept_plans": (bool, "true: take plans written by hand, which come with their requests"),
    "executor": (str, "how the node waits for messages: single, events"),
    "autostart": (bool, "false: the node waits for `ros2 lifecycle set`"),
    "use_sim_time": (bool, "true: robots are simulated, and their time is that of /clock"),
}


OTHERS = {"params_file", "namespace", "log_level", "sigterm_timeout"}


LIKE = 0.75
"""Two names are almost the same from this share of equal letters on."""


def misspelt(context: LaunchContext) -> list[LogInfo]:
    """Return a warning for each argument of the command line that is almost one of this file's.

    Launch itself ignores an argument that no file declares.
    """
    known = sorted({*PARAMETERS, *OTHERS})
    words = [word.partition(":=")[0] for word in context.argv if ":=" in word]
    return [
        LogInfo(msg=f"WARNING: the argument {word!r} is unknown and ignored: is {near!r} meant?")
        for word in words
        if word not in known
        for near in get_close_matches(word.lower().replace("-", "_"), known, 1, LIKE)
    ]


def plan_server(context: LaunchContext) -> list[Node]:
    """Return the node, with the parameters of the file and of the arguments, which count more.

    Raises:
        FileNotFoundError: there is no such file; launch itself would ignore that.
    """
    file = LaunchConfiguration("params_file").perform(context)
    if not Path(file).is_file():
        raise FileNotFoundError(f"params_file must name a file of ROS parameters, not {file!r}")
    given = {name: LaunchConfiguration(name).perform(context) for name in PARAMETERS}
    overrides = {
        name: ParameterValue(LaunchConfiguration(name), value_type=PARAMETERS[name][0])
        for name, value in given.items()
        if value
    }
    return [
        Node(
            package="timely_llm",
            executable="plan_server",
            name="plan_server",
            namespace=LaunchConfiguration("namespace"),
            parameters=[LaunchConfiguration("params_file"), overrides],
            ros_arguments=["--log-level", LaunchConfiguration("log_level")],
            output="screen",
            # To finish open requests and to free the model may take longer than launch's own 5 s.
            sigterm_timeout=LaunchConfiguration("sigterm_timeout", default="30"),
        )
    ]


def generate_launch_description() -> LaunchDescription:
    """Return the arguments and the node."""
    params_file = PathJoinSubstitution(
        [FindPackageShare("timely_llm"), "config", "plan_server.yaml"]
    )
    return LaunchDescription(
        [
            DeclareLaunchArgument(
                "params_file",
                default_value=params_file,
                description="file with the parameters of the node",
            ),
            *(
                DeclareLaunchArgument(
                    name, default_value="", description=f"{words}; empty: as in params_file"
                )
                for name, (_, words) in PARAMETERS.items()
            ),
            DeclareLaunchArgument(
                "namespace", default_value="", description="namespace of the nodes"
            ),
            DeclareLaunchArgument(
                "log_level", default_value="info", description="debug, info, warn, error or fatal"
            ),
            OpaqueFunction(function=misspelt),
            OpaqueFunction(function=plan_server),
        ]
    )
