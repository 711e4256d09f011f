"""Writes bags as a recorder would: segments of a server and reports of robots."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from timely_llm.core.request import ReportState
from timely_llm.core.segment import SkillCall
from timely_llm.resources import resource
from timely_llm.skills.checkers import cut
from timely_llm.skills.skill_set import SkillSet

NAMES = ("SkillArgument", "SkillCall", "Segment", "Signature", "ExecutionReport")

NO_CODE = np.zeros(0, np.uint8)


class BagWriter:
    """One bag; use it in a with statement."""

    def __init__(self, path: Path, storage: StoragePlugin = StoragePlugin.MCAP) -> None:
        self._writer = Writer(path, version=9, storage_plugin=storage)
        self._store = get_typestore(Stores.ROS2_JAZZY)
        for name in NAMES:
            text = resource(f"msg/{name}.msg").read_text()
            self._store.register(get_types_from_msg(text, f"timely_llm/msg/{name}"))
        self._time = 0

    def __enter__(self) -> BagWriter:
        self._writer.open()
        topics = {"Segment": "/plan_server/segments", "ExecutionReport": "/lab/execution_reports"}
        self._connections = {
            name: self._writer.add_connection(topic, self._type(name), typestore=self._store)
            for name, topic in topics.items()
        }
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()

    def plan(self, skill_set: SkillSet, request_id: str, text: str, seconds: list[float]) -> None:
        """Write a plan's segments, then the reports that they finished after `seconds`."""
        pieces = [piece for piece in cut(skill_set, text) if not isinstance(piece, str)]
        for index, piece in enumerate(pieces):
            calls = [
                self._message(
                    "SkillCall", name=call.name, arguments=self._arguments(call),
                    predicted=call.predicted_s, blocking=call.blocking,
                )
                for call in piece.calls
            ]  # fmt: skip
            self._write(
                "Segment", request_id=request_id, agent="a", index=index, epoch=0,
                text=piece.text, given=False, calls=calls, predicted=piece.predicted_s, final=False,
                signature=NO_CODE,
            )  # fmt: skip
        for index, duration in enumerate(seconds):
            self.finished(request_id, index, duration)

    def finished(self, request_id: str, index: int, duration: float) -> None:
        """Write that a segment was started and finished."""
        for state in (ReportState.STARTED, ReportState.FINISHED):
            self._write(
                "ExecutionReport", request_id=request_id, agent="a", state=int(state), index=index,
                epoch=0, duration=duration * (state == ReportState.FINISHED), value="",
                signature=self._message("Signature", session=0, counter=0, code=NO_CODE),
            )  # fmt: skip

    def _arguments(self, call: SkillCall) -> list[Any]:
        return [
            self._message("SkillArgument", name="x", type=0, value=str(value))
            for value in call.arguments
        ]

    def _type(self, name: str) -> str:
        return f"timely_llm/msg/{name}"

    def _message(self, name: str, /, **fields: Any) -> Any:
        return self._store.types[self._type(name)](**fields)

    def _write(self, name: str, /, **fields: Any) -> None:
        self._time += 1_000_000
        stamp = self._store.types["builtin_interfaces/msg/Time"](sec=0, nanosec=self._time)
        message = self._message(name, stamp=stamp, **fields)
        data = self._store.serialize_cdr(message, self._type(name))
        self._writer.write(self._connections[name], self._time, data)
