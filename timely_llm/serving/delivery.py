"""From tokens to segments and chunks, and when the next is due."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING

from timely_llm.core.errors import PlanError
from timely_llm.core.events.schema import (
    ChunkEvent,
    PlanRequestEvent,
    SegmentEvent,
    StreamEvent,
)
from timely_llm.core.generation import Generation, PlanGeneration, State, StreamGeneration
from timely_llm.core.request import ExecutionReport, ReportState, StreamChunk
from timely_llm.core.segment import Segment

if TYPE_CHECKING:
    from timely_llm.engines.contract import Tokenizer
    from timely_llm.skills.stop_checker import Piece, StopChecker


class StreamDelivery:
    """Watches one answer's tokens and hands out each as it comes.

    Args:
        generation: the generation, which this object keeps up to date.
        tokenizer: the engine's tokenizer.
    """

    def __init__(self, generation: StreamGeneration, tokenizer: Tokenizer) -> None:
        self.generation = generation
        self._tokenizer = tokenizer
        self._stream = tokenizer.stream()
        self.complete = False

    def push(self, token_id: int, now: float) -> list[StreamChunk]:
        """Take a token and return its chunk."""
        generation = self.generation
        generation.token_ids.append(token_id)
        generation.tally.generated_tokens += 1
        generation.token_arrived(now)
        ends = token_id in self._tokenizer.eos_ids
        text = "" if ends else self._stream.push(token_id)
        generation.pieces.append(text)
        generation.listener.receive(text, now)
        generation.cut = not ends and len(generation.token_ids) >= generation.max_tokens
        self.complete = ends or generation.cut
        index = generation.request.first_token + len(generation.token_ids) - 1
        return [StreamChunk(generation.key, generation.request.agent, index, text, self.complete)]


class PlanDelivery:
    """Watches one generation's tokens and hands out segments as their boundaries are matched.

    Args:
        generation: the generation, which this object keeps up to date.
        tokenizer: the engine's tokenizer.
        checker: finds the boundaries; a fresh one.
        whole: keep all segments back until the plan is complete, or waits for a skill's value.
    """

    def __init__(
        self, generation: PlanGeneration, tokenizer: Tokenizer, checker: StopChecker, whole: bool
    ) -> None:
        self.generation = generation
        self._tokenizer = tokenizer
        self._stream = tokenizer.stream()
        self._checker = checker
        self._whole = whole
        self._held: list[Piece] = []
        self._kept = ""  # of the token with which it blocked: what belongs to the call
        self._drop = 0
        self.complete = False

    def push(self, token_id: int, now: float) -> list[Segment]:
        """Take a token and return the segments it completes, the last one possibly repeated.

        Raises:
            PlanError: the text is no plan; what was delivered before stays valid.
        """
        generation = self.generation
        generation.token_ids.append(token_id)
        generation.tally.generated_tokens += 1
        generation.segment_tokens += 1
        if token_id in self._tokenizer.eos_ids:
            return self._finish(now)
        text = self._stream.push(token_id)
        pieces = self._checker.feed(text)
        self.complete = self._checker.done
        if not pieces:
            return []
        generation.segment_tokens = 0
        blocked = not self.complete and any(call.blocking for call in pieces[-1].calls)
        if blocked:
            generation.state = State.BLOCKED
            self._drop = int(bool(self._checker.rest))
            self._kept = text.removesuffix(self._checker.rest) if self._drop else ""
        self._held += pieces
        if self._whole and not self.complete and not blocked:
            return []
        if not self.complete and not blocked:
            generation.state = State.SUSPENDED
        pieces, self._held = self._held, []
        return self._deliver(pieces, now)

    def kept_ids(self, text: str) -> list[int]:
        """Return token ids of what stays of the newest token when tool output replaces it."""
        if not self._drop:
            return []
        pairs = zip(self._checker.rest, text, strict=False)
        alike = "".join(one for one, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        return self._tokenizer.encode(self._kept + alike)

    def answer(self, text: str) -> tuple[list[int], int]:
        """Return the token ids of a skill's value, and how many of the newest tokens they replace.

        A token may have text beyond the blocking call; that text is taken back.

        Args:
            text: the tool output.
        """
        self._stream = self._tokenizer.stream()
        return self._tokenizer.encode(self._kept + text), self._drop

    def keep_for_answer(self) -> bool:
        """Return whether the newest token of a blocked plan is left out of a context made anew.

        The answer then says what belongs to the call, and replaces no token.
        """
        left_out, self._drop = bool(self._drop), 0
        return left_out

    def _finish(self, now: float) -> list[Segment]:
        piece, tail = self._checker.finish()
        self.complete = True
        pieces = [*self._held, *([piece] if piece else [])]
        if pieces:
            pieces[-1] = replace(pieces[-1], text=pieces[-1].text + tail)
            return self._deliver(pieces, now)
        if not self.generation.segments:
            raise PlanError("the model ended without a plan")
        return self._last_again(tail)

    def _last_again(self, tail: str) -> list[Segment]:
        """Return the last segment, marked final: never an empty extra one."""
        delivered = self.generation.segments
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
                epoch=generation.epoch,
                given=generation.given,
            )
            account(generation, segment, now)
            made.append(segment)
        return made


def account(generation: PlanGeneration, segment: Segment, now: float) -> None:
    """Enter a delivered segment: response and waiting time, and when the robot will be free."""
    tally, rate = generation.tally, generation.rate
    if generation.first:
        # A simulator's clock is not known to the millisecond; negative means that none came.
        start_s, response_s = now, max(now - generation.asked_s, 0.0) * rate
        tally.waiting_s += response_s
        if tally.response_s < 0:
            tally.response_s = response_s
            tally.utility = generation.request.time_utility.value(response_s)
    else:
        generation.overrun(now)
        tally.waiting_s += max(0.0, now - generation.robot_free_s) * rate
        start_s = max(now, generation.robot_free_s)
    tally.segments += 1
    generation.segments.append(segment)
    generation.robot_free_s = start_s + segment.predicted_s / rate


def correct(generation: PlanGeneration, report: ExecutionReport, now: float) -> None:
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
    left_s = math.fsum(segment.predicted_s for segment in ahead)
    generation.robot_free_s = now + left_s / generation.rate


def event_of(
    made: Segment | StreamChunk, generation: Generation, now: float
) -> SegmentEvent | ChunkEvent:
    """Return the event of a segment or chunk.

    Args:
        made: what is delivered.
        generation: as it is after the delivery.
        now: seconds on the loop's clock.
    """
    if isinstance(made, StreamChunk):
        credit_s = 0.0
        if isinstance(generation, StreamGeneration):
            credit_s = round(generation.listener.credit_s(now), 6)
        return ChunkEvent(
            now, made.request_id, made.index, made.text, made.final,
            round(generation.due_s, 6), credit_s, made, generation,
        )  # fmt: skip
    return SegmentEvent(
        now, made.request_id, made.index, made.epoch, made.text, round(made.predicted_s, 6),
        made.final, generation.state is State.BLOCKED, round(generation.due_s, 6),
        made, generation,
    )  # fmt: skip


def begun_event(generation: Generation) -> PlanRequestEvent | StreamEvent:
    """Return the event of an admission."""
    key, agent, arrival_s = generation.key, generation.request.agent, generation.arrival_s
    if isinstance(generation, StreamGeneration):
        request, slo = generation.request, generation.request.slo
        return StreamEvent(
            arrival_s, key, agent, slo.ttft_s, slo.tpot_s,
            slo.deadline_s if slo.real_time else None, request.weight, request.words_per_s,
            generation.prompt_tokens,
        )  # fmt: skip
    assert isinstance(generation, PlanGeneration)
    utility = generation.request.time_utility
    return PlanRequestEvent(
        arrival_s, key, agent, generation.request.task, utility.beta, utility.alpha, utility.ert_s,
        generation.given, generation.prompt_tokens,
    )  # fmt: skip
