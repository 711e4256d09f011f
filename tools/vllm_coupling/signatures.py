"""Signatures and calls as syntax trees show them: which function takes which arguments."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Shape:
    """How something is called.

    Attributes:
        positional: how many arguments go by position.
        keywords: names of arguments that go by name.
        more: whether others may follow, `*args` or `**kwargs`.
    """

    positional: int
    keywords: frozenset[str] = frozenset()
    more: bool = False

    @classmethod
    def of(cls, call: ast.Call) -> Shape:
        """Return how a call calls."""
        stars = any(isinstance(arg, ast.Starred) for arg in call.args)
        return cls(
            sum(not isinstance(arg, ast.Starred) for arg in call.args),
            frozenset(keyword.arg for keyword in call.keywords if keyword.arg),
            stars or any(keyword.arg is None for keyword in call.keywords),
        )


@dataclass(frozen=True)
class Signature:
    """What something takes, without `self`.

    Attributes:
        positional: names of arguments that may go by position, in order.
        required: how many of these must be given.
        named: names of arguments that go by name only, and whether they must be given.
        any_positional, any_named: whether it takes more of them: `*args`, `**kwargs`.
        hidden: how many of the positional ones cannot go by name.
    """

    positional: tuple[str, ...]
    required: int = 0
    named: tuple[tuple[str, bool], ...] = ()
    any_positional: bool = False
    any_named: bool = False
    hidden: int = 0

    @classmethod
    def of(cls, function: Function, bound: bool) -> Signature:
        """Return what a function takes.

        Args:
            function: its definition.
            bound: whether it is a method with its object as first argument.
        """
        args = function.args
        decorators = {ast.unparse(decorator) for decorator in function.decorator_list}
        own = int(bound and "staticmethod" not in decorators)
        names = [arg.arg for arg in (*args.posonlyargs, *args.args)]
        return cls(
            tuple(names[own:]),
            max(len(names) - len(args.defaults) - own, 0),
            tuple(
                (arg.arg, default is None)
                for arg, default in zip(args.kwonlyargs, args.kw_defaults, strict=True)
            ),
            args.vararg is not None,
            args.kwarg is not None,
            max(len(args.posonlyargs) - own, 0),
        )

    def problem(self, shape: Shape) -> str:
        """Return what is wrong with a call, empty if nothing is."""
        most = len(self.positional)
        if shape.positional > most and not self.any_positional:
            return f"it takes {most} by position, not {shape.positional}"
        by_name = set(self.positional[self.hidden :]) | {name for name, _ in self.named}
        unknown = sorted(shape.keywords - by_name)
        if unknown and not self.any_named:
            return f"it takes no {', '.join(unknown)}"
        if shape.more:
            return ""
        missing = [
            name
            for place, name in enumerate(self.positional[: self.required])
            if place >= shape.positional and name not in shape.keywords
        ]
        missing += [name for name, must in self.named if must and name not in shape.keywords]
        return f"it also needs {', '.join(missing)}" if missing else ""

    def shapes(self) -> Sequence[Shape]:
        """Return the calls that it promises to take: with all arguments, and with the fewest."""
        needed = frozenset(name for name, must in self.named if must)
        everything = frozenset(name for name, _ in self.named)
        return Shape(self.required, needed), Shape(len(self.positional), everything)

    def __str__(self) -> str:
        """Return it as it is written, without types."""
        words = [
            name if place < self.required else f"{name}=..."
            for place, name in enumerate(self.positional)
        ]
        words += ["*args"] * self.any_positional or ["*"] * bool(self.named)
        words += [name if must else f"{name}=..." for name, must in self.named]
        return f"({', '.join([*words, *['**kwargs'] * self.any_named])})"
