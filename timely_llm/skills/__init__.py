"""Skill sets, plan language, stop checkers and the execution-time model."""
