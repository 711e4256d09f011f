"""Why a text is not YAML, in sentences of this package, whichever of PyYAML's parsers read it."""

from __future__ import annotations

import re
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from difflib import get_close_matches
from typing import Annotated, Any, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from timely_llm.core.text import CUT, clipped, quoted, sentence

MAX_PLACE = 120
"""Characters of a place that a sentence names."""
MAX_LOOKED_AT = 64
"""Mistakes of a document of which the first or nearest is chosen; strangers' may have thousands."""
KEY = "[key]"
"""How pydantic names the key of an entry."""

_WANTED = {
    "string": "a text", "int": "a whole number", "float": "a number", "decimal": "a number",
    "fraction": "a number", "complex": "a number", "finite": "a finite number",
    "bool": "true or false", "list": "a list", "tuple": "a list", "set": "a list",
    "frozen_set": "a list", "deque": "a list", "iterable": "a list", "iteration": "a list",
    "dict": "a mapping", "frozen_dict": "a mapping", "ordered_dict": "a mapping",
    "counter": "a mapping", "mapping": "a mapping", "model": "a mapping",
    "dataclass": "a mapping", "named_tuple": "a mapping", "arguments": "a mapping",
    "bytes": "a text", "url": "an address", "uuid": "a UUID", "date": "a date", "time": "a time",
    "datetime": "a date with a time", "time_delta": "a duration", "timezone": "a time zone",
}  # fmt: skip
"""What a field must be, by how the name of pydantic's error begins."""
_BOUNDS = {
    "greater_than": ("gt", "above"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "below"),
    "less_than_equal": ("le", "at most"),
    "multiple_of": ("multiple_of", "a multiple of"),
}
_MISSING = frozenset(
    ("missing", "missing_argument", "missing_keyword_only_argument",
     "missing_positional_only_argument")
)  # fmt: skip
_UNKNOWN = frozenset(
    ("extra_forbidden", "invalid_key", "no_such_attribute", "unexpected_keyword_argument",
     "unexpected_positional_argument")
)  # fmt: skip


class FieldError(ValueError):
    """A validator's error about one field inside of what it validates.

    Args:
        message: what is wrong with the field and what is allowed.
        place: keys and indices that lead from the validated value to the field.
    """

    def __init__(self, message: str, *place: str | int) -> None:
        super().__init__(message)
        self.place = place


class NoTextError(FieldError):
    """A field that must be a text is something else.

    Args:
        value: what it is.
        place: as of `FieldError`.
    """

    def __init__(self, value: object, *place: str | int) -> None:
        super().__init__(no_text(value), *place)
        self.value = value


@dataclass(frozen=True)
class _Location:
    """Where an error stands in a document.

    Attributes:
        path: keys and indices that lead there.
        rest: what pydantic's location has after them: a missing field, or kinds of a union.
        line: of the key, or of the entry of a list; from 1; None: unknown.
        node: of the value, or of the key if that is wrong; None: unknown.
    """

    path: tuple[Any, ...]
    rest: tuple[Any, ...]
    line: int | None
    node: yaml.Node | None


def validation_problem(
    error: ValidationError, model: type[BaseModel], data: Any, node: yaml.Node | None = None
) -> str:
    """Return what is wrong with a document, as "line 4: skills.go: unknown field ...".

    Of several mistakes it names a misspelt field, or else the first one, and says how many more
    there are.

    Args:
        error: of the validation.
        model: what the document must be.
        data: the document.
        node: where its YAML keeps it; None: no lines are known.
    """
    problems: dict[tuple[Any, ...], tuple[int, int, str, _Location]] = {}
    spelt: set[tuple[Any, ...]] = set()  # fields that misspelt ones stand for
    wanted: dict[tuple[Any, ...], list[str]] = {}
    details = error.errors(include_url=False)
    for detail in details[:MAX_LOOKED_AT]:
        inner = _inner(detail)
        place = (*detail["loc"], *inner)
        found = _find(place, data, node)
        if inner and found.rest and found.rest == inner[-len(found.rest) :]:
            # A field that is not written, so its default is wrong.
            found = _Location(place, (), found.line, None)
        kind = detail["type"]
        rank = 1
        if kind in _UNKNOWN:
            message, near = _unknown(found.path, model)
            if near is not None and near != found.path[-1]:
                rank = 0
                spelt.add((*found.path[:-1], near))
            found = _Location(found.path[:-1], found.path[-1:], found.line, found.node)
        elif kind in _MISSING:
            message = _missing(place)
            parent = found.path if found.rest else found.path[:-1]
            found = _Location(parent, place[-1:], found.line, found.node)
        else:
            message = field_problem(detail, found.node, key=place[-1:] == (KEY,))
            if found.rest and found.rest != (KEY,) and (word := _wanted(kind)):
                # One error for each kind of a union: one sentence for all of them.
                words = wanted.setdefault(found.path, [])
                words += [word] if word not in words else []
                message = f"must be {' or '.join(words)}, not {_shown(detail['input'], found.node)}"
                found = _Location(found.path, (), found.line, found.node)
        where = (*found.path, *found.rest)
        problems[where] = (rank, found.line or 0, message, found)
    for where in spelt & problems.keys():
        del problems[where]
    _, line, message, found = min(problems.values(), key=lambda problem: problem[:2])
    name = ".".join(str(part) for part in found.path)
    parts = [f"line {line}"] * bool(line) + [short_place(name)] * bool(name) + [message]
    others = len(problems) - 1 + max(len(details) - MAX_LOOKED_AT, 0)
    more = f" (and {others} more)" if others else ""
    return ": ".join(parts) + more


