"""Documents that users write: YAML checked against a model, with one sentence for each error."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from timely_llm.core.errors import TimelyError

Document = TypeVar("Document", bound=BaseModel)


def read_document(
    text: str, model: type[Document], source: str, error_class: type[TimelyError]
) -> Document:
    """Return the document written in YAML `text`.

    Args:
        text: the YAML.
        model: what the document must be.
        source: what the sentence calls the document: its path, for example.
        error_class: what to raise.

    Raises:
        TimelyError: an `error_class`; one line naming the place in `source` and what is wrong.
    """
    try:
        data: Any = yaml.safe_load(text)
    except Exception as error:  # PyYAML lets every kind out: KeyError for "!!bool maybe"
        raise error_class(f"{source}{_yaml_problem(error)}") from error
    if not isinstance(data, dict):
        needed = [name for name, field in model.model_fields.items() if field.is_required()]
        raise error_class(f"{source}: must be a mapping with {_listed(needed)}")
    try:
        return model.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "top level"
        message = first["msg"].removeprefix("Value error, ")
        more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
        raise error_class(f"{source}: at {place}: {message}{more}") from error


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
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise error_class(f"cannot read {kind} {path}: {reason}") from error
    return read_document(text, model, str(path), error_class)


def _yaml_problem(error: Exception) -> str:
    """Return where and why the text is not YAML, on one line."""
    mark = getattr(error, "problem_mark", None)
    where = f": line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    if isinstance(error, RecursionError):
        problem = "too deeply nested"
    elif isinstance(error, ValueError):  # a date, say, that looks like one but does not exist
        problem = str(error)
    else:
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "unreadable"
    return f"{where} is not valid YAML: {problem}"


def _listed(names: list[str]) -> str:
    """Return "a, b and c"."""
    return " and ".join(", ".join(part) for part in (names[:-1], names[-1:]) if part)
