"""Recorded runs: what a bag of a real run shows, as results."""
