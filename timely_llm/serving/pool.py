"""The requests being served, and how they end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from timely_llm.core.errors import PlanError
from timely_llm.core.events.run_event import RunEvent
from timely_llm.core.events.schema import CompleteEvent, EndEvent
from timely_llm.core.generation import Generation, PlanGeneration, State, StreamGeneration
from timely_llm.core.request import ErrorCode, PlanResult, Result, StreamResult
from timely_llm.serving.conversations import Conversations
from timely_llm.serving.delivery import PlanDelivery, StreamDelivery
from timely_llm.serving.failures import Failures, in_words
from timely_llm.serving.removals import Removals

NO_CLOUD = "this server asks no cloud"
"""Why a request for help has none. Where a cloud is asked, no such request comes to a loop."""
Delivery = PlanDelivery | StreamDelivery


def has_begun(generation: Generation) -> bool:
    """Return whether a request had a step, or a segment of a given plan."""
    if isinstance(generation, PlanGeneration) and generation.epoch > generation.request.epoch:
        return True
    return generation.state is not State.QUEUED


class Pool(dict[str, Delivery]):
    """Deliveries by request id, in order of arrival.

    Args:
        removals: frees their sequences.
        conversations: keeps those that go on.
        events: takes ends and completions.
        now: returns seconds on the loop's clock.

    Attributes:
        given: ids of the plans that came with their requests.
        draining: a complete plan ends, whether or not its robot has executed it.
    """

    def __init__(
        self,
        removals: Removals,
        conversations: Conversations,
        events: list[RunEvent],
        now: Callable[[], float],
    ) -> None:
        super().__init__()
        self._removals = removals
        self._conversations = conversations
        self._events = events
        self._now = now
        self.given: set[str] = set()
        self.draining = False

    @property
    def generations(self) -> list[Generation]:
        """The generations, in order of arrival."""
        return [delivery.generation for delivery in self.values()]

    def of_agent(self, request_id: str, agent: str) -> Delivery | None:
        """Return a request's delivery; None: the pool has none, or it is another agent's."""
        delivery = self.get(request_id)
        if delivery is None or delivery.generation.request.agent != agent:
            return None
        return delivery

    def complete(self, generation: Generation) -> None:
        """Free the memory of a complete text; its robot may still execute it."""
        if isinstance(generation, PlanGeneration) and generation.request.closed_loop:
            executed = generation.finished >= len(generation.segments) - 1
            if not executed and not self.draining:
                generation.state = State.EXECUTING
                self._free(generation)
                self._events.append(CompleteEvent(self._now(), generation.key))
                return
        self.end(generation, ErrorCode.NONE, "")

    def drain(self, draining: bool) -> None:
        """Begin or stop draining: a drained pool waits for no robot."""
        self.draining = draining
        for generation in self.generations if draining else ():
            if generation.state is State.EXECUTING:
                self.end(generation, ErrorCode.NONE, "")

    def end(self, generation: Generation, code: ErrorCode, reason: str) -> None:
        """End a request: its memory is free at once, and its end is an event, whatever fails."""
        generation.state = State.ENDED
        self.pop(generation.key, None)
        self.given.discard(generation.key)
        try:
            if isinstance(generation, StreamGeneration):
                self._conversations.end(generation, code)
            else:
                self._free(generation)
        finally:
            self.note_end(result_of(generation, code, reason))

    def note_end(self, result: Result, admitted: bool = True) -> None:
        """Enter the event of a request's end."""
        code, message = result.error_code.name.lower(), result.error_msg
        end = EndEvent(self._now(), result.request_id, code, message, result, admitted)
        self._events.append(end)

    def end_unread(self, generation: Generation, error: Exception, failures: Failures) -> None:
        """End a request with a text that cannot be read; the other requests go on.

        Args:
            generation: of the request.
            error: a `PlanError`: the text is no plan. Any other: a failure of the server.
            failures: counts the latter.
        """
        if isinstance(error, PlanError):
            self.end(generation, ErrorCode.MALFORMED_PLAN, str(error))
            return
        if generation.state is State.ENDED:
            raise error
        failures.add(error)
        self.end_undelivered(generation, in_words(error))

    def end_undelivered(self, generation: Generation, error: str) -> None:
        """End a request with segments or tokens that could not be delivered.

        Args:
            generation: of the request; it may have ended in the same step.
            error: why, in words.
        """
        what = "segments" if generation.given else "tokens"
        reason = f"its {what} could not be delivered: {error}"
        if generation.state is State.ENDED:
            self._conversations.free_key(generation.key)
            self.note_end(result_of(generation, ErrorCode.ENGINE_FAILED, reason))
        else:
            self.end(generation, ErrorCode.ENGINE_FAILED, reason)

    def _free(self, generation: Generation) -> None:
        """Free a plan's memory; the engine has nothing of a given plan."""
        if not generation.given:
            self._removals.remove(generation.key)


def result_of(generation: Generation, code: ErrorCode, reason: str) -> Result:
    """Return the result of a request that ends.

    Args:
        generation: of the request.
        code: how it ends.
        reason: the error's message; empty without an error.
    """
    result: Result
    if isinstance(generation, StreamGeneration):
        result = _stream_result(generation, code, reason)
    else:
        assert isinstance(generation, PlanGeneration)
        result = _plan_result(generation, code, reason)
    return replace(result, fallback=NO_CLOUD) if generation.request.mode else result


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
        given=generation.given,
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
