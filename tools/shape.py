"""The size and the shape of the package, of commits side by side.

    python -m tools.shape                  # the working tree as it is
    python -m tools.shape da21afc          # a commit beside the working tree, with the ratio
    python -m tools.shape da21afc HEAD --json FILE

Lines are those of the Python files of timely_llm/ that git tracks. A circle is a set of modules
that reach each other by the imports at their top. The files and calls of a decode turn and of a
plan up to its first segment are those that test/serving/test_path_length.py counts; of a commit
without that test they are counted by the first version of it. A dash: it does not run there.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path, PurePosixPath

from tools.same_behaviour.errors import ComparisonError
from tools.same_behaviour.trees import WORKING_TREE, export

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "timely_llm"
GENERATED = {f"{PACKAGE}.{name}" for name in ("msg", "srv", "action")}
"""Subpackages that the build makes of interface definitions."""
MOST_FILES = 16
"""Most Python files of a folder."""
PATH_TEST = "test/serving/test_path_length.py"
PATHS = {
    "decode turn, {}": r"a decode turn: (\d+) files, (\d+) calls",
    "to the first segment, {}": r"to the first segment: (\d+) files, (\d+) calls",
}
"""What the test prints."""


class ShapeError(Exception):
    """There is no such commit, or it cannot be read: one sentence."""


@dataclass(frozen=True)
class Shape:
    """What a source tree looks like.

    Attributes:
        lines: of all Python files of the package.
        files: how many these are.
        folders: files and lines of each folder.
        circles: circles of imports at the top of modules.
        circles_with_types: the same with imports for type checkers.
        one_importer: modules that exactly one other module of the package imports, anywhere.
        modules: all modules but `__init__` files.
        path: files and calls that a request passes through, by `PATHS`; empty: not known.
    """

    lines: int
    files: int
    folders: Mapping[str, tuple[int, int]]
    circles: Sequence[Sequence[str]]
    circles_with_types: Sequence[Sequence[str]]
    one_importer: int
    modules: int
    path: Mapping[str, int] = field(default_factory=dict)

    @property
    def one_importer_share(self) -> float:
        """The share of modules with exactly one importer."""
        return self.one_importer / self.modules if self.modules else 0.0

    @property
    def full_folders(self) -> list[str]:
        """Folders with more files than `MOST_FILES`."""
        return [name for name, (files, _) in self.folders.items() if files > MOST_FILES]


def sources(commit: str | None) -> dict[str, str]:
    """Return the Python files of the package by path.

    Args:
        commit: the commit; None: the working tree, of which only tracked files count.

    Raises:
        ShapeError: there is no such commit, or it has no package.
    """
    if commit is None:
        listed = _git("ls-files", "-z", "--", PACKAGE).decode().split("\0")
        paths = [path for path in listed if path.endswith(".py") and (ROOT / path).is_file()]
        return {path: (ROOT / path).read_text(encoding="utf-8") for path in paths}
    try:
        full = _git("rev-parse", "--verify", "--end-of-options", f"{commit}^{{commit}}")
    except subprocess.CalledProcessError as error:
        raise ShapeError(f"{commit[:80]!r} is no commit of {ROOT}") from error
    full_id = full.decode().strip()
    listed = _git("ls-tree", "-r", "-z", "--name-only", full_id, "--", PACKAGE).decode().split("\0")
    paths = [path for path in listed if path.endswith(".py")]
    if not paths:
        raise ShapeError(f"{commit} has no {PACKAGE}/")
    asked = "".join(f"{full_id}:{path}\n" for path in paths).encode()
    answer = subprocess.run(
        ["git", "cat-file", "--batch"], cwd=ROOT, input=asked, capture_output=True, check=True
    ).stdout
    found, at = {}, 0
    for path in paths:
        end = answer.index(b"\n", at)
        size = int(answer[at:end].split()[-1])
        found[path] = answer[end + 1 : end + 1 + size].decode()
        at = end + 1 + size + 1
    return found


def shape(files: Mapping[str, str]) -> Shape:
    """Return the shape of source files by path."""
    folders: dict[str, tuple[int, int]] = {}
    for path, text in sorted(files.items()):
        folder = str(PurePosixPath(path).parent)
        number, lines = folders.get(folder, (0, 0))
        folders[folder] = number + 1, lines + len(text.splitlines())
    modules = {_module(path): text for path, text in files.items()}
    top: dict[str, set[str]] = {}
    typed: dict[str, set[str]] = {}
    importers: Counter[str] = Counter()
    for name, text in modules.items():
        top[name], typed[name], anywhere = (
            set(_imported(lines, modules)) - {name} for lines in _imports(text)
        )
        importers.update(anywhere)
    leaves = [_module(path) for path in files if not path.endswith("/__init__.py")]
    return Shape(
        lines=sum(lines for _, lines in folders.values()),
        files=len(files),
        folders=folders,
        circles=circles(top),
        circles_with_types=circles(typed),
        one_importer=sum(importers[name] == 1 for name in leaves),
        modules=len(leaves),
    )


def path(commit: str | None) -> dict[str, int]:
    """Return how many files and calls a request passes through.

    Args:
        commit: the commit; None: the working tree.

    Returns:
        By the names in `PATHS`; empty if the test does not run in that tree.
    """
    with tempfile.TemporaryDirectory(prefix="shape_") as folder:
        tree = export(commit, Path(folder, "tree"))
        test = tree.folder / PATH_TEST
        if not test.exists():
            test.parent.mkdir(parents=True, exist_ok=True)
            test.write_text(_first_version(PATH_TEST), encoding="utf-8")
        words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", PATH_TEST)
        try:
            # 1: it ran, and its limits are lower than these numbers.
            printed = tree.run(*words, statuses=(0, 1))
        except ComparisonError:
            return {}
    found: dict[str, int] = {}
    for name, pattern in PATHS.items():
        if match := re.search(pattern, printed):
            found |= {name.format("files"): int(match[1]), name.format("calls"): int(match[2])}
    return found


def _first_version(file: str) -> str:
    """Return a file as it was when it was added; one that was not committed as it is."""
    added = _git("log", "--diff-filter=A", "--format=%H", "--", file).decode().split()
    if not added:
        return (ROOT / file).read_text(encoding="utf-8")
    return _git("show", f"{added[-1]}:{file}").decode()


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the sets of at least two nodes that reach each other (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(graph.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            place = stack.index(node)
            if len(stack) - place > 1:
                found.append(sorted(stack[place:]))
            del stack[place:]

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return sorted(found)


def show(named: Sequence[tuple[str, Shape]]) -> None:
    """Print shapes side by side; of two also the ratio of the second to the first."""
    width = max(max(map(len, folder_names(named))), 34)
    rows: list[tuple[str, list[float | None]]] = [
        ("lines", [one.lines for _, one in named]),
        ("files", [one.files for _, one in named]),
        (f"folders with more than {MOST_FILES} files", [len(s.full_folders) for _, s in named]),
        ("circles of imports", [len(one.circles) for _, one in named]),
        ("circles, with imports for types", [len(one.circles_with_types) for _, one in named]),
        ("modules with one importer", [one.one_importer for _, one in named]),
        ("modules with one importer, %", [100 * s.one_importer_share for _, s in named]),
    ]
    for pattern in PATHS:
        for what in ("files", "calls"):
            name = pattern.format(what)
            rows.append((name, [one.path.get(name) for _, one in named]))
    print(f"{'':{width}}" + "".join(f"{name:>16}" for name, _ in named)
          + (f"{'ratio':>9}" if len(named) == 2 else ""))  # fmt: skip
    for label, values in rows:
        cells = "".join(
            f"{value:16.1f}" if isinstance(value, float) else f"{_count(value):>16}"
            for value in values
        )
        print(f"{label:{width}}{cells}{_ratio(values)}")
    print("\nfiles and lines of folders")
    for folder in folder_names(named):
        pairs = [one.folders.get(folder, (0, 0)) for _, one in named]
        cells = "".join(
            f"{files:8}{'*' if files > MOST_FILES else ' '}{lines:7,}" for files, lines in pairs
        )
        print(f"{folder:{width}}{cells}{_ratio([lines for _, lines in pairs])}")
    print(f"* more than {MOST_FILES} files")
    for name, one in named:
        for circle in one.circles:
            print(f"{name}: circle {' '.join(circle)}")
        for circle in one.circles_with_types:
            if circle not in one.circles:
                print(f"{name}: circle with imports for types {' '.join(circle)}")


def folder_names(named: Sequence[tuple[str, Shape]]) -> list[str]:
    """Return the folders of all shapes."""
    return sorted({folder for _, one in named for folder in one.folders})


def main(words: Sequence[str] | None = None) -> int:
    """Measure, print and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.shape", description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )  # fmt: skip
    parser.add_argument("commits", nargs="*", metavar="COMMIT")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers to FILE")
    chosen = parser.parse_args(words)
    commits: list[str | None] = list(chosen.commits)
    if len(commits) < 2:
        commits.append(None)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        named = [
            (one or WORKING_TREE, replace(shape(sources(one)), path=path(one))) for one in commits
        ]
    except (ShapeError, ComparisonError) as error:
        print(f"shape: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("shape: interrupted; nothing is left behind", file=sys.stderr)
        return 130
    show(named)
    if chosen.json is not None:
        document = {name: asdict(one) for name, one in named}
        chosen.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0


def _count(value: float | None) -> str:
    return "-" if value is None else f"{value:,}"


def _ratio(values: Sequence[float | None]) -> str:
    if len(values) != 2:
        return ""
    first, second = values
    return f"{second / first:9.3f}" if first and second is not None else f"{'-':>9}"


def _module(path: str) -> str:
    return ".".join(PurePosixPath(path).with_suffix("").parts).removesuffix(".__init__")


def _at_top(tree: ast.AST, types: bool) -> Iterator[ast.AST]:
    """Yield the statements that run when a module is imported.

    Args:
        tree: the module.
        types: whether also those under `if TYPE_CHECKING`.
    """
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            inner = node.body if types else []
            for statement in (*inner, *node.orelse):
                yield statement
                yield from _at_top(statement, types)
            continue
        yield node
        yield from _at_top(node, types)


_Import = tuple[str, tuple[str, ...]]
"""A module, and the names that are taken from it; none where the module itself is imported."""


@cache  # most files are the same in two commits
def _imports(text: str) -> tuple[tuple[_Import, ...], ...]:
    """Return a module's imports: at its top, there with those for types, and anywhere."""
    tree = ast.parse(text)
    every = (_at_top(tree, types=False), _at_top(tree, types=True), ast.walk(tree))
    return tuple(tuple(_statements(nodes)) for nodes in every)


def _statements(nodes: Iterator[ast.AST]) -> Iterator[_Import]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((alias.name, ()) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module, tuple(alias.name for alias in node.names)


def _imported(lines: Iterable[_Import], modules: Mapping[str, str]) -> Iterator[str]:
    """Yield the modules of the package that import statements name."""
    for module, names in lines:
        inner = {name: f"{module}.{name}" for name in names}
        yield from (one for one in inner.values() if one in modules)
        outside = [one for one in inner.values() if one not in modules and one not in GENERATED]
        if module in modules and (outside or not names):
            yield module


def _git(*words: str) -> bytes:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=True).stdout


if __name__ == "__main__":
    sys.exit(main())
