"""Measured times of skills, read from a CSV file or from a bag of real executions."""

from __future__ import annotations

import csv
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from timely_llm.core.errors import ConfigurationError, PlanError
from timely_llm.core.request import ReportState
from timely_llm.core.requirements import need
from timely_llm.core.segment import SkillCall
from timely_llm.skills.execution_time import (
    INSTANT_S,
    LONGEST_S,
    ExecutionTimes,
    checked_call,
    made_once,
    parse_arguments,
)
from timely_llm.skills.skill import Skill
from timely_llm.skills.skill_set import SkillSet
from timely_llm.traces.model import TraceError
from timely_llm.traces.recordings.messages import check_definition, type_store

MAX_BYTES = 256 * 2**20
MAX_MEASUREMENTS = 1_000_000

_NUMBERED = re.compile(r"arg[1-9][0-9]?")


@dataclass(frozen=True)
class Measurement:
    """One execution of a skill, with its time in seconds."""

    skill: str
    arguments: tuple[int | float | str, ...]
    seconds: float


@dataclass(frozen=True)
class MeasurementSet:
    """Measured executions, and the numbers of unused executions, by reason."""

    measurements: tuple[Measurement, ...]
    left_out: dict[str, int]


def read_csv(path: Path, skill_set: SkillSet) -> MeasurementSet:
    """Return the executions in a CSV file.

    Its first line names the columns, in any order: `skill`; `seconds`; and the arguments, either as
    `arguments`, written as between the brackets of a call (`100` or `'red cup', 3`), or as `arg1`,
    `arg2` and so on. Other columns are ignored.

    Args:
        path: the file, in UTF-8.
        skill_set: the skills; arguments must keep their bounds.

    Raises:
        ConfigurationError: the file cannot be read, is too large, or has a line that is not an
            execution. The sentence has the line's number.
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
    return MeasurementSet(found, {})


def _rows(path: Path, lines: Iterable[list[str]], skill_set: SkillSet) -> Iterator[Measurement]:
    rows = enumerate(_readable(path, lines), start=1)
    _, header = next(rows, (0, []))
    names = [name.strip().lower() for name in header]
    arguments = _argument_columns(path, names)
    times = ExecutionTimes(skill_set)
    for number, row in rows:
        cells = {name: cell.strip() for name, cell in zip(names, row, strict=False)}
        if not any(cell.strip() for cell in row):
            continue
        if number > MAX_MEASUREMENTS:
            raise ConfigurationError(f"{path} has more than {MAX_MEASUREMENTS} lines")
        try:
            call = _call(cells, arguments, skill_set, times)
            yield Measurement(call.name, call.arguments, _seconds(cells.get("seconds", "")))
        except PlanError as error:
            raise ConfigurationError(f"{path}, line {number}: {error}") from error


def _readable(path: Path, lines: Iterable[list[str]]) -> Iterator[list[str]]:
    try:
        yield from lines
    except csv.Error as error:
        raise ConfigurationError(f"{path} is no CSV file: {error}") from error


def _argument_columns(path: Path, names: Sequence[str]) -> list[str]:
    """Return the columns of arguments, in order.

    Raises:
        ConfigurationError: a column is missing, or there are columns of both kinds.
    """
    for name in ("skill", "seconds"):
        if name not in names:
            raise ConfigurationError(
                f"{path} has no column {name!r}: the first line must name the columns skill,"
                " seconds and arguments, or arg1, arg2 ..., separated by commas"
            )
    numbered = sorted(filter(_NUMBERED.fullmatch, names), key=lambda name: int(name[3:]))
    if "arguments" not in names:
        return numbered
    if numbered:
        raise ConfigurationError(f"{path} has both the columns arguments and arg1: use one kind")
    return ["arguments"]


def _call(
    cells: Mapping[str, str], columns: Sequence[str], skill_set: SkillSet, times: ExecutionTimes
) -> SkillCall:
    name = cells.get("skill", "")
    skill = skill_set.skills.get(name)
    if skill is None:
        known = ", ".join(skill_set.skills)
        raise PlanError(f"unknown skill {name!r}: {skill_set.name} has {known}")
    texts = [cells.get(column, "") for column in columns]
    while texts and not texts[-1]:
        texts.pop()
    arguments = [value for text in texts for value in parse_arguments(text, skill)]
    return checked_call(name, skill, arguments, times)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.0 <= value <= LONGEST_S:
        raise PlanError(f"seconds must be a number from 0 to {LONGEST_S:g}, not {text!r}")
    return value


SEGMENT, REPORT = "timely_llm/msg/Segment", "timely_llm/msg/ExecutionReport"
ENDINGS = (".mcap", ".db3")

Key = tuple[str, int, int]


def is_bag(path: Path) -> bool:
    """Return whether a path is a bag: a folder, or a file with the ending of a bag."""
    return path.is_dir() or path.suffix in ENDINGS


def read_bag(path: Path, skill_set: SkillSet) -> MeasurementSet:
    """Return the executions in a rosbag2 recording of a server's segments and robots' reports.

    A segment and its FINISHED report have the same (request_id, epoch, index). Skipped segments are
    left out, and so are segments with calls that were possibly not made exactly once. Several calls
    share a segment's time in proportion to their predictions, unless one is scene-dependent.

    Args:
        path: a bag's folder, or its .mcap or .db3 file.
        skill_set: the robots' skills; calls of other skills are left out.

    Raises:
        ConfigurationError: the bag cannot be read, or has no executions.
    """
    segments: dict[Key, tuple[list[SkillCall], float]] = {}
    finished: dict[Key, float] = {}
    for message in _messages(path):
        key = (message.request_id, int(getattr(message, "epoch", 0)), int(message.index))
        if hasattr(message, "calls"):
            segments.setdefault(key, (_calls(message), float(message.predicted)))
        elif message.state == ReportState.FINISHED:
            finished.setdefault(key, float(message.duration))
        if len(segments) > MAX_MEASUREMENTS:
            raise ConfigurationError(f"{path} has more than {MAX_MEASUREMENTS} segments")
    left_out: Counter[str] = Counter()
    found: list[Measurement] = []
    for key, seconds in finished.items():
        if key not in segments:
            left_out["reports without their segment in the bag"] += 1
            continue
        calls, predicted_s = segments[key]
        made = _attribute(calls, predicted_s, seconds, skill_set)
        if isinstance(made, str):
            left_out[made] += 1
        else:
            found += made
    if not found:
        why = "; ".join(f"{count} {reason}" for reason, count in left_out.items())
        raise ConfigurationError(
            f"{path} has no executions of {skill_set.name}: {len(segments)} segments,"
            f" {len(finished)} FINISHED reports{'; ' + why if why else ''}"
        )
    return MeasurementSet(tuple(found), dict(left_out))


def _attribute(
    calls: Sequence[SkillCall], predicted_s: float, seconds: float, skill_set: SkillSet
) -> list[Measurement] | str:
    """Return the time of each call of a segment, or the reason why the segment is left out."""
    if not 0.0 < seconds <= LONGEST_S:
        return "segments that were skipped or have no duration"
    if not made_once(calls, predicted_s):
        return "segments with calls that may not have been made, or more than once"
    unknown = sorted({call.name for call in calls} - skill_set.skills.keys())
    if unknown:
        return f"segments with skills that {skill_set.name} does not have ({', '.join(unknown)})"
    times = ExecutionTimes(skill_set)
    try:
        checked = [_checked(call, skill_set.skills[call.name], times) for call in calls]
    except (PlanError, ValueError):
        return "segments with arguments that are not allowed"
    if len(checked) == 1:
        return [Measurement(checked[0].name, checked[0].arguments, seconds)]
    if any(skill_set.skills[call.name].duration.scene_dependent for call in calls):
        return "segments of several calls, one of them dependent on the scene"
    total_s = sum(call.predicted_s for call in checked)
    return [
        Measurement(call.name, call.arguments, seconds * call.predicted_s / total_s)
        for call in checked
        if call.predicted_s >= INSTANT_S
    ]


def _checked(call: SkillCall, skill: Skill, times: ExecutionTimes) -> SkillCall:
    """Return a call of a message with typed arguments in place of texts.

    Raises:
        PlanError: an argument is not allowed.
        ValueError: an argument is not a number.
    """
    kinds = {"integer": int, "number": float, "text": str}
    arguments = [
        kinds[argument.type](value)
        for argument, value in zip(skill.arguments, call.arguments, strict=True)
    ]
    return checked_call(call.name, skill, arguments, times)


def _calls(segment: Any) -> list[SkillCall]:
    return [
        SkillCall(call.name, tuple(a.value for a in call.arguments), float(call.predicted))
        for call in segment.calls
    ]


def _messages(path: Path) -> Iterator[Any]:
    """Yield the segments and reports of a bag.

    Raises:
        ConfigurationError: the bag cannot be read.
    """
    need("a bag", "bags")
    from rosbags.highlevel import AnyReader

    try:
        with AnyReader([path], default_typestore=type_store()) as reader:
            kinds = (SEGMENT, REPORT)
            wanted = [
                connection for connection in reader.connections if connection.msgtype in kinds
            ]
            if {connection.msgtype for connection in wanted} != set(kinds):
                raise ConfigurationError(
                    f"{path} lacks one of the topics segments and execution_reports of a plan"
                    f" server: record both, of the types {SEGMENT} and {REPORT}"
                )
            for connection in wanted:
                definition = getattr(connection.msgdef, "data", "")
                check_definition(connection.msgtype, definition, path)
            for connection, _, data in reader.messages(wanted):
                yield reader.deserialize(data, connection.msgtype)
    except ConfigurationError:
        raise
    except TraceError as error:
        raise ConfigurationError(str(error)) from error
    except Exception as error:  # a broken file may raise any error
        words = str(error).strip() or type(error).__name__
        raise ConfigurationError(
            f"cannot read the bag {path}, it may be cut off: {words.splitlines()[0]}"
        ) from error
