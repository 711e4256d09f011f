"""Micro-batches of a pipeline: their token budgets, their number, and the layers of its stages."""
