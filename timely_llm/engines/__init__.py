"""Engines run steps over sequences: simulated, transformers."""
