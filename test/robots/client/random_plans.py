"""Random plans as trees, their texts, and their meaning, computed on the tree itself.

Nothing here is shared with the package's interpreter: neither its operations nor its comparisons.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from timely_llm.skills.skill_set import parse_skill_set

ROVER_YAML = """
name: rover
prompt: You control a rover.
skills:
  go:
    description: go
    arguments: [{name: distance, type: integer, minimum: 10, maximum: 500}]
    duration: {polynomial: [1.0]}
  say:
    description: say a text
    arguments: [{name: text, type: text, maximum_length: 40}]
    duration: {polynomial: [0.1]}
  tilt:
    description: tilt the camera
    arguments:
      - {name: pan, type: number, minimum: -90, maximum: 90}
      - {name: how, type: text, maximum_length: 40}
    duration: {polynomial: [0.1]}
  sees:
    description: is it in view
    arguments: [{name: object, type: text, maximum_length: 40}]
    duration: {polynomial: [0.001]}
    returns: boolean
  count:
    description: how many are there
    arguments: [{name: object, type: text, maximum_length: 40}]
    duration: {polynomial: [0.001]}
    returns: number
  read:
    description: read the sign
    duration: {polynomial: [0.1]}
    returns: text
  scan:
    description: name what is there
    duration: {polynomial: [0.5]}
    returns: text
    blocking: true
  free:
    description: is there room
    arguments: [{name: side, type: text, maximum_length: 40}]
    duration: {polynomial: [0.5]}
    returns: boolean
    blocking: true
