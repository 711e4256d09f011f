"""Processes that end with the one that started them, and signals.

Whatever starts, watches or ends a process belongs here. No other room calls `subprocess` for a
process that outlives the call: it takes a `Child`, or a `ModuleProcess` of this package.
"""
