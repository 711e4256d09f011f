"""Start the plan server, simulated robots and, if asked for, people, until they are done.

`ros2 launch timely_llm demo.launch.py robots:=8 conversations:=4 duration_s:=30`;
plan_server.launch.py's arguments are arguments of this file too.
"""

from launch import LaunchContext, LaunchDescription
from launch.actions import (
    DeclareLaunchArgument,
    IncludeLaunchDescription,
    OpaqueFunction,
    Shutdown,
)
from launch.events.process import ProcessExited
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.substitutions import LaunchConfiguration, PathJoinSubstitution
from launch_ros.actions import Node
from launch_ros.parameter_descriptions import ParameterValue
from launch_ros.substitutions import FindPackageShare

ARGUMENTS = {
    "robots": ("8", "how many simulated robots"),
    "conversations": ("0", "how many simulated people talk with the model at the same time"),
    "duration_s": ("30.0", "seconds in which all of them ask"),
    "seed": ("0", "seed of everything random"),
    "failure_share": ("0.0", "share of segments that robots cannot execute"),
}
# The parameters of each node, and the arguments that give them.
ROBOT_FLEET = {
    "robots": ("robots", int),
    "duration_s": ("duration_s", float),
    "seed": ("seed", int),
    "failure_share": ("failure_share", float),
}
TALKERS = {
    "people": ("conversations", int),
    "duration_s": ("duration_s", float),
    "seed": ("seed", int),
}


def clients(context: LaunchContext) -> list[Node]:
    """Return the robots, and the people if there are any; the launch ends with the last of them."""
    tables = {"robot_fleet": ROBOT_FLEET}
    if LaunchConfiguration("conversations").perform(context) != "0":
        tables["talkers"] = TALKERS
    working = set(tables)

    def ended(name: str, event: ProcessExited) -> Shutdown | None:
        working.discard(name)
        if working and event.returncode == 0:
            return None
        return Shutdown(reason="all are done" if event.returncode == 0 else f"{name} failed")

    # Without a name: it would be given to the node of each robot in the process, too.
    return [
        Node(
            package="timely_llm",
            executable=name,
            namespace=LaunchConfiguration("namespace"),
            parameters=[
                {
                    parameter: ParameterValue(LaunchConfiguration(argument), value_type=kind)
                    for parameter, (argument, kind) in table.items()
                }
            ],
            output="screen",
            on_exit=lambda event, _, name=name: ended(name, event),
        )
        for name, table in tables.items()
    ]


def generate_launch_description() -> LaunchDescription:
    """Return the arguments, the server and its clients."""
    server = PathJoinSubstitution(
        [FindPackageShare("timely_llm"), "launch", "plan_server.launch.py"]
    )
    return LaunchDescription(
        [
            *(
                DeclareLaunchArgument(name, default_value=default, description=words)
                for name, (default, words) in ARGUMENTS.items()
            ),
            IncludeLaunchDescription(PythonLaunchDescriptionSource(server)),
            OpaqueFunction(function=clients),
        ]
    )
