"""What this package's modules use of vLLM, read from their syntax trees.

`facts.py` declares which objects are vLLM's; what is used of them, and how it is called, is found
here. An object that neither is ours nor is declared as vLLM's is reported: nothing is overlooked
in silence.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tools.vllm_coupling.facts import Facts
from tools.vllm_coupling.signatures import Function, Shape, Signature

LIBRARY = "vllm"


@dataclass(frozen=True)
class Import:
    """A name that is imported from vLLM."""

    module: str
    name: str
    place: str


@dataclass(frozen=True)
class Use:
    """An attribute of an object of vLLM's, and how it is called if it is.

    `owner` is a name of `Facts.classes`; with `name` empty the class itself is called.
    """

    owner: str
    name: str
    shape: Shape | None
    place: str


@dataclass(frozen=True)
class Override:
    """A function of ours that stands in the place of a method of vLLM's.

    Attributes:
        owner: the class of vLLM's, a name of `Facts.classes`.
        name: of the method.
        ours: what our function is called.
        signature: what it takes.
        replaces: whether vLLM must have the method; a subclass may also add its own.
    """

    owner: str
    name: str
    ours: str
    signature: Signature
    replaces: bool
    place: str


@dataclass
class Couplings:
    """All that our modules couple to.

    Attributes:
        unknown: objects of unknown class with attributes that are used.
        subclasses: (our class, its base of vLLM's, names of its methods).
    """

    imports: list[Import] = field(default_factory=list)
    uses: list[Use] = field(default_factory=list)
    overrides: list[Override] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    subclasses: list[tuple[str, str, frozenset[str]]] = field(default_factory=list)
    options: list[tuple[str, str]] = field(default_factory=list)


def couplings(modules: Mapping[str, str], facts: Facts) -> Couplings:
    """Return what modules couple to.

    Args:
        modules: their sources by name.
        facts: the classes of their objects.
    """
    made = Couplings()
    for name, source in modules.items():
        _Reader(name, ast.parse(source, name), facts, made).read()
    return made


def our_modules(root: Path) -> dict[str, str]:
    """Return the sources of the modules of this package that import from vLLM, by path."""
    package = root / "timely_llm"
    read = {
        ".".join(file.relative_to(package).with_suffix("").parts): file.read_text(encoding="utf-8")
        for file in sorted(package.rglob("*.py"))
        if not {"msg", "srv", "action"} & set(file.parts)
    }
    return {name: text for name, text in read.items() if _imports(text)}


def _imports(source: str) -> bool:
    """Return whether a module imports from vLLM."""
    if LIBRARY not in source:
        return False
    nodes = ast.walk(ast.parse(source))
    names = (
        name
        for node in nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [alias.name for alias in node.names]
        )
    )
    return any(name.split(".")[0] == LIBRARY for name in names)


class _Reader:
    """Reads one module."""

    def __init__(self, name: str, tree: ast.Module, facts: Facts, made: Couplings) -> None:
        self._name, self._tree, self._facts, self._made = name, tree, facts, made
        self._roots = {**facts.roots.get("", {}), **facts.roots.get(name, {})}
        self._own = facts.own.get("", frozenset()) | facts.own.get(name, frozenset())
        self._imported: dict[str, str] = {}
        self._modules: set[str] = set()
        self._classes = {n.name: n for n in tree.body if isinstance(n, ast.ClassDef)}
        self._functions: dict[str, Function] = {}
        self._within: list[str] = []

    def read(self) -> None:
        """Enter all that the module couples to."""
        for node in ast.walk(self._tree):
            if isinstance(node, ast.ImportFrom):
                self._import(node)
            elif isinstance(node, ast.Import):
                self._modules |= {(alias.asname or alias.name) for alias in node.names}
        for node in self._tree.body:
            if isinstance(node, ast.ClassDef):
                self._class(node)
            else:
                self._walk(node, "")

    def _import(self, node: ast.ImportFrom) -> None:
        theirs = (node.module or "").split(".")[0] == LIBRARY
        for alias in node.names:
            called = alias.asname or alias.name
            if theirs:
                short = self._facts.renamed.get((self._name, alias.name), alias.name)
                self._imported[called] = short
                self._made.imports.append(Import(node.module or "", alias.name, self._at(node)))
            else:
                self._modules.add(called)

    def _class(self, node: ast.ClassDef) -> None:
        base = self._base(node)
        methods = {inner.name: inner for inner in node.body if isinstance(inner, Function)}
        if base:
            self._made.subclasses.append((node.name, base, frozenset(methods)))
            for name, method in methods.items():
                if name.startswith("__") and name != "__init__":
                    continue
                self._made.overrides.append(
                    Override(base, name, f"{node.name}.{name}", Signature.of(method, bound=True),
                             name in self._facts.needed.get(base, ()), self._at(method))
                )  # fmt: skip
        self._functions = {f"self.{name}": method for name, method in methods.items()}
        self._walk(node, node.name)
        self._functions = {}

    def _base(self, node: ast.ClassDef) -> str:
        """Return the class of vLLM's that one of ours is made of, empty if there is none."""
        for base in map(ast.unparse, node.bases):
            if base in self._imported:
                return self._imported[base]
            if base in self._classes and (theirs := self._base(self._classes[base])):
                return theirs
        return ""

    def _walk(self, node: ast.AST, within: str) -> None:
        called: set[int] = set()
        for inner in ast.walk(node):
            if isinstance(inner, ast.Call):
                called.add(id(inner.func))
                self._call(inner, within)
            elif isinstance(inner, ast.Assign):
                self._replacement(inner, within)
        for inner in ast.walk(node):
            if isinstance(inner, ast.Attribute) and id(inner) not in called:
                self._attribute(inner, None, within)
            elif isinstance(inner, ast.Dict):
                self._dict(inner, within)

    def _call(self, call: ast.Call, within: str) -> None:
        shape = Shape.of(call)
        function = call.func
        if isinstance(function, ast.Attribute):
            self._attribute(function, shape, within)
        alias = self._facts.calls.get(f"{self._name}:{ast.unparse(function)}")
        if alias:
            self._use(*alias, shape, call)
        elif isinstance(function, ast.Name) and function.id in self._imported:
            self._use(self._imported[function.id], "", shape, call)

    def _dict(self, node: ast.Dict, within: str) -> None:
        """Enter the options of a class that are written as a dictionary."""
        owner = self._facts.options.get(self._name)
        keys = [key.value for key in node.keys if isinstance(key, ast.Constant)]
        if owner and set(self._facts.option_marks) & set(keys):
            self._made.options += [(owner, str(key)) for key in keys]

    def _attribute(self, node: ast.Attribute, shape: Shape | None, within: str) -> None:
        owner = self._type(node.value, within)
        if owner is None:
            text = ast.unparse(node.value)
            if not self._ours(node.value, text):
                self._made.unknown.append(
                    f"{self._at(node)}: {text}.{node.attr}: which class is {text}?"
                )
        elif owner:
            known = self._classes.get(within)
            methods = {n.name for n in known.body if isinstance(n, Function)} if known else set()
            own = self._facts.own_attributes.get(owner, frozenset())
            if ast.unparse(node.value) == "self":
                own |= methods | self._facts.own_attributes.get(within, frozenset())
            if node.attr not in own:
                self._use(owner, node.attr, shape, node)

    def _replacement(self, node: ast.Assign, within: str) -> None:
        """Enter a function of ours that is assigned to an attribute of vLLM's."""
        for target in node.targets:
            value = node.value
            if not isinstance(target, ast.Attribute):
                continue
            owner = self._type(target.value, within)
            signature = None
            if isinstance(value, ast.Lambda):
                made = ast.FunctionDef("lambda", value.args, [], [], lineno=node.lineno)
                signature = Signature.of(made, bound=False)
            elif ast.unparse(value) in self._functions:
                signature = Signature.of(self._functions[ast.unparse(value)], bound=True)
            if owner and signature is not None:
                ours = ast.unparse(value).replace("self.", f"{within}.")
                self._made.overrides.append(
                    Override(owner, target.attr, ours, signature, True, self._at(node))
                )

    def _use(self, owner: str, name: str, shape: Shape | None, node: ast.AST) -> None:
        self._made.uses.append(Use(owner, name, shape, self._at(node)))

    def _type(self, node: ast.expr, within: str) -> str | None:
        """Return the class of vLLM's that an object is of, "" if it is of none; None: not known."""
        text = ast.unparse(node)
        for key in (f"{within}:{text}", text):
            if key in self._roots:
                return self._roots[key]
        if text in ("self", "super()") and within in self._classes:
            return self._base(self._classes[within])
        if isinstance(node, ast.Name):
            return self._imported.get(node.id)
        if isinstance(node, ast.Attribute):
            owner = self._type(node.value, within)
            return self._facts.member(owner, node.attr) if owner else None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = self._type(node.func.value, within)
            return self._facts.member(owner, f"{node.func.attr}()") if owner else None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return self._imported.get(node.func.id)
        if isinstance(node, ast.Subscript):
            kind = self._type(node.value, within)
            return kind.removesuffix("[]") if kind and kind.endswith("[]") else None
        return None

    def _ours(self, node: ast.expr, text: str) -> bool:
        """Return whether an object is known to be none of vLLM's."""
        if text in self._own or isinstance(node, ast.Constant | ast.JoinedStr):
            return True
        first = next(_names(node), "")
        if first in self._modules or first in self._classes:
            return True
        parts = text.split(".")
        return any(".".join(parts[:end]) in self._own for end in range(1, len(parts)))

    def _at(self, node: ast.AST) -> str:
        return f"{self._name}.py:{getattr(node, 'lineno', 0)}"


def _names(node: ast.expr) -> Iterator[str]:
    """Yield the name that an expression begins with."""
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Attribute | ast.Subscript):
            node = node.value
        elif isinstance(node, ast.Call):
            node = node.func
        else:
            return
    yield node.id