def field_problem(detail: ErrorDetails, node: yaml.Node | None = None, *, key: bool = False) -> str:
    """Return what is wrong with one field and what is allowed, without its place.

    Args:
        detail: one error of a validation.
        node: where its YAML keeps the value; None: unknown.
        key: it is the key of an entry that is wrong.
    """
    kind, context, value = detail["type"], detail.get("ctx", {}), detail["input"]
    cause = context.get("error")
    if kind in ("value_error", "assertion_error"):
        if isinstance(cause, NoTextError):
            return no_text(cause.value, node)
        return str(cause)
    the_key = "the key " if key else ""
    if kind in _MISSING:
        return _missing(detail["loc"])
    if kind in _UNKNOWN:
        return "the field is unknown"
    if kind.startswith("json_"):
        return "it is not valid JSON"
    if kind == "union_tag_not_found":
        return f"the field {context.get('discriminator')} is missing"
    if kind == "union_tag_invalid":
        said, allowed = context.get("discriminator"), context.get("expected_tags")
        return f"the field {said} must be one of {allowed}, not {quoted(context.get('tag'))}"
    shown = _shown(value, node)
    if kind in _BOUNDS:
        name, words = _BOUNDS[kind]
        bound = context.get(name)
        limit = f"{bound:g}" if isinstance(bound, float) else str(bound)
        return f"{the_key}must be {words} {limit}, not {shown}"
    if kind == "string_pattern_mismatch":
        return f"{the_key}must match the pattern {context.get('pattern')}, not {shown}"
    if kind in ("literal_error", "enum"):
        return f"{the_key}must be {context.get('expected', 'another value')}, not {shown}"
    length = _length(kind, context, value)
    if length is not None:
        return the_key + length
    wanted = _wanted(kind)
    if wanted == "a text":
        return the_key + no_text(value, node)
    if wanted is not None:
        return f"{the_key}must be {wanted}, not {shown}"
    return f"{the_key}{shown} is not allowed here"


def no_text(value: object, node: yaml.Node | None = None) -> str:
    """Return that a value must be a text, and how YAML's own words become one.

    Args:
        value: what it is.
        node: where its YAML keeps it; None: unknown.
    """
    if isinstance(value, str):
        return "must be a text of valid characters"
    scalar = isinstance(value, bool | int | float | date)
    if not isinstance(node, yaml.ScalarNode) or not scalar:
        return f"must be a text, not {_shown(value, node)}"
    written = clipped(node.value)
    if isinstance(value, bool):
        means = "true" if value else "false"
        said = f"means {means} in YAML" if written.lower() != means else "is a truth value in YAML"
        return f"must be a text: {written} {said}, so quote it: '{written}'"
    kind = "number" if isinstance(value, int | float) else "date"
    return f"must be a text, not the {kind} {written}: quote it, '{written}'"


def short_place(place: str) -> str:
    """Return the place of an error on one line, however long its keys are."""
    return place if len(place) <= MAX_PLACE and place.isprintable() else quoted(place, MAX_PLACE)


