"""Options of vLLM's own, as they are written in parameters: `name=value`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from timely_llm.core.errors import EngineError


def parse_engine_args(texts: Iterable[str]) -> dict[str, Any]:
    """Return options by name; a value that is not JSON is a text. Empty texts are passed over.

    Raises:
        EngineError: a text is not `name=value`, or a name comes twice.
    """
    args: dict[str, Any] = {}
    for text in filter(None, texts):
        name, equals, value = text.partition("=")
        if not (equals and name.isidentifier()):
            raise EngineError(f"engine_args: {text!r} is not name=value")
        if name in args:
            raise EngineError(f"engine_args: {name!r} is given twice")
        try:
            args[name] = json.loads(value)
        except ValueError:
            args[name] = value
    return args
