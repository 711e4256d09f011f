"""The error of this tool."""

from __future__ import annotations


class ComparisonError(Exception):
    """A commit cannot be recorded, or a record cannot be read: one sentence."""
