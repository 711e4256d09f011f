"""Experiments on the wall clock, with a real engine."""
