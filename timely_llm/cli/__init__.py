"""The command `timely-llm`, one file for each of its commands.

A command reads options and prints sentences and tables; its work belongs to the room that a library
user would import. `main.py` lists the commands; `python -m timely_llm.cli.completion_table` follows
a change.
"""

from timely_llm.cli.main import main

__all__ = ["main"]
