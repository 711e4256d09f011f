"""Start several plan servers and a dispatcher that has the interface of one.

`ros2 launch timely_llm servers.launch.py servers:=3 engine:=simulated`; the arguments of
plan_server.launch.py are arguments of this file too, and hold for each server.
"""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from launch import LaunchContext, LaunchDescription
from launch.actions import DeclareLaunchArgument, OpaqueFunction
from launch.substitutions import LaunchConfiguration, PathJoinSubstitution
from launch_ros.actions import Node
from launch_ros.substitutions import FindPackageShare

MOST = 64

# Parameters of the dispatcher that are also arguments.
PARAMETERS = {
    "dispatcher": (
        str,
        "rule that assigns requests: most-worth, two-choices, round-robin, ... or my_module:MyRule",
    ),
    "hedge": (bool, "true: ask two servers for urgent plans, and end the one that delivers later"),
}


def one_server() -> ModuleType:
    """Return the launch file of one server, as a module."""
    spec = spec_from_file_location(
        "plan_server_launch", Path(__file__).with_name("plan_server.launch.py")
    )
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ONE = one_server()
NAMES = sorted({"servers", "dispatcher_params_file", *PARAMETERS, *ONE.PARAMETERS, *ONE.OTHERS})


def servers(context: LaunchContext) -> list[Node]:
    """Return the servers, in namespaces s1, s2 and so on.

    Raises:
        ValueError: their number is impossible.
    """
    given = LaunchConfiguration("servers").perform(context)
    if not given.isdecimal() or not 1 <= int(given) <= MOST:
        raise ValueError(f"servers must be a number from 1 to {MOST}, not {given!r}")
    return [
        node for number in range(int(given)) for node in ONE.plan_server(context, f"s{number + 1}")
    ]


def dispatcher(context: LaunchContext) -> list[Node]:
    """Return the dispatcher, with the parameters of its file and of the arguments.

    Raises:
        FileNotFoundError: there is no such file; launch itself would ignore that.
    """
    file = LaunchConfiguration("dispatcher_params_file")
    ONE.check_file(context, "dispatcher_params_file")
    return [
        Node(
            package="timely_llm",
            executable="dispatcher",
            name="plan_server",
            namespace=LaunchConfiguration("namespace"),
            parameters=[file, ONE.overrides(context, PARAMETERS)],
            ros_arguments=["--log-level", LaunchConfiguration("log_level")],
            output="screen",
            sigterm_timeout=LaunchConfiguration("sigterm_timeout", default="30"),
        )
    ]


def generate_launch_description() -> LaunchDescription:
    """Return the arguments, the servers and the dispatcher."""
    params_file = PathJoinSubstitution(
        [FindPackageShare("timely_llm"), "config", "dispatcher.yaml"]
    )
    return LaunchDescription(
        [
            DeclareLaunchArgument(
                "servers", default_value="2", description="how many plan servers"
            ),
            DeclareLaunchArgument(
                "dispatcher_params_file",
                default_value=params_file,
                description="file with the parameters of the dispatcher",
            ),
            *ONE.parameter_arguments(PARAMETERS, "dispatcher_params_file"),
            *ONE.arguments(),
            OpaqueFunction(function=lambda context: ONE.misspelt(context, NAMES)),
            OpaqueFunction(function=servers),
            OpaqueFunction(function=dispatcher),
        ]
    )
