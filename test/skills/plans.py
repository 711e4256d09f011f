"""Random plans over the drone's skills, and what they mean, worked out in another way."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from timely_llm.core.segment import Value
from timely_llm.resources import resource
from timely_llm.skills.skill_set import load_skill_set

DRONE = load_skill_set(resource("config/skill_sets/drone.yaml"))

# The drone's limits, written down once more.
DISTANCE, HEIGHT, ANGLE, TIME = (10, 500), (10, 300), (1, 360), (1, 60)
NUMBERS = {
    **dict.fromkeys(("mf", "mb", "ml", "mr"), DISTANCE),
    **dict.fromkeys(("mu", "md"), HEIGHT),
    **dict.fromkeys(("tc", "tu"), ANGLE),
    "d": TIME,
}
TEXTS = {"s": 40, "iv": 40, "g": 40, "l": 120}


@dataclass(frozen=True)
class Say:
    """A call."""

    name: str
    arguments: tuple[int | str, ...]


@dataclass(frozen=True)
class Compare:
    """A term of a condition."""

    call: Say
    comparison: str
    literal: Value


@dataclass(frozen=True)
class When:
    """A condition and its block."""

    alternatives: tuple[tuple[Compare, ...], ...]
    body: tuple[Node, ...]


@dataclass(frozen=True)
class Times:
    """A loop."""

    count: int
    body: tuple[Node, ...]


@dataclass(frozen=True)
class Answer:
    """A return."""

    value: Value


Node = Say | When | Times | Answer


@dataclass(frozen=True)
class Written:
    """A plan as text, with the pieces it must be cut into, their seconds, and what is left."""

    nodes: tuple[Node, ...]
    pieces: tuple[tuple[str, float], ...]
    tail: str

    @property
    def text(self) -> str:
        return "".join(text for text, _ in self.pieces) + self.tail


ALPHABET = "ab 'é\"\\;{}()&|?->=3"
words = st.text(ALPHABET, min_size=1, max_size=8)
numbers = st.integers(-999, 999) | st.integers(-9999, 9999).map(lambda n: n / 100)
values: st.SearchStrategy[Value] = st.booleans() | numbers | words

calls: st.SearchStrategy[Say] = st.one_of(
    st.sampled_from(sorted(NUMBERS)).flatmap(
        lambda name: st.builds(Say, st.just(name), st.tuples(st.integers(*NUMBERS[name])))
    ),
    st.builds(Say, st.sampled_from(sorted(TEXTS)), st.tuples(words)),
    st.just(Say("tp", ())),
)
terms = st.one_of(
    st.builds(Compare, calls, st.just("=="), st.just(True)),
    st.builds(Compare, calls, st.sampled_from(["==", "!=", "<", ">", "<=", ">="]), values),
)
conditions = st.lists(
    st.lists(terms, min_size=1, max_size=3).map(tuple), min_size=1, max_size=3
).map(tuple)


def _blocks(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    body = st.lists(inner, max_size=3).map(tuple)
    return st.builds(When, conditions, body) | st.builds(Times, st.integers(1, 3), body)


statements: st.SearchStrategy[Node] = st.recursive(
    calls | st.builds(Answer, values), _blocks, max_leaves=8
)


@st.composite
def plans(draw: st.DrawFn) -> Written:
    """Any valid plan, written in any tolerated way."""
    some = st.lists(statements, min_size=1, max_size=4).filter(_has_statement)
    nodes = _until_answer(draw(some))
    return _Writer(random.Random(draw(st.integers(0, 2**32)))).plan(nodes)


def _until_answer(nodes: list[Node]) -> tuple[Node, ...]:
    """Nothing is read after a return outside all blocks."""
    ends = [place for place, node in enumerate(nodes, start=1) if isinstance(node, Answer)]
    return tuple(nodes[: ends[0]] if ends else nodes)


def _has_statement(nodes: Sequence[Node]) -> bool:
    """Whether there is more than loops around nothing."""
    return any(not isinstance(node, Times) or _has_statement(node.body) for node in nodes)


class _Writer:
    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._text: list[str] = []
        self._seconds = 0.0
        self._pieces: list[tuple[str, float]] = []

    def plan(self, nodes: tuple[Node, ...]) -> Written:
        _, unfinished = self._statements(nodes)
        if not isinstance(nodes[-1], Answer) or unfinished:
            self._text.append(self._rng.choice(["", "", "\n", "  "]))
        if unfinished:
            self._cut()
        return Written(nodes, tuple(self._pieces), "".join(self._text))

    def _maybe(self, share: float) -> bool:
        return self._rng.random() < share

    def _put(self, *tokens: str) -> None:
        for token in tokens:
            self._text.append(self._rng.choice(["", "", "", "", " ", "\n", " \t "]) + token)

    def _cut(self) -> None:
        self._pieces.append(("".join(self._text), self._seconds))
        self._text, self._seconds = [], 0.0

    def _statements(self, nodes: tuple[Node, ...]) -> tuple[float, bool]:
        """Write statements; return their seconds, and whether the last one lacks its ";"."""
        total = 0.0
        for place, node in enumerate(nodes, start=1):
            if self._maybe(0.1):
                self._put(";")
            if isinstance(node, When):
                self._condition(node)
                first = _seconds(node.alternatives[0][0].call)
                self._seconds += first
                self._cut()
                total += first + self._block(node.body, 0)
            elif isinstance(node, Times):
                self._put(str(node.count), "{")
                total += node.count * self._block(node.body, node.count)
            else:
                if isinstance(node, Say):
                    self._call(node)
                    self._seconds += _seconds(node)
                    total += _seconds(node)
                else:
                    self._put("->", self._literal(node.value))
                if place == len(nodes) and self._maybe(0.4):
                    return total, True
                self._put(";")
                self._cut()
        return total, False

    def _block(self, nodes: tuple[Node, ...], count: int) -> float:
        """Write a block to its end; return its body's seconds. A condition has no count."""
        seconds, unfinished = self._statements(nodes)
        if not unfinished and self._maybe(0.1):
            self._put(";")
        self._put("}")
        self._seconds += max(count - 1, 0) * seconds
        if unfinished or (count > 1 and _has_statement(nodes)):
            self._cut()
        return seconds

    def _condition(self, node: When) -> None:
        self._put("?")
        for place, alternative in enumerate(node.alternatives):
            if place:
                self._put("|")
            for nth, term in enumerate(alternative):
                if nth:
                    self._put("&")
                self._call(term.call)
                if term.comparison != "==" or term.literal is not True or self._maybe(0.5):
                    self._put(term.comparison, self._literal(term.literal))
        if self._maybe(0.3):
            self._put("->")
        self._put("{")

    def _call(self, call: Say) -> None:
        self._put(call.name, "(")
        for place, argument in enumerate(call.arguments):
            if place:
                self._put(",")
            self._put(self._literal(argument))
        self._put(")")

    def _literal(self, value: Value) -> str:
        if isinstance(value, bool):
            return self._rng.choice([str(value), str(value).lower()])
        if isinstance(value, str):
            quote = self._rng.choice("'\"")
            escaped = value.replace("\\", "\\\\").replace(quote, "\\" + quote)
            return f"{quote}{escaped}{quote}"
        return str(value)


