"""Experiments with an engine alone: what it costs, and what suspension costs."""
