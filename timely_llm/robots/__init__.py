"""Robots: how a robot follows its plan, and models of robots and people.

`PlanFollower` follows the plans of real and of simulated robots. The subpackage `client` executes a
plan with a program's callables. The models stand for robots and people in experiments, the demo and
simulated fleets. Nothing here knows ROS or the serving loop.
"""
