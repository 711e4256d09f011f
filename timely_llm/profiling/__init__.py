"""Fitting the execution-time model to what robots took (paper 001 §4.3 and §6)."""
