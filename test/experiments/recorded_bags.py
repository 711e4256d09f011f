"""Bags as a recorder of a plan server would have made them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from rosbags.rosbag2 import StoragePlugin, Writer

from timely_llm.core.request import ErrorCode, ReportState
from timely_llm.core.time_utility import NORMAL, TimeUtility
from timely_llm.experiments.results.document import RunDocument
from timely_llm.traces.recordings.bags import LINE_TOPIC, LINE_TYPE
from timely_llm.traces.recordings.messages import stamp, type_store, unsigned

BEGIN_S = 1_000.0
STARTED, FINISHED, FAILED = ReportState.STARTED, ReportState.FINISHED, ReportState.FAILED
NO_CODE = np.zeros(0, np.uint8)
ALONE: dict[str, Any] = {"mode_used": 0, "cloud_tokens": 0, "cloud_time": 0.0, "fallback": ""}
"""What the result of a request without a cloud says of it."""


class Bag:
    """Writes what a recorder would hear of a plan server, at the seconds that are given."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._writer = Writer(path, version=9, storage_plugin=StoragePlugin.MCAP)
        self._connections: dict[str, Any] = {}

    def __enter__(self) -> Self:
        self._writer.open()
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()

    def write(self, at_s: float, topic: str, kind: str, data: bytes) -> None:
        if topic not in self._connections:
            self._connections[topic] = self._writer.add_connection(
                topic, kind, typestore=type_store()
            )
        self._writer.write(self._connections[topic], round((BEGIN_S + at_s) * 1e9), data)

    def say(self, at_s: float, topic: str, kind: str, **fields: Any) -> None:
        name = kind if "/" in kind else f"timely_llm/msg/{kind}"
        if name.startswith("timely_llm/"):
            fields["stamp"] = stamp(round((BEGIN_S + at_s) * 1e9))
        if kind in ("PlanRequest", "StreamRequest", "ExecutionReport"):
            fields["signature"] = unsigned()
        if kind in ("Segment", "StreamChunk", "PlanResult", "StreamResult"):
            fields["signature"] = NO_CODE
        message = type_store().types[name](**fields)
        topic = topic if topic.startswith("/") else f"/plan_server/{topic}"
        self.write(at_s, topic, name, bytes(type_store().serialize_cdr(message, name)))

    def request(
        self, at_s: float, name: str, utility: TimeUtility = NORMAL, topic: str = "requests",
        agent: str = "r", epoch: int = 0, dispatcher: str = "",
    ) -> None:  # fmt: skip
        worth = type_store().types["timely_llm/msg/TimeUtility"](
            utility.beta, utility.alpha, utility.ert_s
        )
        self.say(
            at_s, topic, "PlanRequest", request_id=name, agent=agent, skill_set="drone",
            task="Go.", given_plan="", time_utility=worth, max_tokens=0, temperature=0.0, seed=0,
            mode=0, closed_loop=True, epoch=epoch, dispatcher=dispatcher,
        )  # fmt: skip

    def segment(
        self, at_s: float, name: str, index: int, epoch: int = 0, final: bool = False
    ) -> None:
        self.say(
            at_s, "segments", "Segment", request_id=name, agent="r", index=index, epoch=epoch,
            text=f"mf({index});", given=False, calls=[], predicted=1.0, final=final,
        )  # fmt: skip

    def report(
        self, at_s: float, name: str, state: int, index: int = 0, epoch: int = 0,
        duration: float = 0.0,
    ) -> None:  # fmt: skip
        self.say(
            at_s, "execution_reports", "ExecutionReport", request_id=name, agent="r",
            state=int(state), index=index, epoch=epoch, duration=duration, value="",
        )  # fmt: skip

    def executed(self, start_s: float, end_s: float, name: str, index: int, epoch: int = 0) -> None:
        self.report(start_s, name, STARTED, index, epoch)
        self.report(end_s, name, FINISHED, index, epoch, end_s - start_s)

    def result(
        self, at_s: float, name: str, code: ErrorCode = ErrorCode.NONE, epoch: int = 0
    ) -> None:
        self.say(
            at_s, "results", "PlanResult", error_code=int(code), error_msg="", retry_after=0.0,
            request_id=name, agent="r", plan="", given=False, segments=0, epoch=epoch,
            response_time=0.0, waiting_time=0.0, utility=0.0, prompt_tokens=100, generated_tokens=9,
            recomputed_tokens=0, **ALONE,
        )  # fmt: skip

    def step(
        self, at_s: float, duration: float, *ids: str, stages: Sequence[Mapping[str, float]] = ()
    ) -> None:
        types = type_store().types
        shares = [types["timely_llm/msg/StepShare"](request_id=name, tokens=1) for name in ids]
        parts = [types["timely_llm/msg/StageTime"](**stage) for stage in stages]
        self.say(at_s, "steps", "EngineStep", duration=duration, shares=shares, stages=parts)

    def line(self, at_s: float, text: str) -> None:
        self.say(at_s, LINE_TOPIC, LINE_TYPE, data=text)

    def plan(self, at_s: float, name: str, utility: TimeUtility = NORMAL) -> None:
        """Write a request that is finished: response 0.5 s, 0.25 s of waiting after it."""
        self.request(at_s, name, utility)
        self.segment(at_s + 0.4, name, 0)
        self.segment(at_s + 1.7, name, 1, final=True)
        self.executed(at_s + 0.5, at_s + 1.5, name, 0)
        self.executed(at_s + 1.75, at_s + 2.0, name, 1)
        self.result(at_s + 2.0, name)


