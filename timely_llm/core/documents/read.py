"""Documents that users write: YAML checked against a model, with one sentence for each error."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from timely_llm.core.documents.nodes import DocumentFault, Size, bounded_document
from timely_llm.core.documents.problems import (
    line_of,
    short_place,
    validation_problem,
    yaml_problem,
)
from timely_llm.core.errors import TimelyError
from timely_llm.core.text import echoed, joined, text_problem

MAX_CHARACTERS = 262_144
"""Most characters of a document."""
MAX_SIZE = Size(nodes=20_000, depth=32)
"""The largest document."""
MAX_PATH = 300
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
        model: model of the document.
        source: name of the document in the sentence: its path, for example.
        error_class: class of the error.
        max_characters: most characters; a longer text is not parsed.
        max_size: largest size, aliases and merges expanded.

    Raises:
        TimelyError: an `error_class`; one line naming the place in `source` and what is wrong.
    """
    if len(text) > max_characters:
        raise error_class(
            f"{source} has {len(text)} characters, at most {max_characters} are allowed"
        )
    try:
        data, node = bounded_document(text, max_size)
    except DocumentFault as error:
        raise error_class(f"{source}{error}") from error
    except Exception as error:  # PyYAML lets every kind out
        raise error_class(f"{source}{yaml_problem(error)}") from error
    if not isinstance(data, dict):
        needed = [name for name, field in model.model_fields.items() if field.is_required()]
        what = f"a mapping with {joined(needed)}" if "root" not in needed else "a mapping"
        raise error_class(f"{source}: must be {what}")
    unfit = _unfit_text(data, ())
    if unfit is not None:
        place, words = unfit
        raise error_class(f"{source}: line {line_of(node, place)}: {words}")
    try:
        return model.model_validate(data)
    except ValidationError as error:
        problem = validation_problem(error, model, data, node)
        raise error_class(f"{source}: {problem}") from error


def load_document(
    path: str | Path, model: type[Document], kind: str, error_class: type[TimelyError]
) -> Document:
    """Return the document in the YAML file at `path`; see `read_document`.

    Args:
        path: the file.
        model: model of the document.
        kind: name in the sentence of a file that cannot be read, such as "skill set".
        error_class: class of the error.

    Raises:
        TimelyError: an `error_class`; the file cannot be read or is not valid.
    """
    return read_document(read_text(path, kind, error_class), model, str(path), error_class)


def line_in(text: str, *place: str | int) -> int:
    """Return the line, from 1, of a place in a valid document."""
    return line_of(bounded_document(text, MAX_SIZE)[1], place) or 1


def read_text(path: str | Path, kind: str, error_class: type[TimelyError]) -> str:
    """Return the text of a document's file; of a longer file, one character more than allowed.

    Raises:
        TimelyError: an `error_class`; the file cannot be read.
    """
    try:
        with Path(path).open(encoding="utf-8") as file:
            return file.read(MAX_CHARACTERS + 1)
    except (OSError, ValueError) as error:  # no Unicode, or no path
        reason = getattr(error, "strerror", None) or error
        raise error_class(f"cannot read {kind} {echoed(str(path), MAX_PATH)}: {reason}") from error


def _unfit_text(data: Any, place: tuple[Any, ...]) -> tuple[tuple[Any, ...], str] | None:
    """Return the place of the first invalid text, and what is wrong; None: all are valid."""
    if isinstance(data, str):
        name = short_place(".".join(map(str, place)))
        problem = text_problem(f"the text at {name}" if place else "the text", data)
        return None if problem is None else (place, problem)
    entries: list[tuple[Any, Any]] = []
    if isinstance(data, dict):
        entries = list(data.items())
    elif isinstance(data, list | tuple | set | frozenset):
        entries = list(enumerate(data))
    for key, value in entries:
        problem = text_problem("a key", key) if isinstance(key, str) else None
        if problem is not None:
            return (*place, key), problem
        found = _unfit_text(value, (*place, key))
        if found is not None:
            return found
    return None
