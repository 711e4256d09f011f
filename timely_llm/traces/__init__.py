"""Workloads as data: what robots and people ask, when, and how long robots take."""
