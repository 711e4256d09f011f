"""The announcer: tells sink, stats and journal what the loop did."""

from __future__ import annotations

from typing import Protocol

from timely_llm.core.clock import Clock
from timely_llm.core.generation import Generation
from timely_llm.core.journal import Journal
from timely_llm.core.request import ErrorCode, ExecutionReport, PlanResult
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

    def stepped(self, result: StepResult) -> None:
        """The engine made a step."""
        generated = sum(len(tokens) for tokens in result.tokens.values())
        self.stats.step(result.duration_s, generated, sum(result.recomputed.values()))
        start_s = self._clock.now() - result.duration_s
        self._journal.write(
            "step", start_s, s=round(result.duration_s, 6), ids=list(result.computed)
        )

    def delivered(self, segment: Segment, generation: Generation) -> None:
        """A segment is complete."""
        self.stats.segments += 1
        self._sink.segment(segment)
        self._journal.write(
            "segment", self._clock.now(), id=segment.request_id, index=segment.index,
            text=segment.text, predicted_s=round(segment.predicted_s, 6), final=segment.final,
            due_s=round(generation.due_s, 6),
        )  # fmt: skip

    def reported(self, report: ExecutionReport, generation: Generation) -> None:
        """A robot's word moved the due time of the next segment."""
        self._journal.write(
            "report", self._clock.now(), id=generation.key, index=report.index,
            state=report.state.name.lower(), due_s=round(generation.due_s, 6),
        )  # fmt: skip

    def ended(self, generation: Generation, code: ErrorCode, reason: str) -> None:
        """A request is over."""
        result = _result(generation, code, reason)
        self.stats.end(result)
        self._sink.ended(result)
        self._journal.write(
            "end", self._clock.now(), id=generation.key, code=code.name.lower(), message=reason
        )


def _result(generation: Generation, code: ErrorCode, reason: str) -> PlanResult:
    request, served = generation.request, generation.response_s >= 0
    return PlanResult(
        request_id=request.request_id,
        agent=request.agent,
        error_code=code,
        error_msg=reason,
        plan="".join(segment.text for segment in generation.segments),
        segments=len(generation.segments),
        response_s=generation.response_s,
        waiting_s=generation.waiting_s,
        utility=request.time_utility.value(generation.response_s) if served else 0.0,
        prompt_tokens=generation.prompt_tokens,
        generated_tokens=len(generation.token_ids),
        recomputed_tokens=generation.recomputed_tokens,
    )
