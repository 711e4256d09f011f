"""Documents that users write: YAML checked against a model, with one sentence for each error."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from timely_llm.core.document_nodes import DocumentTooLarge, Size, bounded_load
from timely_llm.core.echo import quoted
from timely_llm.core.errors import TimelyError
from timely_llm.core.text import text_problem

MAX_CHARACTERS = 262_144
"""Characters of the longest document."""
MAX_SIZE = Size(nodes=20_000, depth=32)
"""The largest document."""
MAX_PLACE = 120
Document = TypeVar("Document", bound=BaseModel)


def read_document(
    text: str,
    model: type[Document],
    source: str,
    error_class: type[TimelyError],
    max_characters: int = MAX_CHARACTERS,
    max_size: Size = MAX_SIZE,
) -> Document:
    """Return the document written in YAML `text`.

    Args:
        text: the YAML.
        model: what the document must be.
        source: what the sentence calls the document: its path, for example.
        error_class: what to raise.
        max_characters: of the text; a longer one is not looked at.
        max_size: of what the text means, aliases and merges written out.

    Raises:
        TimelyError: an `error_class`; one line naming the place in `source` and what is wrong.
    """
    if len(text) > max_characters:
        raise error_class(
            f"{source} has {len(text)} characters, at most {max_characters} are allowed"
        )
    try:
        data: Any = bounded_load(text, max_size)
    except DocumentTooLarge as error:
        raise error_class(f"{source}{error}") from error
    except Exception as error:  # PyYAML lets every kind out: KeyError for "!!bool maybe"
        raise error_class(f"{source}{_yaml_problem(error)}") from error
    if not isinstance(data, dict):
        needed = [name for name, field in model.model_fields.items() if field.is_required()]
        raise error_class(f"{source}: must be a mapping with {_listed(needed)}")
    problem = _words_problem(data, "")
    if problem is not None:
        raise error_class(f"{source}: {problem}")
    try:
        return model.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "top level"
        message = first["msg"].removeprefix("Value error, ")
        more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
        raise error_class(f"{source}: at {_short(place)}: {message}{more}") from error


def load_document(
    path: str | Path, model: type[Document], kind: str, error_class: type[TimelyError]
) -> Document:
    """Return the document in the YAML file at `path`; see `read_document`.

    Args:
        path: the file.
        model: what the document must be.
        kind: what the sentence calls a file that cannot be read, such as "skill set".
        error_class: what to raise.

    Raises:
        TimelyError: an `error_class`; the file cannot be read or is not valid.
    """
    return read_document(read_text(path, kind, error_class), model, str(path), error_class)


def read_text(path: str | Path, kind: str, error_class: type[TimelyError]) -> str:
    """Return the text of a document's file; of a file that is too long, enough to tell.

    Raises:
        TimelyError: an `error_class`; the file cannot be read.
    """
    try:
        with Path(path).open(encoding="utf-8") as file:
            return file.read(MAX_CHARACTERS + 1)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise error_class(f"cannot read {kind} {path}: {reason}") from error


def _words_problem(data: Any, place: str) -> str | None:
    """Return what is wrong with the first text that is not fine, or None if all are."""
    if isinstance(data, str):
        return text_problem(f"the text at {_short(place)}" if place else "a key", data)
    if isinstance(data, dict):
        for key, value in data.items():
            inner = f"{place}.{key}" if place else str(key)
            problem = _words_problem(key, "") or _words_problem(value, inner)
            if problem is not None:
                return problem
    elif isinstance(data, list | tuple | set | frozenset):
        for number, value in enumerate(data):
            problem = _words_problem(value, f"{place}.{number}")
            if problem is not None:
                return problem
    return None


def _short(place: str) -> str:
    """Return the place of an error on one line, however long its keys are."""
    return place if len(place) <= MAX_PLACE and place.isprintable() else quoted(place, MAX_PLACE)


def _yaml_problem(error: Exception) -> str:
    """Return where and why the text is not YAML, on one line."""
    mark = getattr(error, "problem_mark", None)
    where = f": line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    if isinstance(error, RecursionError):
        problem = "too deeply nested"
    elif isinstance(error, UnicodeEncodeError):
        problem = f"{error.object[error.start]!a} is no character"
    elif isinstance(error, yaml.reader.ReaderError):
        problem = str(error.reason)
    elif isinstance(error, ValueError):  # a date, say, that looks like one but does not exist
        problem = str(error)
    else:
        problem = getattr(error, "problem", None) or "unreadable"
    line = " ".join(problem.split())
    return f"{where} is not valid YAML: {line if len(line) <= 200 else line[:197] + '...'}"


def _listed(names: list[str]) -> str:
    """Return "a, b and c"."""
    return " and ".join(", ".join(part) for part in (names[:-1], names[-1:]) if part)
