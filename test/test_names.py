"""A name in this package has one meaning, be it of a class, a type alias or a type variable."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "timely_llm"
GENERATED = ("msg", "srv", "action")


def test_no_name_of_a_type_has_two_meanings() -> None:
    """Names with a leading underscore count too.

    An alias or a type variable may be defined by the same text in several modules: each name of the
    text has one meaning, so they are one type. An alias may have one definition for type checkers
    and another one at run time, both in one module.
    """
    defined: dict[str, list[str]] = defaultdict(list)
    for file in sorted(PACKAGE.rglob("*.py")):
        place = file.relative_to(PACKAGE)
        if place.parts[0] not in GENERATED:
            for name, meaning in named_types(file.read_text(encoding="utf-8"), str(place)):
                defined[name].append(meaning)
    assert len(defined) > 600
    assert {name: found for name, found in defined.items() if len(set(found)) > 1} == {}


@pytest.mark.parametrize("text", [
    "class Word: ...", "def f():\n    class Word: ...", "Word = tuple[int, int]",
    "Word: TypeAlias = 'int | str'", "Word = TypeVar('Word')", "Word = NewType('Word', int)",
    "Word = Literal['a']", "if TYPE_CHECKING:\n    Word = list[int]\nelse:\n    Word = list",
    "try:\n    Word = list[int]\nexcept ImportError:\n    Word = list",
])  # fmt: skip
def test_a_definition_of_a_type_is_found(text: str) -> None:
    assert {name for name, _ in named_types(text, "a.py")} == {"Word"}
    assert len({meaning for _, meaning in named_types(text, "a.py")}) == 1


@pytest.mark.parametrize("text", [
    "WORD = 3", "word = 3", "def f():\n    Word = list", "from words import Word", "Word.a = 3",
])  # fmt: skip
def test_other_definitions_are_no_types(text: str) -> None:
    assert not list(named_types(text, "a.py"))


def test_classes_differ_where_they_stand_and_aliases_by_their_text() -> None:
    (one,), (other,) = (list(named_types("class Word: ...", place)) for place in ("a.py", "b.py"))
    assert one != other
    (one,), (other,) = (list(named_types("Word = list[int]", place)) for place in ("a.py", "b.py"))
    assert one == other
    assert one not in named_types("Word = list[str]", "a.py")


def named_types(text: str, place: str) -> Iterator[tuple[str, str]]:
    """Yield the name of each class, alias and type variable of a module, with what it means."""
    module = ast.parse(text)
    for node in ast.walk(module):
        if isinstance(node, ast.ClassDef):
            yield node.name, f"{place}:{node.lineno}"
    meanings: dict[str, str] = {}
    for name, value in _aliases(module.body):
        meanings.setdefault(name, value)
    yield from meanings.items()


def _aliases(statements: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    for node in statements:
        if isinstance(node, ast.If):
            yield from _aliases([*node.body, *node.orelse])
        elif isinstance(node, ast.Try):
            yield from _aliases([*node.body, *(s for h in node.handlers for s in h.body)])
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name) and _is_camel_case(target.id):
                    yield target.id, ast.unparse(node.value)


def _is_camel_case(name: str) -> bool:
    letters = name.lstrip("_")
    return letters[:1].isupper() and (len(letters) == 1 or not letters.isupper())
