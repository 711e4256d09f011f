"""`timely-llm trace`: workloads composed, imported, recorded, replayed, converted and explained."""

import click

from timely_llm.cli.help import Group


@click.group(
    cls=Group,
    places={
        "compose": "trace.compose:compose",
        "convert": "trace.compose:convert",
        "explain": "trace.explain:explain",
        "import": "trace.compose:import_",
        "info": "trace.compose:info",
        "record": "trace.record:record",
        "replay": "trace.replay:replay",
    },
)
def trace() -> None:
    """Workloads: requests, their times, and how long robots take.

    A trace is a .jsonl file, an .mcap file, or the folder of a bag, as its name says.
    """
