"""Words that the language rule of CONTRIBUTING.md forbids: `python -m tools.words [PATH...]`.

Prints each one with its place and what to say instead. The list is tools/words.yaml.
"""

from __future__ import annotations

import io
import os
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
LIST = Path(__file__).with_name("words.yaml")
SKIPPED = re.compile(r"\.(?!ci$|github$)|__pycache__$|.*\.egg-info$")
"""Names of folders that tools make."""
MADE = {
    *(ROOT / name for name in ("build", "install", "log", "dist", "demo")),
    *(ROOT / "timely_llm" / name for name in ("msg", "srv", "action")),
}
"""What builds and runs write into the source tree."""
_HASHES = re.compile(r"(?:^|\s)#(?P<text>.*)$|^\s*(?:-\s+)?description:(?P<said>.*)$", re.MULTILINE)
_SLASHES = re.compile(r"(?:^|\s)//(?P<text>[^\n]*)$|/\*(?P<said>.*?)\*/", re.MULTILINE | re.DOTALL)
_COMMENTS = {
    **dict.fromkeys((".yaml", ".yml", ".msg", ".srv", ".action", ".cmake", ".toml", ""), _HASHES),
    **dict.fromkeys((".cpp", ".hpp", ".js", ".css"), _SLASHES),
}
_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`|\]\([^)\s]*\)|<!--.*?-->", re.DOTALL)
_MARKUP = re.compile(r"\{%.*?%\}|\{\{.*?\}\}|<[^>]*>", re.DOTALL)
_INLINE = re.compile(r"`[^`\n]*`|^\s+\w+(?:, \w+)*: ", re.MULTILINE)
"""Code in backticks, and the names of arguments and attributes in docstrings."""
_FIELD = re.compile(r"\{[^{}]*\}")
_STRING = re.compile(
    r"(?P<kind>[a-zA-Z]*)(?P<quote>\"{3}|'{3}|\"|')(?P<text>.*)(?P=quote)", re.DOTALL
)
_STRINGS = {tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
_BETWEEN = {
    tokenize.NL,
    getattr(tokenize, "FSTRING_START", tokenize.NL),
    getattr(tokenize, "FSTRING_END", tokenize.NL),
}


@dataclass(frozen=True)
class Rule:
    """Words that are not used.

    Attributes:
        pattern: what finds them.
        say: what to write instead.
        allowed: phrases in which they are right; None: there are none.
    """

    pattern: re.Pattern[str]
    say: str
    allowed: re.Pattern[str] | None

    def find(self, text: str) -> Iterator[re.Match[str]]:
        """Yield the forbidden matches in a text."""
        right = [found.span() for found in self.allowed.finditer(text)] if self.allowed else []
        for found in self.pattern.finditer(text):
            if not any(start <= found.start() and found.end() <= stop for start, stop in right):
                yield found


@dataclass(frozen=True)
class Finding:
    """A forbidden word.

    Attributes:
        path: its file, relative to the source tree if it lies there.
        line: from 1.
        words: as they stand there.
        say: what to write instead.
    """

    path: Path
    line: int
    words: str
    say: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.words!r}: say {self.say}"


@cache
def rules() -> tuple[Rule, ...]:
    """Return the list."""
    entries = yaml.safe_load(LIST.read_text(encoding="utf-8"))
    return tuple(
        Rule(
            _compiled(entry["pattern"]),
            entry["say"],
            _compiled("|".join(entry["allowed"])) if "allowed" in entry else None,
        )
        for entry in entries
    )


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the texts for readers in a file, each with the line on which it begins.

    Python: comments, docstrings, strings of three words or more, and names of tests; nothing in
    backticks. Markdown: all but code. Page templates: all but markup. Other files: comments,
    and descriptions in YAML.
    """
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        yield from _python(text)
    elif path.suffix == ".md":
        yield 1, _CODE.sub(_blank, text)
    elif path.suffix == ".j2":
        yield 1, _MARKUP.sub(_blank, text)
    elif path.suffix in _COMMENTS:
        found = _COMMENTS[path.suffix].finditer(text)
        yield from _joined(
            (text.count("\n", 0, one.start(one.lastgroup or 0)) + 1, one[one.lastgroup or 0])
            for one in found
        )


def findings(paths: Iterable[Path]) -> Iterator[Finding]:
    """Yield the forbidden words of some files, by lines."""
    for path in paths:
        shown = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
        found = [
            Finding(
                shown, first + text.count("\n", 0, one.start()), " ".join(one[0].split()), rule.say
            )
            for first, text in prose(path)
            for rule in rules()
            for one in rule.find(text)
        ]
        yield from sorted(found, key=attrgetter("line"))


def files(roots: Iterable[Path]) -> Iterator[Path]:
    """Yield the files with prose that lie in some folders, or are named themselves."""
    for root in roots:
        if not root.is_dir():
            yield root
            continue
        for folder, folders, names in os.walk(root):
            inside = Path(folder)
            folders[:] = sorted(
                name for name in folders if not SKIPPED.match(name) and inside / name not in MADE
            )
            for path in (inside / name for name in sorted(names)):
                if path.suffix in {".py", ".md", ".j2", *_COMMENTS} and not _binary(path):
                    yield path


def main(arguments: list[str]) -> int:
    """Print what is found; return 1 if there is something."""
    found = list(findings(files([Path(name).resolve() for name in arguments] or [ROOT])))
    for finding in found:
        print(finding)
    return bool(found)


def _python(text: str) -> Iterator[tuple[int, str]]:
    comments, strings, run = [], list[tuple[int, str]](), list[tuple[int, str]]()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            comments.append((token.start[0], token.string.lstrip("#")))
        elif token.type == tokenize.NAME and token.string.startswith("test_"):
            yield token.start[0], token.string.replace("_", " ")
        elif token.type in _STRINGS:
            run.append((token.start[0], _content(token.string)))
        elif token.type not in _BETWEEN and run:  # what stands beside each other is one string
            strings += _joined(run)
            run = []
    strings = [(line, text) for line, text in strings if len(text.split()) >= 3]
    for line, said in (*_joined(comments), *strings):
        yield line, _INLINE.sub(_blank, said)


def _content(string: str) -> str:
    literal = _STRING.fullmatch(string)
    if literal is None:  # a piece of a formatted one, since Python 3.12
        return string
    return _FIELD.sub(_blank, literal["text"]) if "f" in literal["kind"] else literal["text"]


def _joined(pieces: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Yield texts on consecutive lines as one."""
    first, lines = 0, list[str]()
    for line, text in pieces:
        if lines and line - first not in (len(lines), len(lines) - 1):
            yield first, "\n".join(lines)
            lines = []
        if not lines:
            first = line
        if lines and line - first == len(lines) - 1:
            lines[-1] += text.partition("\n")[0]
            lines += text.split("\n")[1:]
        else:
            lines += text.split("\n")
    if lines:
        yield first, "\n".join(lines)


def _blank(found: re.Match[str]) -> str:
    return "\n" * found[0].count("\n") or " "


def _binary(path: Path) -> bool:
    with path.open("rb") as file:
        return b"\0" in file.read(1024)


def _compiled(pattern: str) -> re.Pattern[str]:
    # Texts break their lines anywhere.
    return re.compile(pattern.replace(" ", r"\s+"), re.IGNORECASE)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
