"""The announcer: tells sink, stats and journal what the loop did."""

from __future__ import annotations

import logging
from typing import Any

from timely_llm.core.clock import Clock
from timely_llm.core.generation import (
    Generation,
    PlanGeneration,
    State,
    StreamGeneration,
)
from timely_llm.core.journal import Journal, NoJournal
from timely_llm.core.request import (
    ErrorCode,
    ExecutionReport,
    PlanResult,
    Rejected,
    Request,
    Result,
)
from timely_llm.core.segment import Segment
from timely_llm.core.stream import StreamChunk, StreamResult
from timely_llm.engines.contract import StepResult
from timely_llm.serving.failures import in_words
from timely_llm.serving.sink import Sink
from timely_llm.serving.stats import Stats

log = logging.getLogger(__name__)


class Announcer:
    """Everything that leaves the loop goes through here, once to each who wants to know.

    A journal that raises ends there; the requests go on.
    """

    def __init__(self, sink: Sink, journal: Journal, clock: Clock) -> None:
        self._sink = sink
        self._journal = journal
        self._written = not isinstance(journal, NoJournal)
        self._clock = clock
        self.stats = Stats()

    def admitted(self, generation: Generation) -> None:
        """A request joined the pool."""
        self.stats.requests += 1
        self.stats.prompt_tokens += generation.prompt_tokens
        key, agent, arrival_s = generation.key, generation.request.agent, generation.arrival_s
        if isinstance(generation, PlanGeneration):
            utility = generation.request.time_utility
            self._write(
                "request", arrival_s, id=key, agent=agent, task=generation.request.task,
                beta=utility.beta, alpha=utility.alpha, ert_s=utility.ert_s,
            )  # fmt: skip
        elif isinstance(generation, StreamGeneration):
            request, slo = generation.request, generation.request.slo
            self._write(
                "stream", arrival_s, id=key, agent=agent, ttft_s=slo.ttft_s, tpot_s=slo.tpot_s,
                deadline_s=slo.deadline_s if slo.real_time else None, weight=request.weight,
                words_per_s=request.words_per_s,
            )  # fmt: skip

    def refused(self, request: Request, error: Rejected) -> None:
        """A request could not be taken."""
        self.stats.requests += 1
        self._ended(request.refused(error.code, str(error)))

    def stepped(self, result: StepResult) -> None:
        """The engine made a step; one that only waited is told to nobody."""
        self.stats.step(result)
        if result.waited:
            return
        self._sink.stepped(result)
        start_s = self._clock.now() - result.duration_s
        self._write("step", start_s, s=round(result.duration_s, 6), ids=list(result.computed))

    def delivered(self, made: Segment | StreamChunk, generation: Generation) -> None:
        """A segment is complete, or a token of an answer came."""
        if isinstance(made, Segment):
            self._segment(made, generation)
            return
        came_s = self._clock.now()
        self.stats.chunks += 1
        self._sink.chunk(made)
        if self._written and isinstance(generation, StreamGeneration):
            self._write(
                "chunk", came_s, id=made.request_id, index=made.index, text=made.text,
                final=made.final, due_s=round(generation.due_s, 6),
                credit_s=round(generation.listener.credit_s(came_s), 6),
            )  # fmt: skip

    def _segment(self, segment: Segment, generation: Generation) -> None:
        matched_s = self._clock.now()
        self.stats.segments += 1
        self._sink.segment(segment)
        self._write(
            "segment", matched_s, id=segment.request_id, index=segment.index,
            epoch=segment.epoch, text=segment.text, predicted_s=round(segment.predicted_s, 6),
            final=segment.final, blocking=generation.state is State.BLOCKED,
            due_s=round(generation.due_s, 6),
        )  # fmt: skip

    def reported(self, report: ExecutionReport, generation: Generation) -> None:
        """A robot's word moved the due time of the next segment."""
        self._write(
            "report", self._clock.now(), id=generation.key, index=report.index,
            state=report.state.name.lower(), due_s=round(generation.due_s, 6),
        )  # fmt: skip

    def completed(self, generation: Generation) -> None:
        """A plan is complete, and its robot still executes it."""
        self._write("complete", self._clock.now(), id=generation.key)

    def answered(self, generation: Generation, value: str) -> None:
        """A blocking skill's value is in the context, generation goes on."""
        self._write("answer", self._clock.now(), id=generation.key, value=value)

    def replanned(self, generation: PlanGeneration, failure: str) -> None:
        """A segment failed, and a new plan is asked for: `generation` is the new epoch's."""
        self.stats.replans += 1
        self.stats.prompt_tokens += generation.prompt_tokens
        self._write(
            "replan", self._clock.now(), id=generation.key, epoch=generation.epoch,
            message=failure, due_s=round(generation.due_s, 6),
        )  # fmt: skip

    def ended(self, generation: Generation, code: ErrorCode, reason: str) -> None:
        """A request is over."""
        if isinstance(generation, PlanGeneration):
            self._ended(_plan_result(generation, code, reason))
        elif isinstance(generation, StreamGeneration):
            self._ended(_stream_result(generation, code, reason))

    def _ended(self, result: Result) -> None:
        self.stats.end(result)
        try:
            self._sink.ended(result)
        finally:
            self._write(
                "end", self._clock.now(), id=result.request_id,
                code=result.error_code.name.lower(), message=result.error_msg,
            )  # fmt: skip

    def close(self) -> None:
        """Close the journal."""
        self._journal.close()

    def _write(self, event: str, t: float, **values: Any) -> None:
        try:
            self._journal.write(event, t, **values)
        except Exception as error:
            log.error("the journal ends here: %s", in_words(error))
            self._journal = NoJournal()


def _plan_result(generation: PlanGeneration, code: ErrorCode, reason: str) -> PlanResult:
    tally = generation.tally
    return PlanResult(
        request_id=generation.request.request_id,
        agent=generation.request.agent,
        error_code=code,
        error_msg=reason,
        plan="".join(segment.text for segment in generation.segments),
        segments=tally.segments,
        response_s=tally.response_s,
        waiting_s=tally.waiting_s,
        utility=tally.utility,
        prompt_tokens=tally.prompt_tokens,
        generated_tokens=tally.generated_tokens,
        recomputed_tokens=tally.recomputed_tokens,
        epoch=generation.epoch,
    )


def _stream_result(generation: StreamGeneration, code: ErrorCode, reason: str) -> StreamResult:
    slo, tally, came = generation.request.slo, generation.tally, bool(generation.token_ids)
    complete = code is ErrorCode.NONE
    ttft_s = generation.first_s - generation.arrival_s if came else -1.0
    completion_s = generation.last_s - generation.arrival_s if complete else -1.0
    return StreamResult(
        request_id=generation.key,
        agent=generation.request.agent,
        error_code=code,
        error_msg=reason,
        text="".join(generation.pieces),
        cut=generation.cut,
        ttft_s=ttft_s,
        tpot_s=generation.tpot_s,
        largest_gap_s=generation.largest_gap_s,
        completion_s=completion_s,
        stalled_s=generation.listener.stalled_s,
        slo_met=complete and slo.met(ttft_s, generation.tpot_s, completion_s),
        prompt_tokens=tally.prompt_tokens,
        generated_tokens=tally.generated_tokens,
        recomputed_tokens=tally.recomputed_tokens,
        kept_tokens=generation.kept_tokens,
    )
