"""Experiments with several servers behind one dispatcher."""
