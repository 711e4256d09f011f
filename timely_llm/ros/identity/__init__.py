"""Signatures in ROS messages."""
