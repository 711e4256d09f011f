"""Conversations: their messages, and which server keeps their KV."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace

from timely_llm.core.request import (
    ChatMessage,
    ErrorCode,
    Rejected,
    StreamRequest,
    StreamResult,
)
from timely_llm.core.text import quoted


@dataclass(eq=False)
class _Conversation:
    """The messages of a conversation, and where its KV is.

    Attributes:
        messages: all so far.
        turns: number of turns so far.
        server: where its KV is; empty: nowhere.
        turns_there: turns that this server knows of.
        messages_there: number of messages that this server knows.
    """

    messages: tuple[ChatMessage, ...] = ()
    turns: int = 0
    server: str = ""
    turns_there: int = 0
    messages_there: int = 0


class DispatchedConversations:
    """Remembers conversations, so that any server can go on with them.

    A client sends only the new messages of a later turn. The server that keeps the KV gets these;
    another one gets all messages, as a conversation that begins.

    Args:
        most: most conversations that are remembered; the longest silent one goes first.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: OrderedDict[tuple[str, str], _Conversation] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def whole(self, request: StreamRequest) -> StreamRequest:
        """Return a request with all messages of its conversation.

        Raises:
            Rejected: it is a later turn of a conversation that is not known.
            RequestError: the conversation is too long.
        """
        if not request.turn:
            return request
        known = self._known.get((request.agent, request.conversation))
        if known is None or known.turns != request.turn:
            raise Rejected(
                ErrorCode.UNKNOWN_CONVERSATION,
                f"turn {request.turn} of the conversation {quoted(request.conversation)} is not"
                " known: send all messages with turn 0",
            )
        return replace(request, messages=(*known.messages, *request.messages))

    def for_server(self, request: StreamRequest, server: str) -> StreamRequest:
        """Return a request with all messages as a server gets it.

        Args:
            request: as `whole` returns it.
            server: name of the server.
        """
        known = self._known.get((request.agent, request.conversation))
        if not request.turn or known is None or known.server != server:
            return replace(request, turn=0)
        new = request.messages[known.messages_there :]
        return replace(request, messages=new, turn=known.turns_there)

    def lost(self, server: str) -> None:
        """Record that the KV of a server is gone."""
        for known in self._known.values():
            if known.server == server:
                known.server = ""

    def gone(self, request: StreamRequest) -> None:
        """Record that the server of a conversation does not keep it any more."""
        known = self._known.get((request.agent, request.conversation))
        if known is not None:
            known.server = ""

    def ended(
        self, request: StreamRequest, sent: StreamRequest, server: str, result: StreamResult
    ) -> None:
        """Record a turn that has ended.

        Args:
            request: as `whole` returned it.
            sent: as its last server got it.
            server: name of that server; empty: it is lost.
            result: of the turn.
        """
        if not request.conversation:
            return
        name = request.agent, request.conversation
        if result.error_code not in (ErrorCode.NONE, ErrorCode.CANCELED) or not result.text:
            return  # the client may ask for this turn again
        known = self._known.pop(name, None) or _Conversation()
        self._known[name] = known
        while len(self._known) > self._most:
            self._known.popitem(last=False)
        known.messages = (*request.messages, ChatMessage("assistant", result.text))
        known.turns = request.turn + 1
        known.server, known.turns_there = server, sent.turn + 1
        known.messages_there = len(known.messages)
