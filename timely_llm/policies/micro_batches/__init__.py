"""Micro-batches of a pipeline: their token budgets, their number, and their chunks of prompts."""
