"""Searches for the best order of requests; each counts its evaluations."""
