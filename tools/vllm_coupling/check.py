"""Comparison of what this package couples to with a release of vLLM."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from tools.vllm_coupling.facts import Facts
from tools.vllm_coupling.ours import Couplings, Override, Use, couplings
from tools.vllm_coupling.signatures import Function, Shape, Signature
from tools.vllm_coupling.sources import Class, Files, Found, Sources

CALLERS = ("vllm/v1/", "vllm/distributed/kv_transfer/")
"""Where vLLM calls what stands in the place of its methods."""


@dataclass(frozen=True)
class Compared:
    """What came of a comparison.

    Attributes:
        problems: what changed so that it does not fit, a sentence each.
        names: how many names were looked up.
        signatures: how many calls and signatures were compared.
    """

    problems: tuple[str, ...]
    names: int
    signatures: int


def compare(modules: Mapping[str, str], facts: Facts, files: Files) -> Compared:
    """Compare modules of ours with a release of vLLM.

    Args:
        modules: sources by name.
        facts: the classes of their objects.
        files: vLLM's sources.
    """
    return _Comparison(couplings(modules, facts), facts, files).made


class _Comparison:
    def __init__(self, ours: Couplings, facts: Facts, files: Files) -> None:
        self._ours, self._facts, self._files = ours, facts, files
        self._sources = Sources(files)
        # Read first, in the order in which a wheel has them: others are then found among these.
        self._texts = {name: files.read(name) for name in files.names() if name.startswith(CALLERS)}
        self._trees: dict[str, ast.Module] = {}
        self._places = {one.name: (one.module, one.name) for one in ours.imports}
        for name, place in facts.classes.items():
            module, _, inner = place.partition(":")
            self._places[name] = module, inner
        self._names: set[str] = set()
        self._signatures = 0

    @cached_property
    def made(self) -> Compared:
        """What came of it."""
        parts = (
            self._imports(), self._uses(), self._options(), self._spelled(), self._overrides(),
            self._abstract(), self._returns(),
        )  # fmt: skip
        problems = tuple(dict.fromkeys(sentence for part in parts for sentence in part))
        return Compared(problems, len(self._names), self._signatures)

    def _imports(self) -> Iterator[str]:
        for one in self._ours.imports:
            self._names.add(f"{one.module}.{one.name}")
            if self._sources.module(one.module) is None:
                yield f"there is no module {one.module} ({one.place})"
            elif self._sources.find(one.module, one.name) is None:
                yield f"{one.module} has no {one.name} ({one.place})"

    def _uses(self) -> Iterator[str]:
        for use in self._ours.uses:
            self._names.add(f"{use.owner}.{use.name}")
            found = self._find(use.owner)
            if isinstance(found, Found):
                if isinstance(found.node, Function):
                    signature = Signature.of(found.node, bound=False)
                    yield from self._called(use.owner, signature, use)
            elif isinstance(found, Class):
                yield from self._used(found, use)
            else:
                yield f"there is no {use.owner} in {self._places[use.owner][0]} ({use.place})"

    def _used(self, owner: Class, use: Use) -> Iterator[str]:
        if not use.name:
            yield from self._called(use.owner, owner.constructor, use)
        elif owner.has(use.name):
            signature = owner.signature(use.name)
            if signature is not None:
                yield from self._called(f"{use.owner}.{use.name}", signature, use)
        elif (use.owner, use.name) not in self._facts.guarded:
            yield f"{use.owner} has no {use.name} ({use.place})"

    def _called(self, name: str, signature: Signature, use: Use) -> Iterator[str]:
        if use.shape is None:
            return
        self._signatures += 1
        problem = signature.problem(use.shape)
        if problem:
            yield f"{name}{signature}: our call does not fit, {problem} ({use.place})"

    def _options(self) -> Iterator[str]:
        for owner, name in self._ours.options:
            self._names.add(f"{owner}.{name}")
            found = self._find(owner)
            if isinstance(found, Class) and name not in found.fields:
                yield f"{owner} has no option {name}"

    def _spelled(self) -> Iterator[str]:
        wanted = [(owner, frozenset((name,))) for owner, name in sorted(self._facts.spelled)]
        wanted += [(owner, names) for owner, all_ in self._facts.one_of.items() for names in all_]
        for owner, names in wanted:
            self._names |= {f"{owner}.{name}" for name in names}
            found = self._find(owner)
            if not isinstance(found, Class) or not any(map(found.has, names)):
                yield f"{owner} has no {' or '.join(sorted(names))}"

    def _overrides(self) -> Iterator[str]:
        for one in self._ours.overrides:
            owner = self._find(one.owner)
            if not isinstance(owner, Class):
                continue
            theirs = owner.signature(one.name)
            if not one.replaces:
                if owner.has(one.name) and one.name != "__init__":
                    yield (
                        f"{one.owner} now has {one.name} of its own, and our {one.ours} stands in"
                        f" its place ({one.place})"
                    )
                continue
            self._names.add(f"{one.owner}.{one.name}")
            if theirs is None:
                if (one.owner, one.name) not in self._facts.guarded:
                    yield (
                        f"{one.owner} has no method {one.name}, which our {one.ours}"
                        f" replaces ({one.place})"
                    )
                continue
            self._signatures += 1
            for shape in theirs.shapes():
                yield from self._unfit(one, f"{one.owner}.{one.name}{theirs}", shape)
            yield from self._call_sites(one, owner)
        for ours, owner_name, _ in self._ours.subclasses:
            owner = self._find(owner_name)
            for name in sorted(self._facts.own_attributes.get(ours, ())):
                if isinstance(owner, Class) and owner.has(name):
                    yield f"{owner_name} now has {name} of its own, and so has our {ours}"

    def _call_sites(self, one: Override, owner: Class) -> Iterator[str]:
        """Yield where vLLM calls a method of its own in a way that ours does not take."""
        callers = self._facts.callers.get(one.owner, "")
        for file, tree in self._callers(one.name):
            if not re.match(callers, file):
                continue
            for within, call in _calls(tree, one.name):
                receiver = ast.unparse(call.func)[: -len(one.name) - 1]
                if self._is_of(receiver, within, file, one, owner):
                    self._signatures += 1
                    text = f"{file}:{call.lineno} calls {ast.unparse(call)[:120]}"
                    yield from self._unfit(one, text, Shape.of(call))

    def _unfit(self, one: Override, text: str, shape: Shape) -> Iterator[str]:
        problem = one.signature.problem(shape)
        if problem:
            yield f"{text}: our {one.ours}{one.signature} does not fit, {problem} ({one.place})"

    def _is_of(self, receiver: str, within: str, file: str, one: Override, owner: Class) -> bool:
        """Return whether a receiver of vLLM's is the object that our function is put into."""
        if receiver not in ("self", "super()", "cls"):
            return receiver.split(".")[-1] in self._facts.receivers.get(one.owner, ())
        if within in owner.family:
            return True
        module = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        caller = self._sources.class_(module, within) if within else None
        return caller is not None and owner.name in caller.family

    def _callers(self, name: str) -> Iterator[tuple[str, ast.Module]]:
        for file in sorted(self._texts):
            if f".{name}(" in self._texts[file]:
                if file not in self._trees:
                    self._trees[file] = ast.parse(self._texts[file], file)
                yield file, self._trees[file]

    def _abstract(self) -> Iterator[str]:
        made: dict[str, frozenset[str]] = {}
        for ours, owner_name, methods in self._ours.subclasses:
            made[owner_name] = made.get(owner_name, frozenset()) | methods
            owner = self._find(owner_name)
            if isinstance(owner, Class):
                for name in sorted(owner.abstract - made[owner_name]):
                    yield f"{owner_name} asks for a method {name}, which our {ours} lacks"

    def _returns(self) -> Iterator[str]:
        for (owner_name, name), known in self._facts.returns.items():
            owner = self._find(owner_name)
            method = owner.methods.get(name) if isinstance(owner, Class) else None
            if method is None:
                continue
            self._signatures += 1
            told = ast.unparse(method.returns).strip("'\"") if method.returns else "nothing said"
            if told != known:
                yield f"{owner_name}.{name} returns {told}, which was {known}"

    def _find(self, name: str) -> Class | Found | None:
        """Return a class or a function of vLLM's by the name that we have for it."""
        module, inner = self._places[name]
        return self._sources.class_(module, inner) or self._sources.find(module, inner)


def _calls(tree: ast.Module, name: str) -> Iterable[tuple[str, ast.Call]]:
    """Yield the calls of methods of a name, each with the class that it stands in."""

    def walk(node: ast.AST, within: str) -> Iterator[tuple[str, ast.Call]]:
        if isinstance(node, ast.ClassDef):
            within = node.name
        function = node.func if isinstance(node, ast.Call) else None
        if (
            isinstance(node, ast.Call)
            and isinstance(function, ast.Attribute)
            and function.attr == name
        ):
            yield within, node
        for inner in ast.iter_child_nodes(node):
            yield from walk(inner, within)

    return walk(tree, "")