def did_you_mean(name: object, allowed: Iterable[str], most: int = 16) -> tuple[str, str | None]:
    """Return a hint at the nearest of the allowed names, or at all of them, and the nearest.

    Args:
        name: what was written.
        allowed: the names that are allowed.
        most: how many of them are listed.
    """
    names = list(allowed)
    near = get_close_matches(clipped(str(name), 100), names, 1)
    if near:
        return f": did you mean '{near[0]}'?", near[0]
    if not names:
        return "", None
    listed = ", ".join(names[:most]) + (CUT if len(names) > most else "")
    return f": allowed are {listed}", None


def line_of(node: yaml.Node | None, place: Iterable[Any]) -> int | None:
    """Return the line, from 1, of a place in a document; None: it is not known."""
    line = None if node is None else node.start_mark.line + 1
    for part in place:
        step = _entry(node, part)
        if step is None:
            break
        key, node = step
        line = (key or node).start_mark.line + 1
    return line


def _find(place: tuple[Any, ...], data: Any, node: yaml.Node | None) -> _Location:
    """Return where a location of pydantic's stands in a document."""
    path: list[Any] = []
    line = None if node is None else node.start_mark.line + 1
    for number, part in enumerate(place):
        inside = isinstance(data, dict) and any(part == k or str(k) == str(part) for k in data)
        listed = isinstance(data, list | tuple) and isinstance(part, int) and part < len(data)
        if not inside and not listed:
            return _Location(tuple(path), tuple(place[number:]), line, node)
        if inside:
            part = part if part in data else next(k for k in data if str(k) == str(part))
        step = _entry(node, part)
        data = data[part]
        key, node = (None, None) if step is None else step
        path.append(key.value if isinstance(key, yaml.ScalarNode) else part)
        mark = key or node
        line = line if mark is None else mark.start_mark.line + 1
        if place[number + 1 :] == (KEY,):
            return _Location(tuple(path), (KEY,), line, key)
    return _Location(tuple(path), (), line, node)


def _entry(node: yaml.Node | None, part: Any) -> tuple[yaml.Node | None, yaml.Node] | None:
    """Return the nodes of an entry's key, if it has one, and of its value."""
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int):
        return (None, node.value[part]) if part < len(node.value) else None
    if isinstance(node, yaml.MappingNode):
        # What is merged stands before what is written here, which counts.
        for key, value in reversed(node.value):
            if isinstance(key, yaml.ScalarNode) and _is_key(key, part):
                return key, value
    return None


def _is_key(key: yaml.ScalarNode, part: Any) -> bool:
    if isinstance(part, str) or key.tag.endswith(":str"):
        return bool(key.value == part)
    try:
        return bool(yaml.safe_load(key.value) == part)
    except (yaml.YAMLError, ValueError, KeyError):
        return False


def _inner(detail: ErrorDetails) -> tuple[str | int, ...]:
    cause = detail.get("ctx", {}).get("error")
    return cause.place if isinstance(cause, FieldError) else ()


def _unknown(path: tuple[Any, ...], model: type[BaseModel]) -> tuple[str, str | None]:
    """Return the problem of an unknown field, and the known field with a near name, if any."""
    name = path[-1] if path else ""
    hint, near = did_you_mean(name, fields_at(model, path[:-1]))
    return f"unknown field {quoted(name)}{hint}", near


def _missing(place: tuple[Any, ...]) -> str:
    name = place[-1]
    if isinstance(name, int):
        return f"entry {name + 1} of the list is missing"
    return f"the field '{name}' is missing"


def fields_at(model: Any, path: Iterable[Any]) -> list[str]:
    """Return the fields that a model has at a place, in order; none if it is no model there."""
    kinds = _kinds(model)
    for part in path:
        inner: list[Any] = []
        for kind in kinds:
            origin, arguments = get_origin(kind), get_args(kind)
            if _is_model(kind):
                field = kind.model_fields.get(str(part))
                inner += [] if field is None else _kinds(field.annotation)
            elif arguments and isinstance(origin, type) and issubclass(origin, Mapping):
                inner += _kinds(arguments[-1])
            elif arguments:
                inner += _kinds(arguments[0])
        kinds = inner
    return [name for kind in kinds if _is_model(kind) for name in kind.model_fields]