def _seconds(call: Say) -> float:
    """How long the drone is expected to take."""
    if call.name in TEXTS or call.name == "tp":
        return {"s": 1.5275, "g": 2.5}.get(call.name, 0.001)
    x = float(call.arguments[0])
    if call.name in ("mu", "md"):
        return 8e-7 * x**3 - 3e-4 * x**2 + 0.0388 * x + 1.3195
    if call.name in ("tc", "tu"):
        return 0.0165 * x + 0.784
    return x if call.name == "d" else 0.0072 * x + 1.8144


def is_allowed(name: str, arguments: tuple[object, ...]) -> bool:
    """Whether a call keeps the drone's limits."""
    if name == "tp":
        return not arguments
    (argument,) = arguments
    if name in TEXTS:
        return isinstance(argument, str) and 1 <= len(argument) <= TEXTS[name]
    low, high = NUMBERS[name]
    return type(argument) is int and low <= argument <= high


def execute(nodes: tuple[Node, ...], perceive: Callable[[Say], Value]) -> Value | None:
    """Execute a plan call by call; return its answer, if it gives one."""
    return next(_answers(nodes, perceive), None)


def _answers(nodes: tuple[Node, ...], perceive: Callable[[Say], Value]) -> Iterator[Value]:
    """Yield the plan's answer; what comes after it is not executed unless asked for."""
    for node in nodes:
        if isinstance(node, Say):
            perceive(node)
        elif isinstance(node, Answer):
            yield node.value
        elif isinstance(node, Times):
            for _ in range(node.count):
                yield from _answers(node.body, perceive)
        elif any(
            all(_holds(term, perceive(term.call)) for term in alternative)
            for alternative in node.alternatives
        ):
            yield from _answers(node.body, perceive)


def _holds(term: Compare, value: Value) -> bool:
    """Whether a value is as compared: by truth with True and False, else only like with like."""
    wanted = term.literal
    if isinstance(wanted, bool) and term.comparison in ("==", "!="):
        return (bool(value) is wanted) is (term.comparison == "==")
    if isinstance(value, str) is not isinstance(wanted, str):
        return term.comparison == "!="
    below, equal = value < wanted, value == wanted  # type: ignore[operator]
    return {
        "==": equal, "!=": not equal, "<": below, ">": not below and not equal,
        "<=": below or equal, ">=": not below,
    }[term.comparison]  # fmt: skip
