"""A Python package read as syntax trees: names, classes and what they have. Nothing is imported."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Protocol
from zipfile import ZipFile

from tools.vllm_coupling.signatures import Function, Signature

_FIELDS = ("dataclass", "config", "Struct", "BaseModel", "NamedTuple")
"""Names of decorators and base classes; their classes take their fields as arguments."""


class Files(Protocol):
    """Where sources are."""

    def names(self) -> list[str]:
        """Return the names of all Python files, as `vllm/config/model.py`."""

    def read(self, name: str) -> str:
        """Return the text of a file."""


class FolderFiles:
    """Sources in a folder that the package lies in."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def names(self) -> list[str]:
        """Return the names of all Python files."""
        return [path.relative_to(self._root).as_posix() for path in self._root.glob("vllm/**/*.py")]

    def read(self, name: str) -> str:
        """Return the text of a file."""
        return (self._root / name).read_text(encoding="utf-8")


class WheelFiles:
    """Sources in a wheel, or in any other zip file."""

    def __init__(self, archive: ZipFile) -> None:
        self._archive = archive
        self._texts: dict[str, str] = {}

    def names(self) -> list[str]:
        """Return the names of all Python files, as they stand in it."""
        found = sorted(self._archive.infolist(), key=lambda member: member.header_offset)
        return [member.filename for member in found if member.filename.endswith(".py")]

    def read(self, name: str) -> str:
        """Return the text of a file."""
        if name not in self._texts:
            self._texts[name] = self._archive.read(name).decode()
        return self._texts[name]


@dataclass(frozen=True)
class Found:
    """What a name stands for: its definition, and the module that it is in."""

    module: str
    node: ast.AST

    def __str__(self) -> str:
        """Return what it is called."""
        return f"{self.module}.{getattr(self.node, 'name', '')}"


@dataclass
class Class:
    """A class with all that it inherits.

    Attributes:
        name: its own.
        methods: by name, the nearest definition.
        attributes: names of all that it has beside methods.
        fields: of dataclasses and the like, by name: whether they must be given.
        takes_fields: whether these are what its constructor takes.
        family: names of the classes that it is made of, its own first.
    """

    name: str
    methods: dict[str, Function] = field(default_factory=dict)
    attributes: set[str] = field(default_factory=set)
    fields: dict[str, bool] = field(default_factory=dict)
    takes_fields: bool = False
    family: list[str] = field(default_factory=list)

    def has(self, name: str) -> bool:
        """Return whether its objects have an attribute or a method."""
        return name in self.methods or name in self.attributes

    @property
    def abstract(self) -> set[str]:
        """Names of methods that are to be overridden."""
        return {name for name, made in self.methods.items() if _is_abstract(made)}

    def signature(self, name: str) -> Signature | None:
        """Return what a method takes, None if it is none or a property."""
        made = self.methods.get(name)
        if made is None or any("property" in ast.unparse(d) for d in made.decorator_list):
            return None
        return Signature.of(made, bound=True)

    @property
    def constructor(self) -> Signature:
        """What its constructor takes."""
        if "__init__" in self.methods or not self.takes_fields:
            made = self.methods.get("__init__")
            return Signature.of(made, bound=True) if made else Signature(())
        return Signature(tuple(self.fields), sum(self.fields.values()))


