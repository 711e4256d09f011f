"""Policies decide each step: which sequences take part, with how many tokens.

One file or folder a policy, a class with the method `plan`, and a line in `registry.py`. What
several policies need (packing, step times, learned lengths) has a file of its own. A policy has no
clock, no I/O and no engine.
"""
