"""The command `timely-llm`, one file for each of its commands."""

from timely_llm.cli.main import main

__all__ = ["main"]
