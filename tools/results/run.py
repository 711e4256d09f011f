"""Runs of the pages' experiments: each document is made once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from timely_llm.experiments.results.document import DocumentError, read_run
from tools.results.page import Command, Page, ResultsError, deciding

TIMELY_LLM = (sys.executable, "-c", "from timely_llm.entry import main; main()")
"""The command `timely-llm` of this environment and of this tree."""


def run_pages(
    pages: Sequence[Page],
    folder: Path,
    seeds: int | None = None,
    processes: int = 1,
    published: Path | None = None,
    say: Callable[[str], None] = print,
) -> int:
    """Run what pages lack, and return the number of commands that failed.

    Args:
        pages: the pages.
        folder: folder of the documents; it is made if it does not exist.
        seeds: number of seeds; None for the pages'.
        processes: processes of each command.
        published: folder of published data.
        say: takes a sentence for each command.
    """
    folder.mkdir(parents=True, exist_ok=True)
    failed = 0
    for command in (command for page in pages for command in page.commands):
        try:
            words = command.words(seeds, published)
            if is_finished(command, words, folder):
                say(f"{command.name}: {command.document(folder)} is finished")
                continue
            say(f"{command.name}: {' '.join(words)}")
            _run(command, words, folder, processes)
        except ResultsError as error:
            failed += 1
            say(f"{command.name} failed: {error}")
    return failed


def is_finished(command: Command, words: Sequence[str], folder: Path) -> bool:
    """Return whether a command's document is there and was made by the same words."""
    path = command.document(folder)
    try:
        return path.exists() and deciding(read_run(path).command) == list(words)
    except (DocumentError, ResultsError):
        return False


def _run(command: Command, words: Sequence[str], folder: Path, processes: int) -> None:
    """Run a command.

    Raises:
        ResultsError: it failed.
    """
    jobs = ["--jobs", str(processes), "--json", str(command.document(folder))]
    done = subprocess.run(
        [*TIMELY_LLM, *words[1:], *jobs], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        raise ResultsError(f"status {done.returncode}: {lines[-1] if lines else 'no sentence'}")
