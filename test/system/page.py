"""A page that is followed literally: its files, its commands, and their output."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

_SECTION = re.compile(r"^## (?:\d+\. )?(.+)$")
_FILE = re.compile(r"^<!-- file: (\S+) -->$")
# What differs between two runs: times of logs and of segments, ids, trailing blanks, and whether
# the extra `server` is there to count a prompt's tokens.
_VARIES = (
    (re.compile(r"\[\d{10}\.\d{9}\]"), "[TIME]"),
    (re.compile(r"^ +\d+\.\d\d s  ", re.M), "  SECONDS  "),
    (re.compile(r"the first after \d+\.\d\d s"), "the first after SECONDS"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "ID"),
    (
        re.compile(
            r"(?<=that all tasks share: )(where [^:]+? are counted|\d+ tokens of tiny_planner)"
        ),
        "TOKENS",
    ),
    (re.compile(r"[ \t]+$", re.M), ""),
)


@dataclass(frozen=True)
class Step:
    """Something that a reader does.

    Attributes:
        section: heading under which it stands, without its number.
        kind: `file`: save `text` as `name`; `command`: run `name`, which prints `text`;
            `interrupt`: press Ctrl-C where the last server runs, which prints `text`.
    """

    section: str
    kind: Literal["file", "command", "interrupt"]
    name: str
    text: str


def steps_of(page: str) -> list[Step]:
    """Return the steps of a reader of the page, in order."""
    steps: list[Step] = []
    section, name = "", ""
    lines = iter(page.splitlines())
    for line in lines:
        if heading := _SECTION.match(line):
            section = heading[1]
        elif file := _FILE.match(line):
            name = file[1]
        elif line.startswith("```"):
            block = []
            while (inside := next(lines)) != "```":
                block.append(inside)
            if name:
                steps.append(Step(section, "file", name, "\n".join(block) + "\n"))
                name = ""
            elif line == "```console":
                steps += _commands(section, block)
    return steps


def _commands(section: str, lines: list[str]) -> list[Step]:
    steps: list[Step] = []
    for line in lines:
        if line == "^C":
            steps.append(Step(section, "interrupt", "", ""))
        elif line.startswith("$ "):
            steps.append(Step(section, "command", line[2:], ""))
        else:
            last = steps.pop()
            steps.append(Step(section, last.kind, last.name, last.text + line + "\n"))
    return steps


def settled(text: str) -> str:
    """Return the output of a command without the parts that differ between runs."""
    for pattern, words in _VARIES:
        text = pattern.sub(words, text)
    return text.strip("\n")
