"""Measured times of skills from a bag of real executions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from timely_llm.core.errors import ConfigurationError, PlanError
from timely_llm.core.request import ReportState
from timely_llm.core.segment import SkillCall
from timely_llm.profiling.measurements import MAX_MEASUREMENTS, Measurement, Recording
from timely_llm.skills.calls import checked_call
from timely_llm.skills.execution_time import INSTANT_S, LONGEST_S, ExecutionTimes, made_once
from timely_llm.skills.skill_set import Skill, SkillSet
from timely_llm.traces.messages import type_store

SEGMENT, REPORT = "timely_llm/msg/Segment", "timely_llm/msg/ExecutionReport"
ENDINGS = (".mcap", ".db3")

Key = tuple[str, int, int]


def is_bag(path: Path) -> bool:
    """Return whether a path is a bag rather than a table: a folder, or a file named like one."""
    return path.is_dir() or path.suffix in ENDINGS


def read_bag(path: Path, skill_set: SkillSet) -> Recording:
    """Return the executions in a rosbag2 recording of a server's segments and robots' reports.

    A segment and its FINISHED report belong together by (request_id, epoch, index). Segments that
    were skipped or of which it is not sure that every call was made once are left out. Several
    calls share a segment's time in proportion to their predictions, unless one depends on the
    scene.

    Args:
        path: a bag's folder, or its .mcap or .db3 file.
        skill_set: the robots' skills; calls of others are left out.

    Raises:
        ConfigurationError: the bag cannot be read, or there are no executions in it.
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
            left_out["reports whose segment is not in the bag"] += 1
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
    return Recording(tuple(found), dict(left_out))


def _attribute(
    calls: Sequence[SkillCall], predicted_s: float, seconds: float, skill_set: SkillSet
) -> list[Measurement] | str:
    """Return how long each call of a segment took, or why that is not known."""
    if not 0.0 < seconds <= LONGEST_S:
        return "segments that were skipped or have no duration"
    if not made_once(calls, predicted_s):
        return "segments whose calls may not have been made, or more than once"
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
    """Return a call of a message with its arguments as what they are, not as text.

    Raises:
        PlanError: they are not allowed.
        ValueError: one should be a number and is not.
    """
    kinds = {"integer": int, "number": float, "text": str}
    arguments = [
        kinds[argument.type](value)
        for argument, value in zip(skill.arguments, call.arguments, strict=True)
    ]
    return checked_call(call.name, skill, arguments, times)


def _calls(segment: Any) -> list[SkillCall]:
    return [
        SkillCall(call.name, tuple(call.arguments), float(call.predicted)) for call in segment.calls
    ]


def _messages(path: Path) -> Iterator[Any]:
    """Yield the segments and reports of a bag.

    Raises:
        ConfigurationError: it cannot be read.
    """
    try:
        from rosbags.highlevel import AnyReader
    except ImportError as error:
        raise ConfigurationError(
            "reading bags needs the Python package rosbags: pip install rosbags"
        ) from error
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
            for connection, _, data in reader.messages(wanted):
                yield reader.deserialize(data, connection.msgtype)
    except ConfigurationError:
        raise
    except Exception as error:  # whatever a broken file leads to
        words = str(error).strip() or type(error).__name__
        raise ConfigurationError(
            f"cannot read the bag {path}, it may be cut off: {words.splitlines()[0]}"
        ) from error