class Sources:
    """A package's modules.

    Args:
        files: its sources.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._modules: dict[str, ast.Module | None] = {}
        self._classes: dict[tuple[str, str], Class] = {}

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of all Python files."""
        return frozenset(self._files.names())

    def module(self, name: str) -> ast.Module | None:
        """Return a module's syntax tree, None if there is no such module."""
        if name not in self._modules:
            file = self.file(name)
            self._modules[name] = ast.parse(self._files.read(file), file) if file else None
        return self._modules[name]

    def file(self, module: str) -> str | None:
        """Return the name of a module's file, None if there is no such module."""
        path = module.replace(".", "/")
        return next((f for f in (f"{path}.py", f"{path}/__init__.py") if f in self.names), None)

    def find(self, module: str, name: str, seen: frozenset[str] = frozenset()) -> Found | None:
        """Return what a module calls by a name, wherever it is defined; None if it is nothing."""
        tree, key = self.module(module), f"{module}:{name}"
        if tree is None or key in seen:
            return None
        seen |= {key}
        found: Found | None = None
        for node in statements(tree.body):
            if isinstance(node, ast.ClassDef | Function) and node.name == name:
                found = Found(module, node)
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    origin = self._origin(module, node)
                    if (alias.asname or alias.name) == name:
                        found = self.find(origin, alias.name, seen) or found
                    elif alias.name == "*":
                        found = found or self.find(origin, name, seen)
            elif name in _assigned(node):
                found = found or Found(module, node)
        if found is None and self.module(f"{module}.{name}") is not None:
            return Found(f"{module}.{name}", ast.Module([], []))
        return found

    def class_(self, module: str, name: str) -> Class | None:
        """Return a class, None if there is none."""
        found = self.find(module, name)
        if found is None or not isinstance(found.node, ast.ClassDef):
            return None
        key = (found.module, found.node.name)
        if key not in self._classes:
            self._classes[key] = self._class(found.module, found.node)
        return self._classes[key]

    def _class(self, module: str, node: ast.ClassDef) -> Class:
        made = Class(node.name, family=[node.name])
        made.takes_fields = any(
            word in ast.unparse(one)
            for one in (*node.decorator_list, *node.bases)
            for word in _FIELDS
        )
        bases = []
        for base in node.bases:
            words = ast.unparse(base).split("[")[0].split(".")
            inherited = self.class_(module, words[-1]) if len(words) == 1 else None
            if inherited is not None and inherited.name != node.name:
                bases.append(inherited)
        for inherited in reversed(bases):
            made.methods |= inherited.methods
            made.attributes |= inherited.attributes
            made.fields |= inherited.fields
            made.takes_fields |= inherited.takes_fields
        for inherited in bases:
            made.family += [name for name in inherited.family if name not in made.family]
        for inner in statements(node.body):
            if isinstance(inner, Function):
                made.methods[inner.name] = inner
                made.attributes |= set(_of_self(inner))
            else:
                made.attributes |= _assigned(inner)
                if isinstance(inner, ast.AnnAssign) and isinstance(inner.target, ast.Name):
                    _enter_field(made.fields, inner, inner.target.id)
        return made

    def _origin(self, module: str, node: ast.ImportFrom) -> str:
        """Return the module that something is imported from."""
        if not node.level:
            return node.module or ""
        package = (self.file(module) or "").endswith("__init__.py")
        parts = module.split(".")
        parts = parts[: len(parts) - node.level + package]
        return ".".join([*parts, *filter(None, [node.module])])


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a module or a class, those under conditions too."""
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.Try | ast.With):
            for name in ("body", "orelse", "finalbody"):
                yield from statements(getattr(node, name, []))
            for handler in getattr(node, "handlers", []):
                yield from statements(handler.body)


def _assigned(node: ast.stmt) -> set[str]:
    """Return the names that a statement gives a value or a type."""
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign | ast.AugAssign):
        targets = [node.target]
    elif isinstance(node, ast.Import):
        return {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    return {n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)}


def _of_self(function: Function) -> Iterator[str]:
    """Yield the names of attributes that a method gives its object."""
    first = next((arg.arg for arg in (*function.args.posonlyargs, *function.args.args)), None)
    for node in ast.walk(function):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and isinstance(node.value, ast.Name)
            and node.value.id == first
        ):
            yield node.attr


def _enter_field(fields: dict[str, bool], node: ast.AnnAssign, name: str) -> None:
    """Enter a field of a dataclass or the like, and whether it must be given."""
    if "ClassVar" in ast.unparse(node.annotation):
        return
    made = node.value
    is_field = isinstance(made, ast.Call) and ast.unparse(made.func).lower().endswith("field")
    if not isinstance(made, ast.Call) or not is_field:
        fields[name] = made is None
        return
    given = {keyword.arg: ast.unparse(keyword.value) for keyword in made.keywords}
    if given.get("init") == "False":
        fields.pop(name, None)
        return
    default = {"default", "default_factory"} & given.keys() or made.args
    fields[name] = not default


def _is_abstract(function: Function) -> bool:
    return any("abstractmethod" in ast.unparse(one) for one in function.decorator_list)