def _kinds(annotation: Any) -> list[Any]:
    """Return the types of an annotation, without its metadata."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _kinds(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return [kind for each in get_args(annotation) for kind in _kinds(each)]
    if _is_model(annotation) and "root" in annotation.model_fields:
        return _kinds(annotation.model_fields["root"].annotation)
    return [annotation]


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _wanted(kind: str) -> str | None:
    """Return what a field must be, by the kind of the error; None: that is not known."""
    names = [name for name in _WANTED if kind == name or kind.startswith(f"{name}_")]
    return _WANTED[max(names, key=len)] if names else None


def _length(kind: str, context: Mapping[str, Any], value: Any) -> str | None:
    """Return what is wrong with a length; None if it is not that."""
    unit = "entries" if kind in ("too_short", "too_long") else "characters"
    count = context.get("actual_length") or (len(value) if hasattr(value, "__len__") else None)
    has = "" if count is None else f", not {count}"
    if kind.endswith("too_short"):
        least = context.get("min_length", 1)
        if least == 1:
            return "must not be empty"
        return f"must have at least {least} {unit}{has}"
    if kind.endswith("too_long"):
        return f"must have at most {context.get('max_length', 0)} {unit}{has}"
    return None


def _shown(value: object, node: yaml.Node | None) -> str:
    """Return a value as a sentence names it: as it is written, if that is known."""
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple | set | frozenset):
        return "a list"
    if isinstance(node, yaml.ScalarNode) and not isinstance(value, str) and node.value:
        return sentence(clipped(node.value))
    return quoted(value)


OTHERWISE = "it cannot be read here: check indentation, brackets and quotes"
_SENTENCES = (
    (r"mapping values are not allowed|unexpected ':'",
     "a colon followed by a space stands inside a value: quote the value, or end the name above"
     " it with a colon"),
    (r"tab character|'\\t'", "a tab stands where spaces are needed: indent with spaces"),
    (r"cannot start any token",
     "a value begins with a character that means something else: put the value in quotes"),
    (r"',' or '\]'|flow sequence", "a list in brackets lacks a comma or its closing ]"),
    (r"',' or '\}'|flow mapping", "a mapping in braces lacks a comma or its closing }"),
    (r"expected '-'", "an entry of a list must begin with - at the same indentation as the others"),
    (r"expected key|expected ':'|mapping keys are not|block end|block mapping",
     "a name followed by a colon is expected: check the indentation"),
    (r"sequence entries are not|block sequence|block collection",
     "a list cannot begin here: put each entry on a line of its own, after -"),
    (r"unexpected end of stream|unexpected document indicator",
     "a text in quotes is not closed"),
    (r"escape",
     "a text in double quotes has an escape that is unknown: write \\\\ for a backslash"),
    (r"hexadecimal|hexdecimal",
     "a text in double quotes has an escape with wrong digits: write \\\\ for a backslash"),
    (r"not allowed in|(special|control) characters|octet|surrogate|UTF|Unicode|unacceptable|"
     r"invalid (start|continuation) byte",
     "the text holds a character that cannot stand in it"),
    (r"undefined alias", "* names an anchor that does not exist: put the value in quotes"),
    (r"duplicate anchor", "an anchor's name stands twice: choose another after &"),
    (r"contains itself", "an anchor contains itself"),
    (r"another document|single document|document start",
     "a second document begins here: a file holds one"),
    (r"tag|'!'|constructor", "a tag after ! is not known: write plain values, or put it in quotes"),
    (r"unhashable", "a key must be a name or a number, not a list or a mapping"),
    (r"merging", "<< must be followed by an alias of a mapping, or a list of them"),
    (r"directive|version|expected digit",
     "a line that begins with % is not allowed: put the value in quotes"),
    (r"indentation indicator|comment or line break", "| and > must be followed by the line's end"),
    (r"alphabetic or numeric|node content",
     "a value is expected: close brackets and braces, and quote special characters"),
)  # fmt: skip
_PATTERNS = [(re.compile(pattern, re.IGNORECASE), words) for pattern, words in _SENTENCES]


def yaml_problem(error: Exception) -> str:
    """Return where and why a text is not YAML, as ": line 2, column 9 is not valid YAML: ..."."""
    mark: Any = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    where = f": line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    return f"{where} is not valid YAML: {_words(error)}"


def _words(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is too deeply nested"
    if isinstance(error, UnicodeEncodeError):
        return f"{error.object[error.start]!a} is no character"
    if isinstance(error, yaml.reader.ReaderError):
        return f"the text holds {_character(error.character)}, which cannot stand in it"
    said = sentence(f"{getattr(error, 'problem', None) or ''}; {getattr(error, 'context', '')}")
    return next((words for pattern, words in _PATTERNS if pattern.search(said)), OTHERWISE)


def _character(found: object) -> str:
    if isinstance(found, int):
        return ascii(chr(found)) if 0 <= found < 0x110000 else "a character"
    return sentence(ascii(found))
