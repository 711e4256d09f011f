"""Which tasks come together and which after another: {(1, 2), 8, 9} (paper 001 §6)."""

from __future__ import annotations

import re

from timely_llm.traces.model import TraceError

MAX_GROUPS_CHARACTERS = 20_000
EXAMPLE = "{(1, 2), 8, 9}"

Groups = tuple[tuple[str, ...], ...]

_TASK = re.compile(r"[A-Za-z0-9_]+")
_WORD = re.compile(rf"\s*({_TASK.pattern}|[{{}}(),])")
_END = "the end"


def parse_groups(text: str) -> Groups:
    """Return the tasks of each event, in order; tasks in round brackets are of one event.

    Raises:
        TraceError: one sentence that says where the text is not like the example.
    """
    if len(text) > MAX_GROUPS_CHARACTERS:
        raise TraceError(f"groups may have {MAX_GROUPS_CHARACTERS} characters, not {len(text)}")
    words = _Words(text)
    words.take("{")
    groups = [_group(words)]
    while words.next() == ",":
        words.take(",")
        groups.append(_group(words))
    words.take("}")
    words.take(_END)
    return tuple(groups)


def parse_tasks(text: str) -> tuple[str, ...]:
    """Return the names of tasks in a list such as "1-8, 10".

    Raises:
        TraceError: one sentence; the text is no such list.
    """
    names: list[str] = []
    for part in text.split(","):
        found = re.fullmatch(r"\s*([A-Za-z0-9_]+)\s*(?:-\s*([0-9]+)\s*)?", part)
        if not found:
            raise TraceError(f"{part.strip()!r} is no task: tasks are written like 1-8, 10")
        first, last = found.groups()
        if last is None:
            names.append(first)
        elif not first.isdecimal() or not 0 <= int(last) - int(first) <= 1000:
            raise TraceError(f"{part.strip()!r} is no range of tasks: it is written like 1-8")
        else:
            names += [str(number) for number in range(int(first), int(last) + 1)]
    return tuple(dict.fromkeys(names))


class _Words:
    """The words and marks of a text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._place = 0

    def next(self) -> str:
        found = _WORD.match(self._text, self._place)
        if found:
            return found[1]
        return self._text[self._place :].strip()[:1] or _END

    def take(self, *allowed: str) -> str:
        """Return the next word: one of `allowed`, or else the name of a task."""
        word = self.next()
        if not (word in allowed if allowed else _TASK.fullmatch(word)):
            wanted = " or ".join(repr(a) if a != _END else a for a in allowed) or "a task"
            got = word if word == _END else repr(word)
            where = len(self._text) - len(self._text[self._place :].lstrip()) + 1
            raise TraceError(
                f"groups {self._text[:60]!r}: {wanted} was expected at character {where},"
                f" not {got}; they are written like {EXAMPLE}"
            )
        if found := _WORD.match(self._text, self._place):
            self._place = found.end()
        return word


def _group(words: _Words) -> tuple[str, ...]:
    if words.next() != "(":
        return (words.take(),)
    words.take("(")
    tasks = [words.take()]
    while words.take(",", ")") == ",":
        tasks.append(words.take())
    return tuple(tasks)
