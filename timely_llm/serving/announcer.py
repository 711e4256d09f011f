"""The announcer: tells sink, stats and journal what the loop did."""

from __future__ import annotations

from typing import Protocol

from timely_llm.core.clock import Clock
from timely_llm.core.generation import Generation, State
from timely_llm.core.journal import Journal
from timely_llm.core.request import (
    ErrorCode,
    ExecutionReport,
    PlanRequest,
    PlanResult,
    Rejected,
)
from timely_llm.core.segment import Segment
from timely_llm.engines.contract import StepResult
from timely_llm.serving.stats import Stats


class Sink(Protocol):
    """Where deliveries go; called from the loop's thread, must not block."""

    def segment(self, segment: Segment) -> None:
        """Publish a segment, in the step in which its boundary was matched."""
        ...

    def ended(self, result: PlanResult) -> None:
        """Tell how a request ended; nothing more comes of it."""
        ...

    def stepped(self, result: StepResult) -> None:
        """Tell what a step of the engine did, before anything that it made is told."""
        ...


class Announcer:
    """Everything that leaves the loop goes through here, once to each who wants to know."""

    def __init__(self, sink: Sink, journal: Journal, clock: Clock) -> None:
        self._sink = sink
        self._journal = journal
        self._clock = clock
        self.stats = Stats()

    def admitted(self, generation: Generation) -> None:
        """A request joined the pool."""
        self.stats.requests += 1
        self.stats.prompt_tokens += generation.prompt_tokens
        request, utility = generation.request, generation.request.time_utility
        self._journal.write(
            "request", generation.arrival_s, id=generation.key, agent=request.agent,
            task=request.task, beta=utility.beta, alpha=utility.alpha, ert_s=utility.ert_s,
        )  # fmt: skip

    def refused(self, request: PlanRequest, error: Rejected) -> None:
        """A request could not be taken."""
        self.stats.requests += 1
        self._ended(PlanResult.refused(request, error.code, str(error)))

    def stepped(self, result: StepResult) -> None:
        """The engine made a step."""
        self.stats.step(result)
        self._sink.stepped(result)
        start_s = self._clock.now() - result.duration_s
        self._journal.write(
            "step", start_s, s=round(result.duration_s, 6), ids=list(result.computed)
        )

    def delivered(self, segment: Segment, generation: Generation) -> None:
        """A segment is complete."""
        matched_s = self._clock.now()
        self.stats.segments += 1
        self._sink.segment(segment)
        self._journal.write(
            "segment", matched_s, id=segment.request_id, index=segment.index,
            epoch=segment.epoch, text=segment.text, predicted_s=round(segment.predicted_s, 6),
            final=segment.final, blocking=generation.state is State.BLOCKED,
            due_s=round(generation.due_s, 6),
        )  # fmt: skip

    def reported(self, report: ExecutionReport, generation: Generation) -> None:
        """A robot's word moved the due time of the next segment."""
        self._journal.write(
            "report", self._clock.now(), id=generation.key, index=report.index,
            state=report.state.name.lower(), due_s=round(generation.due_s, 6),
        )  # fmt: skip

    def completed(self, generation: Generation) -> None:
        """A plan is complete, and its robot still executes it."""
        self._journal.write("complete", self._clock.now(), id=generation.key)

    def answered(self, generation: Generation, value: str) -> None:
        """A blocking skill's value is in the context, generation goes on."""
        self._journal.write("answer", self._clock.now(), id=generation.key, value=value)

    def replanned(self, generation: Generation, failure: str) -> None:
        """A segment failed, and a new plan is asked for: `generation` is the new epoch's."""
        self.stats.replans += 1
        self.stats.prompt_tokens += generation.prompt_tokens
        self._journal.write(
            "replan", self._clock.now(), id=generation.key, epoch=generation.epoch,
            message=failure, due_s=round(generation.due_s, 6),
        )  # fmt: skip

    def ended(self, generation: Generation, code: ErrorCode, reason: str) -> None:
        """A request is over."""
        self._ended(_result(generation, code, reason))

    def _ended(self, result: PlanResult) -> None:
        self.stats.end(result)
        self._sink.ended(result)
        self._journal.write(
            "end", self._clock.now(), id=result.request_id, code=result.error_code.name.lower(),
            message=result.error_msg,
        )  # fmt: skip


def _result(generation: Generation, code: ErrorCode, reason: str) -> PlanResult:
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
