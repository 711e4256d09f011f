"""Measured times of skills, and reading them from CSV."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from timely_llm.core.errors import ConfigurationError, PlanError
from timely_llm.core.segment import SkillCall
from timely_llm.skills.calls import checked_call, parse_arguments
from timely_llm.skills.execution_time import LONGEST_S, ExecutionTimes
from timely_llm.skills.skill_set import SkillSet

MAX_BYTES = 256 * 2**20
MAX_MEASUREMENTS = 1_000_000

_NUMBERED = re.compile(r"arg([1-9][0-9]?)")


@dataclass(frozen=True)
class Measurement:
    """One execution of a skill.

    Attributes:
        seconds: how long it took.
    """

    skill: str
    arguments: tuple[int | float | str, ...]
    seconds: float


@dataclass(frozen=True)
class Recording:
    """What was measured.

    Attributes:
        measurements: the executions.
        left_out: executions that were not used, by reason.
    """

    measurements: tuple[Measurement, ...]
    left_out: dict[str, int]


def read_csv(path: Path, skill_set: SkillSet) -> Recording:
    """Return the executions in a CSV file.

    Its first line names the columns, in any order: `skill`; `seconds`; and the arguments, either as
    `arguments`, written as between the brackets of a call (`100` or `'red cup', 3`), or as `arg1`,
    `arg2` and so on. Other columns are ignored.

    Args:
        path: the file, in UTF-8.
        skill_set: the skills, whose bounds the arguments keep.

    Raises:
        ConfigurationError: the file cannot be read, is too large, or has a line that is no
            execution; one sentence with the line's number.
    """
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise ConfigurationError(
                f"{path} has {size / 2**20:.0f} MiB, at most {MAX_BYTES // 2**20} are read"
            )
        with path.open(encoding="utf-8-sig", newline="") as file:
            found = tuple(_rows(path, csv.reader(file, strict=True), skill_set))
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is no CSV file in UTF-8: {error.reason}") from error
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}") from error
    if not found:
        raise ConfigurationError(f"{path} has no executions, only a header")
    return Recording(found, {})


def _rows(path: Path, lines: Iterable[list[str]], skill_set: SkillSet) -> Iterator[Measurement]:
    rows = enumerate(_readable(path, lines), start=1)
    _, header = next(rows, (0, []))
    columns = _Columns(path, [name.strip().lower() for name in header])
    times = ExecutionTimes(skill_set)
    for number, row in rows:
        if not any(cell.strip() for cell in row):
            continue
        if number > MAX_MEASUREMENTS:
            raise ConfigurationError(f"{path} has more than {MAX_MEASUREMENTS} lines")
        try:
            call = columns.call(row, skill_set, times)
            yield Measurement(call.name, call.arguments, columns.seconds(row))
        except PlanError as error:
            raise ConfigurationError(f"{path}, line {number}: {error}") from error


def _readable(path: Path, lines: Iterable[list[str]]) -> Iterator[list[str]]:
    try:
        yield from lines
    except csv.Error as error:
        raise ConfigurationError(f"{path} is no CSV file: {error}") from error


class _Columns:
    """Where the columns are.

    Raises:
        ConfigurationError: one is missing.
    """

    def __init__(self, path: Path, names: list[str]) -> None:
        for name in ("skill", "seconds"):
            if name not in names:
                raise ConfigurationError(
                    f"{path} has no column {name!r}: the first line must name the columns skill,"
                    " seconds and arguments, or arg1, arg2 ..., separated by commas"
                )
        self._skill, self._seconds = names.index("skill"), names.index("seconds")
        self._arguments = names.index("arguments") if "arguments" in names else None
        numbered = {
            int(m[1]): at for at, name in enumerate(names) if (m := _NUMBERED.fullmatch(name))
        }
        self._numbered = [numbered[number] for number in sorted(numbered)]
        if self._arguments is not None and self._numbered:
            raise ConfigurationError(
                f"{path} has both the columns arguments and arg1: use one kind"
            )

    def call(self, row: list[str], skill_set: SkillSet, times: ExecutionTimes) -> SkillCall:
        name = self._cell(row, self._skill)
        skill = skill_set.skills.get(name)
        if skill is None:
            known = ", ".join(skill_set.skills)
            raise PlanError(f"unknown skill {name!r}: {skill_set.name} has {known}")
        if self._arguments is not None:
            arguments = parse_arguments(self._cell(row, self._arguments), skill)
        else:
            cells = [self._cell(row, at) for at in self._numbered]
            while cells and not cells[-1]:
                cells.pop()
            arguments = [value for cell in cells for value in parse_arguments(cell, skill)]
        return checked_call(name, skill, arguments, times)

    def seconds(self, row: list[str]) -> float:
        text = self._cell(row, self._seconds)
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not 0.0 <= value <= LONGEST_S:
            raise PlanError(f"seconds must be a number from 0 to {LONGEST_S:g}, not {text!r}")
        return value

    def _cell(self, row: list[str], at: int) -> str:
        return row[at].strip() if at < len(row) else ""
