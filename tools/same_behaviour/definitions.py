"""Interface definitions as text: their fields and constants, with nested types."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PACKAGE = "timely_llm"
KINDS = ("msg", "srv", "action")
PARTS = {"msg": ("",), "srv": ("Request", "Response"), "action": ("Goal", "Result", "Feedback")}
"""The parts of each kind; a line with three dashes stands between two of them."""
_INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
_PRIMITIVES = frozenset(
    ("bool", "byte", "char", "float32", "float64", "string", "wstring", *_INTEGERS)
)
_NAMES_IN_PYTHON = {
    "bool": "boolean", "byte": "octet", "char": "uint8", "float32": "float", "float64": "double",
}  # fmt: skip


def files(tree: Path) -> list[Path]:
    """Return the definitions of a source tree."""
    return [file for kind in KINDS for file in sorted((tree / kind).glob(f"*.{kind}"))]


def parts(file: Path) -> dict[str, list[str]]:
    """Return the lines of each part that say something, without comments."""
    found: dict[str, list[str]] = {}
    names = iter(PARTS[file.suffix[1:]])
    name = next(names)
    found[name] = []
    for line in file.read_text(encoding="utf-8").splitlines():
        if line.strip() == "---":
            name = next(names)
            found[name] = []
        elif bare := " ".join(without_comment(line).split()):
            found[name].append(bare)
    return found


def without_comment(line: str) -> str:
    """Return a line of a definition up to its comment; a text's value may hold the sign."""
    head, sign, _ = line.partition("#")
    return line if sign and re.match(r"^w?string\S*\s+\w+\s*=", line) else head


def is_constant(line: str) -> bool:
    """Return whether a line without comment declares a constant."""
    return "=" in line.split(" ", 1)[1].replace("<=", "")


def resolved(tree: Path, lines: list[str], depth: int = 0) -> Iterator[str]:
    """Yield the lines of a part with those of nested types below them, indented by a tab each."""
    for line in lines:
        yield "\t" * depth + line
        kind = re.split(r"[\[<]", line.split()[0])[0]
        if kind not in _PRIMITIVES and not is_constant(line):
            yield from resolved(tree, _nested(tree, kind), depth + 1)


@cache
def _nested(tree: Path, kind: str) -> list[str]:
    package, _, name = kind.rpartition("/")
    package = package.removesuffix("/msg") or PACKAGE
    if package == PACKAGE:
        return parts(tree / "msg" / f"{name}.msg")[""]
    prefixes = [
        *filter(None, os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep)),
        sys.prefix,
    ]
    for prefix in prefixes:
        file = Path(prefix, "share", package, "msg", f"{name}.msg")
        if file.is_file():
            return parts(file)[""]
    return [f"# {kind} is not installed"]


def python_fields(file: Path) -> dict[str, dict[str, object]]:
    """Return what the generated classes of a definition have: fields by type, and constants.

    Returns:
        By class, such as `action/Plan.Goal`: `fields`, a list of names and types as
        `get_fields_and_field_types` has them, and `constants`, values as texts by name.
    """
    found: dict[str, dict[str, object]] = {}
    for part, lines in parts(file).items():
        fields, constants = [], {}
        for line in lines:
            if is_constant(line):
                kind, rest = line.split(" ", 1)
                name, value = rest.split("=", 1)
                constants[name.strip()] = _constant(kind, value.strip())
            else:
                kind, name = line.split()[:2]
                fields.append([name, _python_type(kind)])
        key = f"{file.parent.name}/{file.stem}" + (f".{part}" if part else "")
        found[key] = {"fields": fields, "constants": constants}
    return found


def _constant(kind: str, value: str) -> str:
    """Return the value of a constant as Python shows it."""
    if kind == "bool":
        return str(value.lower() in ("true", "1"))
    if kind.startswith("float"):
        return str(float(value))
    return value.strip("\"'") if "string" in kind else str(int(value, 0))


def _python_type(kind: str) -> str:
    if array := re.fullmatch(r"(?P<inner>[^\[]+)\[(?P<size>[^\]]*)\]", kind):
        inner, size = _python_type(array["inner"]), array["size"]
        if size.isdecimal():
            return f"{inner}[{size}]"
        return f"sequence<{inner}, {size[2:]}>" if size else f"sequence<{inner}>"
    if bounded := re.fullmatch(r"(w?string)<=(\d+)", kind):
        return f"{bounded[1]}<{bounded[2]}>"
    if kind in _PRIMITIVES:
        return _NAMES_IN_PYTHON.get(kind, kind)
    return kind.replace("/msg/", "/") if "/" in kind else f"{PACKAGE}/{kind}"