"""
ROVER = parse_skill_set(ROVER_YAML)

Value = bool | int | float | str
Called = tuple[str, tuple[int | float | str, ...]]

TEXTS = ("cat", "a 'b'", 'say "x";', "{->True;}", "ä&|?", "\\")
GOOD: dict[str, tuple[object, ...]] = {
    "go": (None, True, "done"), "say": (None, 3), "tilt": (None, False, 0),
    "sees": (True, False), "count": (0, 1, 2, 3.5, -1), "read": ("", "exit", "no", "True"),
    "scan": ("a cat", "nothing", ""), "free": (True, False),
}  # fmt: skip
"""What the callables return; `go`, `say` and `tilt` are declared to return nothing."""
BAD: dict[str, tuple[object, ...]] = {
    "sees": (None, 1, "True", [True]), "count": (None, True, "3", float("nan")),
    "read": (None, 5, False), "scan": (None, 7, {"a": 1}), "free": (None, "yes", 0),
}  # fmt: skip


@dataclass(frozen=True)
class Make:
    """A call as a statement."""

    name: str
    arguments: tuple[int | float | str, ...]


@dataclass(frozen=True)
class Test:
    """A term of a condition; no comparison: the call stands alone."""

    __test__ = False

    make: Make
    comparison: str = ""
    literal: Value = True


@dataclass(frozen=True)
class When:
    """A block under alternatives, each of terms that must all hold."""

    alternatives: tuple[tuple[Test, ...], ...]
    body: tuple[Node, ...]


@dataclass(frozen=True)
class Again:
    """A block that runs `count` times."""

    count: int
    body: tuple[Node, ...]


@dataclass(frozen=True)
class Give:
    """A return."""

    value: Value


Node = Make | When | Again | Give


class Returned(Exception):
    """The plan returned a value."""

    def __init__(self, value: Value) -> None:
        super().__init__()
        self.value = value


class Failed(Exception):
    """A call failed, or returned what the plan cannot use."""


def evaluate(nodes: tuple[Node, ...], call: Callable[[str, tuple[object, ...]], object]) -> None:
    """Execute a plan, node by node.

    Raises:
        Returned: it returned.
        Failed: it cannot go on.
    """
    for node in nodes:
        match node:
            case Make(name, arguments):
                value = call(name, arguments)
                if name in ("scan", "free"):
                    check(name, value)
            case Give(value=given):
                raise Returned(given)
            case Again(count, body):
                for _ in range(count):
                    evaluate(body, call)
            case When(alternatives, body):
                for terms in alternatives:
                    if all(holds(t, call(t.make.name, t.make.arguments)) for t in terms):
                        evaluate(body, call)
                        break


def check(name: str, value: object) -> None:
    """A value must be of the kind that its skill is declared to return; see ROVER_YAML."""
    kind = type(value)
    if name in ("sees", "free"):
        right = kind is bool
    elif name == "count":
        right = kind is int or (kind is float and value == value)
    elif name in ("read", "scan"):
        right = kind is str
    else:
        right = kind in (bool, int, float, str)
    if not right:
        raise Failed(name)


def holds(term: Test, value: object) -> bool:
    """Whether a term holds, by the rules of docs/executing_plans.md."""
    check(term.make.name, value)
    sign, wanted = term.comparison or "==", term.literal
    if sign in ("==", "!="):
        if wanted is True or wanted is False:
            same = (value not in (False, 0, "")) is wanted
        elif type(wanted) is str or type(value) is str:
            same = type(wanted) is type(value) and value == wanted
        else:
            same = value == wanted
        return same if sign == "==" else not same
    kinds = {type(value), type(wanted)}
    if not (kinds <= {int, float} or kinds == {str}):
        raise Failed(term.make.name)
    left: float = value  # type: ignore[assignment]  # or both are texts
    right: float = wanted  # type: ignore[assignment]
    return {"<": left < right, ">": left > right, "<=": left <= right, ">=": left >= right}[sign]


class Maker:
    """Makes random plans, and writes them in any of the tolerated ways.

    Args:
        rng: makes the choices.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._left = 0

    def plan(self) -> tuple[Node, ...]:
        """Return a plan with at least one statement."""
        self._left = self._rng.choice((3, 8, 15, 15, 30))
        depth = 15 if self._rng.random() < 0.05 else 5
        return (*self._body(depth, False, 1), *([self._give()] if self._maybe(0.3) else []))

    def text(self, nodes: tuple[Node, ...]) -> str:
        """Return a plan as text."""
        return self._statements(nodes, last=True)

    def _maybe(self, share: float) -> bool:
        return self._rng.random() < share

    def _body(self, depth: int, in_loop: bool, least: int = 0) -> tuple[Node, ...]:
        nodes: list[Node] = []
        for _ in range(max(least, self._rng.randrange(6 if depth >= 4 else 4))):
            kind = self._rng.random()
            self._left -= 1
            if kind < 0.5 or depth == 0 or self._left < 0 or (least and not nodes):
                nodes.append(self._make(in_loop))
            elif kind < 0.75:
                nodes.append(When(self._condition(), self._body(depth - 1, in_loop)))
            elif kind < 0.93:
                # Deep loops run once: a plan may not repeat a statement too often.
                count = self._rng.randrange(1, 4) if depth > 2 and depth <= 5 else 1
                nodes.append(Again(count, self._body(depth - 1, True)))
            elif depth < 5:
                nodes.append(self._give())
            if depth > 5 and self._left > 0:  # go deep
                inner = self._body(depth - 1, in_loop)
                nodes.append(When(self._condition(), inner))
        return tuple(nodes)

    def _give(self) -> Give:
        return Give(self._rng.choice((True, False, 0, 7, -2.5, "", "done")))

    def _make(self, in_loop: bool) -> Make:
        names = ("go", "say", "tilt", "sees", "count", "read")
        return self._call(self._rng.choice(names if in_loop else (*names, "scan", "free")))

    def _call(self, name: str) -> Make:
        rng = self._rng
        if name == "go":
            return Make(name, (rng.randrange(10, 501),))
        if name == "tilt":
            return Make(name, (rng.choice((-90, 0, 45.5, -0.25)), rng.choice(TEXTS)))
        return Make(name, () if name in ("read", "scan") else (rng.choice(TEXTS),))

    def _condition(self) -> tuple[tuple[Test, ...], ...]:
        rng = self._rng
        return tuple(
            tuple(self._term() for _ in range(rng.choice((1, 1, 2, 3))))
            for _ in range(rng.choice((1, 1, 2, 3)))
        )

    def _term(self) -> Test:
        rng = self._rng
        name = rng.choice(("sees",) * 9 + ("count",) * 4 + ("read",) * 3 + ("go", "tilt"))
        make = self._call(name)
        if rng.random() < 0.4:
            return Test(make)
        if rng.random() < 0.04:  # whatever
            wanted: Value = rng.choice((True, False, 1, 2.5, "exit"))
            return Test(make, rng.choice(("==", "!=", "<", ">", "<=", ">=")), wanted)
        if name == "count":
            sign = rng.choice(("==", "!=", "<", ">", "<=", ">="))
            return Test(make, sign, rng.choice((0, 1, 2.5, -1)))
        if name == "read":
            sign = rng.choice(("==", "!=", "<", ">", "<=", ">="))
            return Test(make, sign, rng.choice(("exit", "no", "")))
        return Test(make, rng.choice(("==", "!=")), rng.choice((True, False)))

    # Writing.

    def _gap(self) -> str:
        return self._rng.choice(("", "", "", "", "", " ", "\n", "  "))

    def _statements(self, nodes: tuple[Node, ...], last: bool) -> str:
        words = []
        for place, node in enumerate(nodes, start=1):
            words.append(self._gap())
            end = ";" if not (place == len(nodes) and self._maybe(0.4)) else ""
            match node:
                case Make():
                    words += [self._call_text(node), end]
                case Give(value):
                    words += ["->", self._gap(), self._literal(value), end]
                case Again(count, body):
                    words += [f"{count}{self._gap()}{{", self._statements(body, False), "}"]
                    words.append(self._rng.choice(("", "", ";")))
                case When(alternatives, body):
                    arrow = "->" if self._maybe(0.2) else ""
                    condition = "|".join(
                        "&".join(self._term_text(term) for term in terms) for terms in alternatives
                    )
                    words += ["?", condition, arrow, "{", self._statements(body, False), "}"]
                    words.append(self._rng.choice(("", "", ";")))
        return "".join([*words, self._gap()])

    def _term_text(self, term: Test) -> str:
        text = self._call_text(term.make)
        if term.comparison:
            text += f"{self._gap()}{term.comparison}{self._gap()}{self._literal(term.literal)}"
        return text

    def _call_text(self, make: Make) -> str:
        return f"{make.name}({','.join(map(self._literal, make.arguments))})"

    def _literal(self, value: Value) -> str:
        if isinstance(value, bool):
            return self._rng.choice((str(value), str(value).lower()))
        if isinstance(value, str):
            quote = self._rng.choice("'\"")
            return quote + value.replace("\\", "\\\\").replace(quote, "\\" + quote) + quote
        return str(value)


@dataclass(frozen=True)
class Fate:
    """The outcome of each call, by its number: the same for the reference and for the robot.

    Attributes:
        draws: numbers from 0 to 999.
    """

    draws: tuple[int, ...]

    def of(self, number: int, name: str) -> object:
        """Return what a call returns.

        Raises:
            OSError: the skill cannot do it.
        """
        draw = self.draws[number % len(self.draws)]
        if draw < 6:
            raise OSError("the wheel\nis stuck")
        if draw < 12 and name in BAD:
            return BAD[name][draw % len(BAD[name])]
        return GOOD[name][draw % len(GOOD[name])]