class TalkBag(Bag):
    """A bag with conversations too."""

    def ask(self, at_s: float, name: str, topic: str = "streams", **fields: Any) -> None:
        said = type_store().types["timely_llm/msg/ChatMessage"]("user", "Tell me more.")
        values = {
            "agent": "p", "messages": [said], "prompt": "", "slo_class": "", "ttft": 1.0,
            "tpot": 0.1, "deadline": math.inf, "weight": 1.0, "conversation": "", "turn": 0,
            "words_per_s": 5.0, "max_tokens": 100, "temperature": 0.0, "seed": 0,
            "mode": 0, "first_token": 0, "dispatcher": "",
        }  # fmt: skip
        self.say(at_s, topic, "StreamRequest", request_id=name, **{**values, **fields})

    def token(
        self, at_s: float, name: str, index: int, text: str = " w", final: bool = False
    ) -> None:
        self.say(
            at_s, "stream_chunks", "StreamChunk", request_id=name, agent="p", index=index,
            text=text, final=final, part=0,
        )  # fmt: skip

    def ended(
        self, at_s: float, name: str, code: ErrorCode = ErrorCode.NONE, tokens: int = 0
    ) -> None:
        self.say(
            at_s, "stream_results", "StreamResult", error_code=int(code), error_msg="",
            retry_after=0.0, request_id=name, agent="p", text="", cut=False, ttft=0.0, tpot=0.0,
            largest_gap=0.0, completion=0.0, stalled=0.0, slo_met=False, prompt_tokens=40,
            generated_tokens=tokens, recomputed_tokens=0, kept_tokens=10, **ALONE,
        )  # fmt: skip

    def answer(self, at_s: float, name: str, text: str, gap_s: float = 0.1) -> None:
        """Write an answer of one word a token, with the token that ends it."""
        words = [*(f" {word}" for word in text.split()), ""]
        for index, word in enumerate(words):
            self.token(at_s + index * gap_s, name, index, word, index == len(words) - 1)
        self.ended(at_s + (len(words) - 1) * gap_s, name, tokens=len(words))


def only(document: RunDocument) -> dict[str, Any]:
    (row,) = document.rows
    return row
