"""Delivery: from tokens to segments, and to the moment when the next one is due."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from timely_llm.core.errors import PlanError
from timely_llm.core.generation import Generation, State
from timely_llm.core.request import ExecutionReport, ReportState
from timely_llm.core.segment import Segment

if TYPE_CHECKING:
    from timely_llm.engines.contract import Tokenizer
    from timely_llm.skills.stop_checker import Piece, StopChecker


class Delivery:
    """Watches one generation's tokens and hands out segments as their boundaries are matched.

    Args:
        generation: the generation, which this object keeps up to date.
        tokenizer: the engine's words.
        checker: finds the boundaries; a fresh one.
        whole: keep all segments back until the plan is complete.
    """

    def __init__(
        self, generation: Generation, tokenizer: Tokenizer, checker: StopChecker, whole: bool
    ) -> None:
        self.generation = generation
        self._stream = tokenizer.stream()
        self._eos_ids = tokenizer.eos_ids
        self._checker = checker
        self._whole = whole
        self._held: list[Piece] = []
        self.complete = False

    def push(self, token_id: int, now: float) -> list[Segment]:
        """Take a token and return the segments it completes, the last one possibly repeated.

        Raises:
            PlanError: the text is no plan; what was delivered before stays valid.
        """
        generation = self.generation
        generation.token_ids.append(token_id)
        generation.segment_tokens += 1
        if token_id in self._eos_ids:
            return self._finish(now)
        pieces = self._checker.feed(self._stream.push(token_id))
        self.complete = self._checker.done
        if pieces:
            generation.segment_tokens = 0
        if self._whole:
            self._held += pieces
            pieces, self._held = (self._held, []) if self.complete else ([], self._held)
        elif pieces and not self.complete:
            generation.state = State.SUSPENDED
        return self._deliver(pieces, now)

    def _finish(self, now: float) -> list[Segment]:
        piece, tail = self._checker.finish()
        self.complete = True
        pieces = [*self._held, *([piece] if piece else [])]
        delivered = self.generation.segments
        if pieces:
            pieces[-1] = replace(pieces[-1], text=pieces[-1].text + tail)
            return self._deliver(pieces, now)
        if not delivered:
            raise PlanError("the model ended without a plan")
        # Never an empty extra segment: the last one comes again, marked final.
        delivered[-1] = replace(delivered[-1], text=delivered[-1].text + tail, final=True)
        return [delivered[-1]]

    def _deliver(self, pieces: list[Piece], now: float) -> list[Segment]:
        generation = self.generation
        made = []
        for place, piece in enumerate(pieces, start=1):
            segment = Segment(
                request_id=generation.request.request_id,
                agent=generation.request.agent,
                index=len(generation.segments),
                text=piece.text,
                calls=piece.calls,
                predicted_s=piece.predicted_s,
                final=self.complete and place == len(pieces),
            )
            account(generation, segment, now)
            made.append(segment)
        return made


def account(generation: Generation, segment: Segment, now: float) -> None:
    """Enter a delivered segment: response and waiting time, and when the robot will be free."""
    if generation.first:
        generation.response_s = generation.waiting_s = now - generation.arrival_s
        start_s = now
    else:
        generation.overrun(now)
        generation.waiting_s += max(0.0, now - generation.robot_free_s)
        start_s = max(now, generation.robot_free_s)
    generation.segments.append(segment)
    generation.robot_free_s = start_s + segment.predicted_s


def correct(generation: Generation, report: ExecutionReport, now: float) -> None:
    """Replace the predicted end of execution by what the robot reports.

    A report about a segment that was not delivered says nothing and is ignored.
    """
    if report.index >= len(generation.segments):
        return
    if report.state is ReportState.STARTED:
        generation.started = max(generation.started, report.index)
        ahead = generation.segments[report.index :]
    elif report.state is ReportState.FINISHED:
        generation.finished = max(generation.finished, report.index)
        ahead = generation.segments[report.index + 1 :]
    else:
        return
    generation.robot_free_s = now + math.fsum(segment.predicted_s for segment in ahead)
