"""Nodes that benchmarks start."""
