"""What the source says of itself: rooms, modules, imports, docstrings."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "timely_llm"
GENERATED = ("msg", "srv", "action")


class MapError(Exception):
    """The map names something that the code does not have: one sentence."""


@cache
def tree(path: Path) -> ast.Module:
    """Return the syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"))


def rooms() -> list[str]:
    """Return the folders of the package, but for generated ones."""
    found = (path.parent.name for path in PACKAGE.glob("*/__init__.py"))
    return sorted(name for name in found if name not in GENERATED)


def folders(room: str) -> list[Path]:
    """Return a room's folder and those in it."""
    return sorted(path.parent for path in (PACKAGE / room).rglob("__init__.py"))


def modules(folder: Path) -> list[Path]:
    """Return the modules of a folder."""
    return sorted(path for path in folder.glob("*.py") if path.name != "__init__.py")


def words(path: Path) -> str:
    """Return the first paragraph of a file's docstring, on one line."""
    return " ".join(_docstring(path).partition("\n\n")[0].split())


def summary(folder: Path) -> str:
    """Return the first paragraph of a folder's docstring, on one line."""
    return words(folder / "__init__.py")


def details(folder: Path) -> str:
    """Return the rest of a folder's docstring, each paragraph on one line.

    Raises:
        MapError: there is none.
    """
    rest = _docstring(folder / "__init__.py").partition("\n\n")[2]
    if not rest:
        raise MapError(f"{folder}/__init__.py must say what belongs into the room")
    return "\n\n".join(" ".join(part.split()) for part in rest.split("\n\n"))


@cache
def imported_rooms(room: str) -> frozenset[str]:
    """Return the other rooms that the modules of one import, wherever in them."""
    known = set(rooms()) - {room}
    paths = [path for folder in folders(room) for path in folder.glob("*.py")]
    return frozenset(name for path in paths for name in _rooms_in(tree(path))) & known


def definition(path: Path, name: str) -> ast.AST:
    """Return what a file defines by a name, such as `Loop.turn` or `POLICIES`.

    Raises:
        MapError: it defines no such thing.
    """
    node: ast.AST = tree(path)
    for part in name.split("."):
        found = [inner for inner in ast.iter_child_nodes(node) if part in _names(inner)]
        if not found:
            raise MapError(f"{path.relative_to(ROOT)} defines no {name}")
        node = found[0]
    return node


def sentence(path: Path, name: str) -> str:
    """Return the first paragraph of a docstring.

    Raises:
        MapError: there is no such function, or it has no docstring.
    """
    node = definition(path, name)
    assert isinstance(node, ast.FunctionDef | ast.ClassDef), name
    text = ast.get_docstring(node)
    if not text:
        raise MapError(f"{path.relative_to(ROOT)}: {name} has no docstring")
    return " ".join(text.partition("\n\n")[0].split())


def _docstring(path: Path) -> str:
    return ast.get_docstring(tree(path)) or ""


def _names(node: ast.AST) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    return []


def _rooms_in(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            package, *rest = name.split(".")
            if package == PACKAGE.name and rest:
                yield rest[0]
