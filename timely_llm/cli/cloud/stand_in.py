"""`timely-llm cloud-stand-in`: a cloud of one machine, for demos and tests."""

from __future__ import annotations

import click

from timely_llm.cli.options import MODEL, NO_PACE, PACE_NAMES, OwnOr, Pace
from timely_llm.engines.registry import ENGINES, make_engine


@click.command("cloud-stand-in")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port; 0: any free one.")
@click.option("--host", default="127.0.0.1", help="Address to listen at; it needs no key.")
@click.option("--engine", type=OwnOr(ENGINES), metavar="ENGINE", default="transformers",
              help=f"What runs the model: {', '.join(ENGINES)}, or your own as my_module:MyEngine."
              )  # fmt: skip
@MODEL
@click.option("--name", default="stand-in", help="Name of the model, for its clients.")
@click.option("--pace", type=Pace(), default=NO_PACE,
              help=f"Stretch each step to the time that it takes on this hardware. {PACE_NAMES}"
              )  # fmt: skip
@click.option("--most", type=click.IntRange(1, 1024), default=64, help="Most answers at a time.")
@click.option("--ignore-system", is_flag=True,
              help="Leave out the system's messages, but for the question for a plan's steps. The"
              " embedded model follows no other instruction, and the sentences of its answer serve"
              " as a sketch.")  # fmt: skip
def cloud_stand_in(
    port: int, host: str, engine: str, model: str, name: str, pace: str, most: int,
    ignore_system: bool,
) -> None:  # fmt: skip
    """Run a cloud of this machine until Ctrl-C: an engine with OpenAI's HTTP interface.

    It prints its URL, which is a server's cloud_url.
    """
    from timely_llm.demo.stand_in import CloudStandIn
    from timely_llm.resources import EMBEDDED_MODEL, resource

    chosen = None if pace == NO_PACE else pace
    folder = model or (str(resource(EMBEDDED_MODEL)) if engine != "simulated" else "")
    stand_in = CloudStandIn(
        lambda: make_engine(engine, model=folder, pace=chosen), name, host, port, most,
        heeds_system=not ignore_system,
    )  # fmt: skip
    stand_in.show_and_serve()
