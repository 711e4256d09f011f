"""Runs of the pages' experiments: each document is made once for the code that is there."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import timely_llm
from timely_llm.experiments.registry import experiment
from timely_llm.experiments.results.document import DocumentError, read_run, write_run
from timely_llm.resources import resource
from tools.results.page import Command, Page, ResultsError, deciding
from tools.results.part import OPTION, policies_of, with_rows, without_policies

TIMELY_LLM = (sys.executable, "-c", "from timely_llm.entry import main; main()")
"""The command `timely-llm` of this environment and of this tree."""

ROOMS = (
    "cloud", "core", "dispatch", "engines", "experiments", "policies", "progressive", "serving",
    "skills", "traces",
)  # fmt: skip
"""Rooms of the package that decide results."""


@dataclass(frozen=True)
class Runs:
    """How commands are run.

    Attributes:
        folder: folder of the documents.
        seeds: number of seeds; None for the commands'.
        published: folder of published data.
        any_code: documents that other code made count as finished.
        policies: only these are run, and their rows join the documents that stand; empty for all.
    """

    folder: Path
    seeds: int | None = None
    published: Path | None = None
    any_code: bool = False
    policies: tuple[str, ...] = ()

    def is_finished(self, command: Command) -> bool:
        """Return whether a command's document is there, made by the same words and code.

        Raises:
            ResultsError: the command needs published data, and no folder is given.
        """
        path, words = command.document(self.folder), command.words(self.seeds, self.published)
        try:
            if not path.exists() or deciding(read_run(path).command) != words:
                return False
        except (DocumentError, ResultsError):
            return False
        return self.any_code or made_by_this_code(command, self.folder)

    def run(self, command: Command) -> str:
        """Run a command, unless its document is finished; return a sentence about it.

        Raises:
            ResultsError: it failed.
        """
        document, words = command.document(self.folder), command.words(self.seeds, self.published)
        made_by, begin_s = code(), time.monotonic()
        if self.policies:
            return self._run_part(command, words, made_by)
        if self.is_finished(command):
            return f"{document} is finished"
        _execute(command, words, document)
        _code_file(command, self.folder).write_text(made_by + "\n", encoding="utf-8")
        return f"{' '.join(words)} ({(time.monotonic() - begin_s) / 60:.1f} min)"

    def _run_part(self, command: Command, words: Sequence[str], made_by: str) -> str:
        """Run a command's share of the wanted policies; its rows join the document."""
        every, begin_s = policies_of(command), time.monotonic()
        wanted = [policy for policy in every if policy in self.policies]
        if not wanted:
            return f"{command.name} has none of these policies"
        document = command.document(self.folder)
        whole, part = read_run(document), document.with_suffix(".part")
        words_of_part = [*without_policies(words), OPTION, ",".join(wanted)]
        try:
            _execute(command, words_of_part, part)
            made = with_rows(whole, read_run(part), every, words)
        finally:
            part.unlink(missing_ok=True)
        write_run(made, document)
        marks, others = _code_file(command, self.folder), len(every) > len(wanted)
        known = marks.read_text(encoding="utf-8").split() if marks.exists() and others else []
        marks.write_text("\n".join(dict.fromkeys([*known, made_by])) + "\n", encoding="utf-8")
        return f"{' '.join(words_of_part)} ({(time.monotonic() - begin_s) / 60:.1f} min)"


def say_now(sentence: str) -> None:
    """Print a sentence at once, for readers of a file that grows."""
    print(sentence, flush=True)


def run_pages(
    pages: Sequence[Page],
    runs: Runs,
    processes: int = 1,
    say: Callable[[str], None] = say_now,
) -> int:
    """Run what pages lack, the longest commands first; return how many failed.

    Args:
        pages: the pages.
        runs: how; its folder is made if it does not exist.
        processes: commands at once; each is one process.
        say: takes a sentence for each command.
    """
    runs.folder.mkdir(parents=True, exist_ok=True)

    def attempt(command: Command) -> bool:
        try:
            say(f"{command.name}: {runs.run(command)}")
        except (ResultsError, DocumentError) as error:
            say(f"{command.name} failed: {error}")
            return False
        return True

    commands = sorted(
        (command for page in pages for command in page.commands),
        key=lambda command: -command.minutes,
    )
    with ThreadPoolExecutor(processes) as at_once:
        return sum(not done for done in at_once.map(attempt, commands))


def made_by_this_code(command: Command, folder: Path) -> bool:
    """Return whether a document was made by the code that is there now."""
    path = _code_file(command, folder)
    return path.exists() and path.read_text(encoding="utf-8").strip() == code()


def code() -> str:
    """Return a digest of the code and of the data that decide results."""
    made = hashlib.sha256()
    package = Path(timely_llm.__file__).parent
    files = [path for room in ROOMS for path in (package / room).rglob("*.py")]
    for path in sorted((*files, *resource("config").rglob("*.yaml"))):
        made.update(path.read_bytes())
    return made.hexdigest()[:16]


def _execute(command: Command, words: Sequence[str], document: Path) -> None:
    """Run an experiment that writes a document.

    Raises:
        ResultsError: it failed.
    """
    done = subprocess.run(
        [*TIMELY_LLM, *words[1:], *_jobs(command), "--json", str(document)],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        last = lines[-1] if lines else "no sentence"
        raise ResultsError(f"status {done.returncode}: {last}")


def _code_file(command: Command, folder: Path) -> Path:
    """Return the file beside a document with the digest of the code that made it."""
    return command.document(folder).with_suffix(".code")


def _jobs(command: Command) -> list[str]:
    """Return the option for one process, where the experiment has it."""
    return ["--jobs", "1"] if hasattr(experiment(command.experiment).defaults, "jobs") else []
