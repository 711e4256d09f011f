"""Objects of a user's own, named as `my_module:MyPolicy`.

Naming one runs its module: references are taken only from where a program is started, never from
a request.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from timely_llm.core.errors import ConfigurationError
from timely_llm.core.text import quoted

_REFERENCE = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*")
FORM = "my_module:MyName"
_NOT_THE_USERS = ("<frozen", __file__, importlib.__file__)
"""Beginnings of file names that are not a user's: their lines do not locate the fault."""


def is_reference(text: str) -> bool:
    """Return whether a text has the form of a reference: a module, a colon, a name in it."""
    return _REFERENCE.fullmatch(text) is not None


def load(reference: str) -> Any:
    """Return the object that a text such as `my_module:MyPolicy` names.

    The module is one that Python finds, or a file or package in the working directory.

    Raises:
        ConfigurationError: the text is no reference, the module is not found or cannot be
            imported, or it has no such name.
    """
    if not is_reference(reference):
        raise ConfigurationError(f"{quoted(reference)} is not of the form {FORM}")
    module_name, name = reference.split(":")
    module = _imported(module_name)
    if not hasattr(module, name):
        near = get_close_matches(name, vars(module), 1)
        meant = f": is {near[0]} meant?" if near else ""
        raise ConfigurationError(f"the module {module_name} has no {name}{meant}")
    return getattr(module, name)


def maker(what: str, name: str, ours: Mapping[str, Any], form: str) -> Any:
    """Return what makes an object: one of ours by its name, or a user's own class or function.

    Args:
        what: what is made, such as `policy`, for the sentences of errors.
        name: the user's text.
        ours: those of the package by name.
        form: how a user's own is named.

    Raises:
        ConfigurationError: no such object is known, or the user's own cannot be called.
    """
    if name in ours:
        return ours[name]
    if not is_reference(name):
        raise ConfigurationError(unknown(what, name, ours, form))
    make = load(name)
    if not callable(make):
        raise ConfigurationError(f"{name} is no {what}: it is {quoted(make)}, not a class")
    return make


def unknown(what: str, name: str, ours: Iterable[str], form: str) -> str:
    """Return the sentence for a name that means nothing; see `maker`."""
    allowed = ", ".join(ours)
    return f"unknown {what} {quoted(name)}: choose one of {allowed}, or name your own as {form}"


def _imported(name: str) -> Any:
    top = name.split(".")[0]
    if top not in sys.modules and importlib.util.find_spec(top) is None:
        here = str(Path.cwd())
        if not any((Path(here) / file).exists() for file in (f"{top}.py", top)):
            raise ConfigurationError(
                f"the module {name} is not found: start where {top}.py lies, or install it"
            )
        sys.path.append(here)  # last: a file here takes no other module's place
        importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:  # whatever a user's module raises
        words = raised(error)
        raise ConfigurationError(f"the module {name} cannot be imported: {words}") from error


def raised(error: BaseException) -> str:
    """Return what a user's code raised: the error's type and text, and the place in a file."""
    words = f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")
    if isinstance(error, SyntaxError):  # its text names the place
        return words
    trace, place = error.__traceback__, ""
    while trace is not None:
        code = trace.tb_frame.f_code
        if not code.co_filename.startswith(_NOT_THE_USERS):
            place = f" ({Path(code.co_filename).name}, line {trace.tb_lineno})"
        trace = trace.tb_next
    return words + place
