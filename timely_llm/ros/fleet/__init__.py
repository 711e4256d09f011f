"""Robots and people as ROS nodes."""
