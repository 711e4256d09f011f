"""`timely-llm report`: runs and recordings as one page, and as pictures."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from timely_llm.cli.options import FILE, FOLDER, check_output
from timely_llm.core.output_file import HTML
from timely_llm.core.requirements import need

EXISTING = click.Path(exists=True, path_type=Path)


@click.command()
@click.argument("runs", type=EXISTING, nargs=-1, required=True, metavar="RUN...")
@click.option(
    "--output", type=FILE, default=Path("report.html"), help="Write the page to this file."
)
@click.option(
    "--png", "folder", type=FOLDER, help="Also write each plot as a picture into this folder."
)
@click.option("--title", default="", show_default=False, help="Title of the page.")
def report(runs: tuple[Path, ...], output: Path, folder: Path | None, title: str) -> None:
    """Make one page of runs: tables, plots, timelines and the commands that made them.

    A RUN is a file that `timely-llm experiment --json` wrote, the folder of a demo, or a recording:
    the folder of a bag or its .mcap file. The page is a single HTML file that needs no network.
    Runs of the same experiment are also compared.
    """
    if output.exists() and any(path.samefile(output) for path in runs):
        raise click.BadParameter(f"{output} is a RUN itself", param_hint="--output")
    check_output(output, "--output", HTML)
    need("a report", "reports")
    # Charts take a second to import.
    from timely_llm.demo.summary import is_demo, load_demo
    from timely_llm.report.load import load
    from timely_llm.report.page import unique, write_page

    console = Console(stderr=True)
    with console.status("Reading"):
        loaded = [
            (run, run.document.rows[0]["policy"] if is_demo(path) else _name(path))
            for path in runs
            for run in (load_demo(path) if is_demo(path) else [load(path)])
        ]
    documents = [run for run, _ in loaded]
    names = unique(str(name) for _, name in loaded)
    with console.status("Drawing"):
        write_page(documents, output, title, names)
    said = Console()
    said.print(Text(f"Wrote {output}"))
    if folder is not None:
        from timely_llm.report.png import write_pictures

        with console.status("Drawing pictures"):
            pictures = write_pictures(documents, folder, names)
        said.print(Text(f"Wrote {len(pictures)} pictures to {folder}"))


def _name(path: Path) -> str:
    return path.name if path.is_dir() else path.stem
