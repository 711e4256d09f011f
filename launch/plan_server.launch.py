"""Start the plan server: `ros2 launch timely_llm plan_server.launch.py engine:=simulated`."""

from launch import LaunchContext, LaunchDescription
from launch.actions import DeclareLaunchArgument, OpaqueFunction
from launch.substitutions import LaunchConfiguration, PathJoinSubstitution
from launch_ros.actions import Node
from launch_ros.parameter_descriptions import ParameterValue
from launch_ros.substitutions import FindPackageShare

# Parameters that can be given as arguments; those not given are taken from params_file.
PARAMETERS = {
    "engine": (str, "what runs the model: transformers, vllm, simulated"),
    "model": (str, "folder or Hugging Face id of a causal model"),
    "engine_args": (list[str], "YAML list of options of vLLM's own, each as name=value"),
    "engine_process": (bool, "true: the engine runs in a process of its own"),
    "policy": (
        str,
        "who takes part in each step: timely+slice, timely, deadline, slice, edf, stream, ...",
    ),
    "pace": (str, "profile of the machine whose step times to keep, or none"),
    "skill_sets": (list[str], "YAML list of skill set files to register at the start"),
    "constrained": (bool, "true: the model may choose only what a skill set's grammar allows"),
    "executor": (str, "how the node waits for messages: single, events"),
    "autostart": (bool, "false: the node waits for `ros2 lifecycle set`"),
}


def plan_server(context: LaunchContext) -> list[Node]:
    """Return the node, with the parameters of the file and the arguments over them."""
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
            # It finishes what is in work, and frees the model: launch's own 5 s may not be enough.
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
            OpaqueFunction(function=plan_server),
        ]
    )
