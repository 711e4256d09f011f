"""The requests being served."""

from __future__ import annotations

from collections.abc import Iterator

from timely_llm.core.generation import Generation, PlanGeneration, State, StreamGeneration
from timely_llm.core.request import ErrorCode
from timely_llm.serving.announcer import Announcer
from timely_llm.serving.conversations import Conversations
from timely_llm.serving.delivery import PlanDelivery
from timely_llm.serving.removals import Removals
from timely_llm.serving.stream_delivery import StreamDelivery

Delivery = PlanDelivery | StreamDelivery


class Pool:
    """Deliveries by request id, in order of arrival.

    Args:
        removals: frees their sequences.
        announcer: told of every end.
        conversations: keeps what was said in those that go on.

    Attributes:
        draining: a plan that is complete ends, whether or not its robot has executed it.
    """

    def __init__(
        self, removals: Removals, announcer: Announcer, conversations: Conversations
    ) -> None:
        self._removals = removals
        self._conversations = conversations
        self._announcer = announcer
        self._deliveries: dict[str, Delivery] = {}
        self.draining = False

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._deliveries

    def __len__(self) -> int:
        return len(self._deliveries)

    def __iter__(self) -> Iterator[Delivery]:
        return iter(list(self._deliveries.values()))

    def __getitem__(self, request_id: str) -> Delivery:
        return self._deliveries[request_id]

    @property
    def generations(self) -> list[Generation]:
        """The generations, in order of arrival."""
        return [delivery.generation for delivery in self._deliveries.values()]

    def get(self, request_id: str, agent: str | None = None) -> Delivery | None:
        """Return a request's delivery, if it is there and, when `agent` is given, that agent's."""
        delivery = self._deliveries.get(request_id)
        if delivery is None or agent not in (None, delivery.generation.request.agent):
            return None
        return delivery

    def put(self, delivery: Delivery) -> None:
        """Enter a delivery; an earlier epoch's of the same request gives way to it."""
        self._deliveries[delivery.generation.key] = delivery

    def complete(self, generation: Generation) -> None:
        """Take note that a text is complete; its memory is free, a robot may still execute it."""
        if isinstance(generation, PlanGeneration) and generation.request.closed_loop:
            executed = generation.finished >= len(generation.segments) - 1
            if not executed and not self.draining:
                generation.state = State.EXECUTING
                self._removals.remove(generation.key)
                self._announcer.completed(generation)
                return
        self.end(generation, ErrorCode.NONE, "")

    def drain(self, draining: bool) -> None:
        """Do not wait for robots any longer, now and from now on; or do so again."""
        self.draining = draining
        for generation in self.generations if draining else ():
            if generation.state is State.EXECUTING:
                self.end(generation, ErrorCode.NONE, "")

    def end(self, generation: Generation, code: ErrorCode, reason: str) -> None:
        """End a request: its memory is free at once, and its client is told, whatever happens."""
        generation.state = State.ENDED
        self._deliveries.pop(generation.key, None)
        try:
            if isinstance(generation, StreamGeneration):
                self._conversations.end(generation, code)
            else:
                self._removals.remove(generation.key)
        finally:
            self._announcer.ended(generation, code, reason)
