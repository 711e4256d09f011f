"""Clouds and edges in virtual time: questions, sketches, expansions, and what people get."""
