"""Start the plan server, simulated robots and, with `conversations`, people, until they are done.

`ros2 launch timely_llm demo.launch.py robots:=8 conversations:=4 duration_s:=30`; the arguments of
plan_server.launch.py are arguments of this file too.
"""

from difflib import get_close_matches

from launch import LaunchContext, LaunchDescription
from launch.actions import (
    DeclareLaunchArgument,
    IncludeLaunchDescription,
    LogInfo,
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
    "robots": ("8", "number of simulated robots"),
    "conversations": ("0", "number of simulated people who talk with the model at the same time"),
    "duration_s": ("30.0", "seconds in which robots and people ask"),
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


LIKE = 0.75
"""Two names are almost the same from this share of equal letters on."""


def misspelt(context: LaunchContext) -> list[LogInfo]:
    """Return a warning for each argument of the command line that is almost one of this file's.

    Launch itself ignores an argument that no file declares.
    """
    words = [word.partition(":=")[0] for word in context.argv if ":=" in word]
    return [
        LogInfo(msg=f"WARNING: the argument {word!r} is unknown and ignored: is {near!r} meant?")
        for word in words
        if word not in ARGUMENTS
        for near in get_close_matches(word.lower().replace("-", "_"), sorted(ARGUMENTS), 1, LIKE)
    ]


def clients(context: LaunchContext) -> list[Node]:
    """Return the nodes of robots and people; the launch ends with the last of them."""
    tables = {"robot_fleet": ROBOT_FLEET}
    if LaunchConfiguration("conversations").perform(context) != "0":
        tables["talkers"] = TALKERS
    working = set(tables)
    # People always keep to the wall clock.
    simulated = {}
    if LaunchConfiguration("use_sim_time").perform(context):
        use_sim_time = ParameterValue(LaunchConfiguration("use_sim_time"), value_type=bool)
        simulated["robot_fleet"] = {"use_sim_time": use_sim_time}

    def ended(name: str, event: ProcessExited) -> Shutdown | None:
        working.discard(name)
        if working and event.returncode == 0:
            return None
        return Shutdown(reason="all are done" if event.returncode == 0 else f"{name} failed")

    # Without a name: launch would give it to the node of each robot in the process.
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
                | simulated.get(name, {})
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
            OpaqueFunction(function=misspelt),
            IncludeLaunchDescription(PythonLaunchDescriptionSource(server)),
            OpaqueFunction(function=clients),
        ]
    )
