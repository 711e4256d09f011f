"""Conversations: from messages to a prompt, and what is kept for the next turn."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from timely_llm.core.clock import Clock
from timely_llm.core.errors import EngineError, EngineLost, RequestError
from timely_llm.core.generation import StreamGeneration
from timely_llm.core.request import ChatMessage, ErrorCode, Rejected, StreamRequest
from timely_llm.core.slo import Listener
from timely_llm.core.step import SequenceProgress
from timely_llm.core.text import quoted
from timely_llm.engines.contract import Decoding, Engine, Message
from timely_llm.serving.delivery import StreamDelivery
from timely_llm.serving.failures import in_words
from timely_llm.serving.journal.saved import SavedConversation
from timely_llm.serving.limits import AdmissionLimits
from timely_llm.serving.prompts import check_words, common
from timely_llm.serving.removals import Removals, take_back

log = logging.getLogger(__name__)
_Name = tuple[str, str]
"""An agent, and its name for a conversation."""

_ANSWERS = ("x", "1")  # that no tokenizer joins with what follows


@dataclass(frozen=True)
class RetentionLimits:
    """What a server keeps of conversations between two turns.

    Attributes:
        max_conversations: most that are kept; the longest silent one goes first.
        timeout_s: a conversation without a turn for this time is forgotten, seconds.
    """

    max_conversations: int = 64
    timeout_s: float = 600.0


@dataclass(eq=False)
class _RetainedConversation:
    """A conversation between two turns.

    Attributes:
        key: of its sequence in the engine.
        name: its agent and its own.
        messages: all so far.
        turns: number of turns so far; the next request must have it as its `turn`.
        progress: of its sequence.
        last_id: the newest token of its sequence; -1: the engine has no sequence of it, since an
            earlier server had the conversation.
        since_s: when its last turn ended.
    """

    key: str
    name: _Name
    messages: tuple[ChatMessage, ...]
    turns: int
    progress: SequenceProgress
    last_id: int
    since_s: float


@dataclass(eq=False)
class _RetainedPrompt:
    """The prompt of a part of an answer that has ended.

    Attributes:
        key: of its sequence in the engine.
        answer: name of the answer.
        token_ids: of the prompt.
        progress: of its sequence.
        since_s: when the part ended.
    """

    key: str
    answer: str
    token_ids: list[int]
    progress: SequenceProgress
    since_s: float

    def shared_with(self, token_ids: Sequence[int]) -> int:
        """Return the first tokens of another prompt that have KV here; one is left to compute."""
        alike = len(common(self.token_ids, token_ids[:-1]))
        return alike if self.progress.context_tokens else 0


class Conversations:
    """Gives prompts of streams to the engine, and keeps their KV while there is room.

    Steps may evict the KV of a kept conversation. The next turn then computes its tokens again,
    and counts them as recomputed. An answer of several parts has the KV of their prompts kept, too:
    the next part computes only what differs. This KV is evicted first.

    Args:
        engine: takes the sequences.
        removals: frees them.
        limits: what is taken on.
        retention: what is kept.
        clock: the loop's.

    Attributes:
        kept: what is kept, by key of its sequence, the one that was silent longest first.
    """

    def __init__(
        self,
        engine: Engine,
        removals: Removals,
        limits: AdmissionLimits,
        retention: RetentionLimits,
        clock: Clock,
    ) -> None:
        self._engine = engine
        self._removals = removals
        self._clock = clock
        self._limits = limits
        self._retention = retention
        self.kept: dict[str, _RetainedConversation | _RetainedPrompt] = {}
        self._named: dict[_Name, _RetainedConversation] = {}  # the kept conversations
        # By request: its conversation, and all messages before its answer.
        self._open: dict[str, tuple[_Name, tuple[ChatMessage, ...]]] = {}
        self._parts: dict[str, list[int]] = {}  # by request: the prompt of a part

    def __len__(self) -> int:
        return len(self._named)

    @property
    def _prompts(self) -> list[_RetainedPrompt]:
        return [one for one in self.kept.values() if isinstance(one, _RetainedPrompt)]

    @property
    def lenders(self) -> dict[str, int]:
        """Evictable sequences: parts of answers, then conversations, the longest silent first."""
        kept: list[_RetainedPrompt | _RetainedConversation] = [*self._prompts]
        kept += self._named.values()
        return {one.key: one.progress.kv_tokens for one in kept if one.progress.kv_tokens}

    @property
    def kv_tokens(self) -> int:
        """Tokens of KV that are kept."""
        return sum(one.progress.kv_tokens for one in self.kept.values())

    @property
    def kept_tokens(self) -> dict[tuple[str, str], int]:
        """Tokens with KV of each kept conversation, by agent and name."""
        return {name: kept.progress.context_tokens for name, kept in self._named.items()}

    @property
    def names(self) -> set[tuple[str, str]]:
        """Agent and name of the conversations that are kept or being answered."""
        return {*self._named, *(name for name, _ in list(self._open.values()))}

    def saved(self, request_id: str) -> SavedConversation | None:
        """Return the kept conversation with the newest turn of this id; None: there is none."""
        kept = self.kept.get(request_id)
        if not isinstance(kept, _RetainedConversation):
            return None
        return SavedConversation(kept.key, *kept.name, kept.messages, kept.turns)

    def restore(self, conversations: Iterable[SavedConversation]) -> None:
        """Keep conversations of an earlier server: their text, without KV.

        Args:
            conversations: in order of their newest turns; as many of the newest as may be kept are.
        """
        now, most = self._clock.now(), self._retention.max_conversations
        for one in list(conversations)[-most:] if most else ():
            name = one.agent, one.name
            self.kept[one.key] = self._named[name] = _RetainedConversation(
                one.key, name, one.messages, one.turns, SequenceProgress(0), -1, now
            )

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
            progress = self._enter(request, kept, said)
        except (Rejected, EngineLost):
            raise
        except (RequestError, EngineError) as error:
            raise Rejected(ErrorCode.INVALID_REQUEST, str(error)) from error
        if kept is not None:
            self._forget(kept)
        prompt = progress.tokens
        generation = StreamGeneration(
            key, request, arrival_s, prompt, 0,
            kept_tokens=progress.context_tokens, listener=Listener(request.words_per_s),
        )  # fmt: skip
        generation.set_progress(progress)
        generation.max_tokens = min(
            request.max_tokens, self._engine.capacity.max_model_len - prompt
        )
        generation.tally.prompt_tokens = prompt
        self._open[key] = (request.agent, request.conversation), said
        return StreamDelivery(generation, self._engine.tokenizer)

    def end(self, generation: StreamGeneration, code: ErrorCode) -> None:
        """Keep the sequence for the next turn, or free it."""
        request, (name, said) = generation.request, self._open.pop(generation.key)
        prompt = self._parts.pop(generation.key, None)
        usable = code in (ErrorCode.NONE, ErrorCode.CANCELED) and generation.token_ids
        lasts = request.conversation or prompt
        if not (lasts and usable and self._retention.max_conversations):
            self._removals.remove(generation.key)
            return
        try:
            take_back(self._engine, generation)
        except Exception as error:  # what is not known to be whole is not kept
            log.warning("a conversation of %r is not kept: %s", request.agent, in_words(error))
            self._removals.remove(generation.key)
            return
        key, now, most = generation.key, self._clock.now(), self._retention.max_conversations
        if prompt is not None:
            while len(self._prompts) >= most:
                self.free_key(self._prompts[0].key)
            self.kept[key] = _RetainedPrompt(key, request.part_of, prompt, generation.progress, now)
            return
        self._drop(name)
        while len(self._named) >= most:
            self._drop(next(iter(self._named)))
        answer = ChatMessage("assistant", "".join(generation.pieces))
        self.kept[key] = self._named[name] = _RetainedConversation(
            key, name, (*said, answer), request.turn + 1, generation.progress,
            generation.token_ids[-1], now,
        )  # fmt: skip

    def forget_parts(self, answer: str) -> bool:
        """Free what is kept of the parts of an answer; return whether there was something."""
        keys = [one.key for one in self._prompts if one.answer == answer]
        for key in keys:
            self.free_key(key)
        return bool(keys)

    def free_key(self, key: str) -> None:
        """Free what ended with a request of this id, if there is something."""
        kept = self.kept.get(key)
        if kept is not None:
            self._forget(kept)
            self._removals.remove(key)

    def update(self, key: str, progress: SequenceProgress) -> None:
        """Store how far the engine says that a sequence is; an unknown one is not an error."""
        kept = self.kept.get(key)
        if kept is not None:
            kept.progress = progress

    def forget_all(self) -> None:
        """Free all that is kept."""
        for key in list(self.kept):
            self.free_key(key)

    def forget(self, now: float) -> None:
        """Free the conversations and parts that were silent for too long."""
        for key, kept in list(self.kept.items()):
            if now < kept.since_s + self._retention.timeout_s:
                return
            self.free_key(key)

    def _goes_on_with(self, request: StreamRequest) -> _RetainedConversation | None:
        """Return the conversation that a request goes on with, None if it begins one."""
        name = request.agent, request.conversation
        if not request.turn:
            self._drop(name)
            return None
        kept = self._named.get(name)
        if kept is None or kept.turns != request.turn:
            raise Rejected(
                ErrorCode.UNKNOWN_CONVERSATION,
                f"no conversation {quoted(request.conversation)} of {quoted(request.agent)} with"
                f" {request.turn} turns is kept: send all its messages, with turn 0",
            )
        return kept

    def _enter(
        self,
        request: StreamRequest,
        kept: _RetainedConversation | None,
        said: Sequence[ChatMessage],
    ) -> SequenceProgress:
        """Make a prompt known to the engine; return how far it is."""
        key, grammar = request.request_id, self._limits.answer_grammar
        decoding = Decoding(request.temperature, request.seed, grammar)
        whole = self._encode(said)
        self._limits.check(len(whole), "the conversation" if len(said) > 1 else "the prompt")
        if request.part_of and not request.conversation:
            return self._enter_part(request, whole, decoding)
        words = self._words(kept, request.messages) if kept and kept.last_id >= 0 else None
        if kept is None or words is None:
            progress = self._engine.add(key, whole, None, decoding)
            if kept is not None:
                self._removals.remove(kept.key)
            return progress
        return self._engine.resume(kept.key, key, words, decoding)

    def _enter_part(
        self, request: StreamRequest, prompt: list[int], decoding: Decoding
    ) -> SequenceProgress:
        """Make the prompt of a part known; it goes on from the kept one that is most alike."""
        key = request.request_id
        alike = {
            one.key: one.shared_with(prompt)
            for one in self._prompts
            if one.answer == request.part_of
        }
        best = max(alike, key=alike.__getitem__, default="")
        if keep := alike.get(best, 0):
            progress = self._engine.resume(best, key, prompt[keep:], decoding, keep)
            del self.kept[best]
        else:
            progress = self._engine.add(key, prompt, None, decoding)
        self._parts[key] = prompt
        return progress

    def _drop(self, name: _Name) -> None:
        kept = self._named.get(name)
        if kept is not None:
            self.free_key(kept.key)

    def _forget(self, kept: _RetainedConversation | _RetainedPrompt) -> None:
        del self.kept[kept.key]
        if isinstance(kept, _RetainedConversation):
            del self._named[kept.name]

    def _words(self, kept: _RetainedConversation, new: Sequence[ChatMessage]) -> list[int] | None:
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
        # The end of a turn, which the model has made itself.
        if words[0] == kept.last_id and kept.last_id in tokenizer.eos_ids:
            words = words[1:]
        return words

    def _encode(self, messages: Sequence[ChatMessage]) -> list[int]:
        chat: list[Message] = [{"role": m.role, "content": m.content} for m in messages]
        return self._engine.tokenizer.encode_chat(chat)
