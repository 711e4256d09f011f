"""Rosbags of workloads and runs: recorded and replayed."""
