"""From what a bag says of a conversation to what its listener got."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from timely_llm.core.errors import RequestError
from timely_llm.core.listener import (
    FASTEST_WORDS_PER_S,
    READING_WORDS_PER_S,
    SLOWEST_WORDS_PER_S,
    Listener,
)
from timely_llm.core.request import ErrorCode
from timely_llm.experiments.outcome import Talk
from timely_llm.experiments.recorded_about import Delivered, Ended
from timely_llm.experiments.recorded_uses import Use
from timely_llm.traces.model import Conversation
from timely_llm.traces.streams import conversation_of


@dataclass(frozen=True)
class TalkStory:
    """One question from its arrival on.

    Attributes:
        request_id: its own.
        id: unique in the recording, even if an id was used more than once.
        asked_ns: when it arrived.
        conversation: what was asked, on the clock of the recording's first request; its prompt has
            the tokens that were not there from earlier turns.
        words_per_s: of its listener.
        tokens: that came, each once, in order.
        ended: how it ended, if that was recorded.
        finished: all of the answer was sent, without an error.
    """

    request_id: str
    id: str
    asked_ns: int
    conversation: Conversation
    words_per_s: float
    tokens: tuple[Delivered, ...]
    ended: Ended | None
    finished: bool

    @property
    def lost(self) -> int:
        """Tokens that were generated and are not in the recording."""
        made = self.ended.generated_tokens if self.ended is not None else 0
        return max(made - len(self.tokens), 0)

    def talk(self, begin_ns: int) -> Talk:
        """Return what the listener got; `begin_ns` is 0 s."""
        listener = Listener(self.words_per_s)
        times_s = tuple((token.time_ns - begin_ns) / 1e9 for token in self.tokens)
        for token, time_s in zip(self.tokens, times_s, strict=True):
            listener.hear(token.text, time_s)
        return Talk(self.conversation, self.finished, times_s, listener.stalled_s)


def talk_story(use: Use[Conversation], begin_ns: int, results_known: bool) -> TalkStory:
    """Return the story of a request.

    Args:
        use: the request.
        begin_ns: what is 0 s.
        results_known: the recording has results of conversations.

    Raises:
        TraceError: no request can be like that.
        RequestError: its service level or its listener is not possible.
    """
    tokens, ended = _tokens(use.about.delivered, use.asked.time_ns), use.ended
    if results_known:
        finished = ended is not None and ended.error_code == ErrorCode.NONE
    else:
        finished = any(token.final for token in tokens)
    return TalkStory(
        use.request_id, use.id, use.asked.time_ns, _conversation(use, begin_ns, len(tokens)),
        _words_per_s(use), tokens, ended, finished and bool(tokens),
    )  # fmt: skip


def _tokens(delivered: Sequence[Delivered], asked_ns: int) -> tuple[Delivered, ...]:
    """Return tokens by their index, each once, none before the one in front of it or the asking."""
    first: dict[int, Delivered] = {}
    for token in delivered:
        first.setdefault(token.index, token)
    made: list[Delivered] = []
    free_ns = asked_ns
    for index in sorted(first):
        free_ns = max(first[index].time_ns, free_ns)
        made.append(replace(first[index], time_ns=free_ns))
    return tuple(made)


def _conversation(use: Use[Conversation], begin_ns: int, tokens: int) -> Conversation:
    arrival_s, known, ended = (use.asked.time_ns - begin_ns) / 1e9, use.about.line, use.ended
    if use.asked.message is None and known is not None:
        return replace(known, id=use.id, arrival_s=arrival_s)
    prompt_tokens = ended.new_tokens if ended is not None else 0
    generated_tokens = ended.generated_tokens if ended is not None else 0
    return conversation_of(
        use.asked.message, use.id, arrival_s, prompt_tokens, max(generated_tokens, tokens)
    )


def _words_per_s(use: Use[Conversation]) -> float:
    """Return how fast the listener is; where nothing was said, as a reader.

    Raises:
        RequestError: nobody is so slow or so fast.
    """
    message = use.asked.message
    words_per_s = float(message.words_per_s) if message is not None else 0.0
    if words_per_s and not SLOWEST_WORDS_PER_S <= words_per_s <= FASTEST_WORDS_PER_S:
        raise RequestError(f"{use.id}: words_per_s is {words_per_s:g}")
    return words_per_s or READING_WORDS_PER_S
