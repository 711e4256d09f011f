"""Conversations in plain Python: ask, and read the answer while it is made.

    with TalkClient("ann") as client:
        answer = client.converse("What can a drone see?")
        for text in answer.chunks():
            print(text, end="", flush=True)

Your code may block, use several threads, and be an rclpy application itself.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from timely_llm.action import Converse
from timely_llm.core.listener import READING_WORDS_PER_S
from timely_llm.core.slo import Slo
from timely_llm.core.stream import ChatMessage, StreamRequest, StreamResult
from timely_llm.ros.answer import Answer
from timely_llm.ros.pending import PlanClientError, PlanTimeout
from timely_llm.ros.server_client import ServerClient, check_seed
from timely_llm.ros.stream_conversions import request_fields, slo_fields
from timely_llm.ros.talk_node import TalkNode

__all__ = ["Answer", "PlanClientError", "PlanTimeout", "TalkClient"]


class TalkClient(ServerClient[TalkNode, Answer]):
    """Asks one plan server for answers, for one person or machine.

    Args:
        agent: who talks.
        server: name of the server's node.
        namespace: of the server.
        alive_period_s: while requests are open, the server hears that often that the agent lives.
        find_s: how long `converse` waits for the server the first time.
        domain: ROS domain; None: ROS_DOMAIN_ID.

    Raises:
        PlanClientError: ROS cannot be used with these names.
    """

    NODE = TalkNode

    def converse(
        self,
        said: str | Sequence[ChatMessage],
        slo_class: str = "",
        *,
        slo: Slo | None = None,
        weight: float = 0.0,
        conversation: str = "",
        turn: int = 0,
        words_per_s: float = 0.0,
        max_tokens: int = 0,
        temperature: float = 0.0,
        seed: int = 0,
        request_id: str = "",
    ) -> Answer:
        """Ask for an answer and return at once; a refusal comes with its text or its result.

        Args:
            said: what the user says, or all messages, the last one the user's. In a later turn of
                a conversation that the server keeps: only what is new.
            slo_class: a service level of the server; empty: text.
            slo: a service level of your own instead.
            weight: worth of keeping to it, beside others, above 0; 0: the service level's.
            conversation: name of a conversation that the server shall keep for its next turn; your
                own, other agents' have theirs.
            turn: turns of the conversation so far; 0 begins it anew. A server that does not keep
                so many ends the request with the code UNKNOWN_CONVERSATION: then send all of it
                with turn 0.
            words_per_s: speed of the listener; 0: of speech for voice, else of reading.
            max_tokens: most tokens of the answer; 0: the server's default.
            temperature: 0: always the most likely token; up to 2.
            seed: with a temperature, the same seed gives the same answer.
            request_id: unique; empty: one is made.

        Raises:
            RequestError: a field is empty, too large or not a sane number.
            PlanTimeout: there is no server.
            PlanClientError: a request of this id is open, or the client is closed.
        """
        check_seed(seed)
        messages = (ChatMessage("user", said),) if isinstance(said, str) else tuple(said)
        request = StreamRequest(
            request_id or uuid.uuid4().hex, self.agent, messages, slo or Slo(), weight,
            conversation, turn, words_per_s or READING_WORDS_PER_S,
            max_tokens=max_tokens or 1, temperature=temperature, seed=seed,
        )  # fmt: skip
        # What was not given is the server's to choose.
        left_open = {"max_tokens": max_tokens, "words_per_s": words_per_s, "slo_class": slo_class}
        own = {} if slo is None else slo_fields(slo)

        def send() -> None:
            goal = Converse.Goal(**(request_fields(request) | left_open | own))
            self._node.send(goal, request, made)

        made = Answer(request.request_id, self.agent, self)
        return self._open(made, send)

    def result_of(self, request_id: str, timeout_s: float = 60.0) -> StreamResult:
        """Return how an earlier request ended, also one of a client that is no more.

        One that is still being served is waited for. The server keeps results for a while
        (parameter `result_timeout_s`); those of requests that it refused it does not keep.

        Args:
            request_id: the request's.
            timeout_s: how long to wait for its end.

        Raises:
            PlanTimeout: there is no server, or the request did not end in time.
            PlanClientError: the server knows no such request, or has forgotten it.
        """
        return self._result_of(request_id, StreamResult, timeout_s)
