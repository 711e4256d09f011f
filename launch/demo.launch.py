"""Start the plan server and simulated robots, until the robots are done.

`ros2 launch timely_llm demo.launch.py robots:=8 duration_s:=30`; plan_server.launch.py's arguments
are arguments of this file too.
"""

from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument, IncludeLaunchDescription, Shutdown
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.substitutions import LaunchConfiguration, PathJoinSubstitution
from launch_ros.actions import Node
from launch_ros.parameter_descriptions import ParameterValue
from launch_ros.substitutions import FindPackageShare

PARAMETERS = {
    "robots": (int, "8", "how many simulated robots"),
    "duration_s": (float, "30.0", "seconds in which they ask for plans"),
    "seed": (int, "0", "seed of everything random"),
    "failure_share": (float, "0.0", "share of segments that robots cannot execute"),
}


def generate_launch_description() -> LaunchDescription:
    """Return the arguments, the server and the robots."""
    server = PathJoinSubstitution(
        [FindPackageShare("timely_llm"), "launch", "plan_server.launch.py"]
    )
    return LaunchDescription(
        [
            *(
                DeclareLaunchArgument(name, default_value=default, description=words)
                for name, (_, default, words) in PARAMETERS.items()
            ),
            IncludeLaunchDescription(PythonLaunchDescriptionSource(server)),
            # Without a name: it would be given to the node of each robot in the process, too.
            Node(
                package="timely_llm",
                executable="robot_fleet",
                namespace=LaunchConfiguration("namespace"),
                parameters=[
                    {
                        name: ParameterValue(LaunchConfiguration(name), value_type=kind)
                        for name, (kind, _, _) in PARAMETERS.items()
                    }
                ],
                output="screen",
                on_exit=Shutdown(reason="the robots are done"),
            ),
        ]
    )
