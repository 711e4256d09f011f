"""Traces in rosbags and MCAP files."""
