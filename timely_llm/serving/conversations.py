"""Conversations: from messages to a prompt, and what is kept for the next turn."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from timely_llm.core.clock import Clock
from timely_llm.core.echo import quoted
from timely_llm.core.errors import EngineError, EngineLost, RequestError
from timely_llm.core.generation import StreamGeneration
from timely_llm.core.listener import Listener
from timely_llm.core.request import ErrorCode, Rejected
from timely_llm.core.stream import ChatMessage, StreamRequest
from timely_llm.engines.contract import Decoding, Engine
from timely_llm.engines.tokenizer_contract import Message
from timely_llm.serving.admission import AdmissionLimits
from timely_llm.serving.failures import in_words
from timely_llm.serving.prompts import check_words, common
from timely_llm.serving.removals import Removals
from timely_llm.serving.stream_delivery import StreamDelivery
from timely_llm.serving.under_way import strike_out

log = logging.getLogger(__name__)
_Name = tuple[str, str]
"""Whose conversation, and what that agent calls it."""

_ANSWERS = ("x", "1")  # that no tokenizer joins with what follows


@dataclass(frozen=True)
class Keeping:
    """What a server keeps of conversations between two turns.

    Attributes:
        max_conversations: most that are kept; the one that was silent longest goes first.
        timeout_s: one that was silent so long is forgotten, seconds.
    """

    max_conversations: int = 64
    timeout_s: float = 600.0


@dataclass(eq=False)
class _Kept:
    """A conversation between two turns.

    Attributes:
        key: of its sequence in the engine.
        messages: all that was said.
        tokens: of its sequence.
        kv_tokens: of these, tokens whose KV is there.
        last_id: the newest token of its sequence.
        since_s: when its last turn ended.
    """

    key: str
    messages: tuple[ChatMessage, ...]
    turns: int
    tokens: int
    kv_tokens: int
    last_id: int
    since_s: float


class Conversations:
    """Gives prompts of streams to the engine, and keeps their KV while there is room.

    A kept conversation's memory is lent to whoever needs it; its tokens are then computed again
    with the next turn, and counted.

    Args:
        engine: takes the sequences.
        removals: frees them.
        limits: what is taken on.
        keeping: what is kept.
        clock: the loop's.
    """

    def __init__(
        self,
        engine: Engine,
        removals: Removals,
        limits: AdmissionLimits,
        keeping: Keeping,
        clock: Clock,
    ) -> None:
        self._engine = engine
        self._removals = removals
        self._clock = clock
        self._limits = limits
        self._keeping = keeping
        self._kept: dict[_Name, _Kept] = {}  # the one that was silent longest first
        self._said: dict[str, tuple[ChatMessage, ...]] = {}  # by request: all before its answer

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def lenders(self) -> list[str]:
        """The sequences whose KV may be given up, the one that was silent longest first."""
        return [kept.key for kept in self._kept.values() if kept.kv_tokens]

    @property
    def kv_tokens(self) -> int:
        """Tokens of KV that are kept."""
        return sum(kept.kv_tokens for kept in self._kept.values())

    def begin(self, request: StreamRequest, arrival_s: float) -> StreamDelivery:
        """Give a request's prompt to the engine; return the delivery of what it will say.

        Raises:
            Rejected: it cannot be taken, and why; the engine does not know it then.
        """
        what = "the conversation" if len(request.messages) > 1 else "the message"
        self._limits.check_characters(sum(len(m.content) for m in request.messages), what)
        for message in request.messages:
            check_words(self._engine.tokenizer, "a message", message.content)
        key = request.request_id
        kept = self._goes_on_with(request)
        said = (*(kept.messages if kept else ()), *request.messages)
        try:
            prompt, left = self._enter(request, kept, said)
        except (Rejected, EngineLost):
            raise
        except (RequestError, EngineError) as error:
            raise Rejected(ErrorCode.INVALID_REQUEST, str(error)) from error
        self._kept.pop((request.agent, request.conversation), None)
        generation = StreamGeneration(
            key, request, arrival_s, prompt, left, prompt - left,
            kept_tokens=prompt - left, listener=Listener(request.words_per_s),
        )  # fmt: skip
        generation.max_tokens = min(
            request.max_tokens, self._engine.capacity.max_model_len - prompt
        )
        generation.tally.prompt_tokens = prompt
        self._said[key] = said
        return StreamDelivery(generation, self._engine.tokenizer)

    def end(self, generation: StreamGeneration, code: ErrorCode) -> None:
        """Keep what was said for the next turn, or free it."""
        request, said = generation.request, self._said.pop(generation.key)
        usable = code in (ErrorCode.NONE, ErrorCode.CANCELED) and generation.token_ids
        if not (request.conversation and usable and self._keeping.max_conversations):
            self._removals.remove(generation.key)
            return
        try:
            strike_out(self._engine, generation)
        except Exception as error:  # what is not known to be whole is not kept
            log.warning("a conversation of %r is not kept: %s", request.agent, in_words(error))
            self._removals.remove(generation.key)
            return
        name = request.agent, request.conversation
        self._drop(name)
        while len(self._kept) >= self._keeping.max_conversations:
            self._drop(next(iter(self._kept)))
        answer = ChatMessage("assistant", "".join(generation.pieces))
        self._kept[name] = _Kept(
            generation.key, (*said, answer), request.turn + 1,
            generation.context_tokens + generation.to_compute, generation.kv_tokens,
            generation.token_ids[-1], self._clock.now(),
        )  # fmt: skip

    def free_key(self, key: str) -> None:
        """Free the conversation whose last request had the id of a new request, if there is one."""
        for name, kept in self._kept.items():
            if kept.key == key:
                self._drop(name)
                return

    def evicted(self, key: str) -> None:
        """Take note that the engine gave up a sequence's KV."""
        for kept in self._kept.values():
            if kept.key == key:
                kept.kv_tokens = 0

    def forget(self, now: float) -> None:
        """Free the conversations that were silent for too long."""
        for name, kept in list(self._kept.items()):
            if now < kept.since_s + self._keeping.timeout_s:
                return
            self._drop(name)

    def _goes_on_with(self, request: StreamRequest) -> _Kept | None:
        """Return the conversation that a request goes on with, None if it begins one."""
        name = request.agent, request.conversation
        if not request.turn:
            self._drop(name)
            return None
        kept = self._kept.get(name)
        if kept is None or kept.turns != request.turn:
            raise Rejected(
                ErrorCode.UNKNOWN_CONVERSATION,
                f"no conversation {quoted(request.conversation)} of {quoted(request.agent)} with"
                f" {request.turn} turns is kept: send all its messages, with turn 0",
            )
        return kept

    def _enter(
        self, request: StreamRequest, kept: _Kept | None, said: Sequence[ChatMessage]
    ) -> tuple[int, int]:
        """Make a prompt known to the engine; return its tokens, and those left to compute."""
        key, decoding = request.request_id, Decoding(request.temperature, request.seed)
        whole = self._encode(said)
        self._limits.check(len(whole), "the conversation" if len(said) > 1 else "the prompt")
        words = self._words(kept, request.messages) if kept else None
        if kept is None or words is None:
            left = self._engine.add(key, whole, None, decoding)
            if kept is not None:
                self._removals.remove(kept.key)
            return len(whole), left
        left = self._engine.resume(kept.key, key, words, decoding)
        return kept.tokens + len(words), left

    def _drop(self, name: _Name) -> None:
        kept = self._kept.pop(name, None)
        if kept is not None:
            self._removals.remove(kept.key)

    def _words(self, kept: _Kept, new: Sequence[ChatMessage]) -> list[int] | None:
        """Return the tokens that follow an answer, up to the beginning of the next one.

        They are what two chats have in common behind different answers. None: the model's template
        writes earlier turns in another way, and all must be computed again.
        """
        tokenizer = self._engine.tokenizer
        before = kept.messages[:-1]
        chats = [self._encode((*before, ChatMessage("assistant", a), *new)) for a in _ANSWERS]
        words = common(chats[0][::-1], chats[1][::-1])[::-1]
        answer = len(tokenizer.encode(_ANSWERS[0]))
        prompt = self._encode(before)
        if chats[0][: len(prompt)] != prompt or len(prompt) + answer + len(words) != len(chats[0]):
            return None
        # The end of a turn, which the model has said itself.
        if words[0] == kept.last_id and kept.last_id in tokenizer.eos_ids:
            words = words[1:]
        return words

    def _encode(self, messages: Sequence[ChatMessage]) -> list[int]:
        chat: list[Message] = [{"role": m.role, "content": m.content} for m in messages]
        return self._engine.tokenizer.encode_chat(chat)
