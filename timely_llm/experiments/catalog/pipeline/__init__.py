"""Experiments with a model in stages (Ahn et al. 2025)."""
