"""Exported source trees of commits, and commands that run in them."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.same_behaviour.errors import ComparisonError

ROOT = Path(__file__).resolve().parents[2]
WORKING_TREE = "working tree"
INSIDE = Path(__file__).resolve().parent / "inside"
"""Scripts that run in an exported tree; they import that tree's package."""
MOST_SHOWN = 300
"""Characters of a failed command's last line."""


END_S = 20.0
"""Seconds in which an interrupted command may end its own processes."""
COMMAND_S = 300.0
"""Seconds of a command on a busy machine; an idle one needs a few."""


@dataclass(frozen=True)
class Tree:
    """An exported source tree.

    Attributes:
        folder: its root.
        name: the abbreviated commit, or `WORKING_TREE`.
    """

    folder: Path
    name: str

    def run(
        self,
        *command: str | Path,
        timeout_s: float = COMMAND_S,
        statuses: Sequence[int] = (0,),
        more: Mapping[str, str] | None = None,
    ) -> str:
        """Run a Python command line in the tree; return its output.

        Args:
            command: arguments of the interpreter.
            timeout_s: seconds after which the command is killed.
            statuses: exit statuses that are no error.
            more: environment variables to add.

        Raises:
            ComparisonError: the command failed or took too long.
        """
        variables = {**self.environment(), **(more or {})}
        shown = " ".join(map(str, command)).replace(str(self.folder), ".")
        # In a session of its own: what ends the command also ends the processes that it started.
        with subprocess.Popen(
            [sys.executable, *command], cwd=self.folder, env=variables, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        ) as process:  # fmt: skip
            try:
                output, errors = process.communicate(timeout=timeout_s)
            except subprocess.TimeoutExpired as error:
                _end(process)
                raise ComparisonError(
                    f"{self.name}: `python {shown}` took longer than {timeout_s:.0f} s"
                ) from error
            except BaseException:
                _end(process)
                raise
        if process.returncode not in statuses:
            last = (errors.strip().splitlines() or ["no output"])[-1][:MOST_SHOWN]
            raise ComparisonError(
                f"{self.name}: `python {shown}` ended with status {process.returncode}: {last}"
            )
        return output

    def environment(self) -> dict[str, str]:
        """Return the environment variables of commands in the tree: nothing random, 80 columns."""
        prefix = str(Path(sys.prefix))
        paths = os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep)
        return os.environ | {
            "PYTHONPATH": str(self.folder),
            "PYTHONHASHSEED": "0",
            "OMP_NUM_THREADS": "1",
            "COLUMNS": "80",
            "TERM": "dumb",
            "NO_COLOR": "1",
            "PATH": os.pathsep.join([str(Path(prefix, "bin")), os.environ.get("PATH", "")]),
            "AMENT_PREFIX_PATH": os.pathsep.join(dict.fromkeys([prefix, *filter(None, paths)])),
        }


def _end(process: subprocess.Popen[str]) -> None:
    """End a command and all processes of its session."""
    try:
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=END_S)
    except subprocess.TimeoutExpired:
        pass
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def commit_of(name: str) -> str:
    """Return the full id of a commit.

    Raises:
        ComparisonError: the repository has no such commit.
    """
    done = subprocess.run(
        ["git", "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise ComparisonError(
            f"{name[:80]!r} is neither a commit of the repository {ROOT} nor a kept record"
        )
    return done.stdout.strip()


def export(commit: str | None, folder: Path) -> Tree:
    """Export a commit, or the working tree with what git does not ignore, to a new folder.

    Args:
        commit: the commit; None: the working tree, committed or not.
        folder: the new folder.

    Raises:
        ComparisonError: the repository has no such commit.
    """
    if commit is None:
        listed = git("ls-files", "-z", "--cached", "--others", "--exclude-standard")
        for name in dict.fromkeys(filter(None, listed.decode().split("\0"))):
            source, target = ROOT / name, folder / name
            if source.is_file() or source.is_symlink():  # others were deleted
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target, follow_symlinks=False)
        return Tree(folder, WORKING_TREE)
    full = commit_of(commit)
    folder.mkdir(parents=True)
    archive = folder.with_suffix(".tar")
    git("archive", "--format=tar", f"--output={archive}", full)
    with tarfile.open(archive) as tar:
        # Python 3.11.2, as Debian 12 has it, has no filters.
        safe: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        tar.extractall(folder, **safe)
    archive.unlink()
    return Tree(folder, git("rev-parse", "--short", full).decode().strip())


def git(*words: str) -> bytes:
    """Return the output of a git command in the repository."""
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=True).stdout
