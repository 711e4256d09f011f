"""Event streams of a cloud, cut anywhere and full of anything."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Sequence

import httpx2
from hypothesis import given
from hypothesis import strategies as st

from test.cloud.asking import question
from test.examples import examples
from timely_llm.cloud.chat_completions import ChatCompletions, _retry_after_s
from timely_llm.cloud.chunk import error_words, read_chunk
from timely_llm.cloud.settings import CloudSettings

TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
LINE_ENDS = st.sampled_from(("\n", "\r\n", "\r"))
COMMENTS = st.sampled_from(("", ": ping", "event: message", "id: 5", "unknown: 1", "retry: 3"))
CUTS = st.lists(st.integers(1, 20), max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(("choices", "delta", "content", "usage", "error", "index")), inner
        )
    ),
    max_leaves=12,
)

COMPLETIONS = ChatCompletions(CloudSettings("http://localhost", "large"))


class Pieces(httpx2.AsyncByteStream):
    """A body in given pieces."""

    def __init__(self, body: bytes, cuts: Sequence[int]) -> None:
        self._body = body
        self._cuts = cuts

    async def __aiter__(self) -> AsyncIterator[bytes]:
        rest = self._body
        for cut in self._cuts:
            yield rest[:cut]
            rest = rest[cut:]
        yield rest


def answer(body: bytes, cuts: Sequence[int] = ()) -> tuple[str, str]:
    """Return the words and the problem of an answer with this body."""

    def respond(request: httpx2.Request) -> httpx2.Response:
        headers = {"content-type": "text/event-stream"}
        return httpx2.Response(200, headers=headers, stream=Pieces(body, cuts))

    async def ask() -> tuple[str, str]:
        completions = COMPLETIONS
        completions._client = httpx2.AsyncClient(transport=httpx2.MockTransport(respond))
        said: list[str] = []
        _, problem = await completions.ask(question(timeout_s=20.0), said.append)
        await completions.close()
        return "".join(said), problem

    return asyncio.run(ask())


def chunk(text: str, reason: str | None = None) -> str:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": reason}
    return "data: " + json.dumps({"choices": [choice]}, ensure_ascii=len(text) % 2 == 0)


@given(st.lists(st.tuples(TEXT, COMMENTS), min_size=1, max_size=6), LINE_ENDS, CUTS)
@examples(40)
def test_where_a_stream_is_cut_changes_nothing(
    pieces: list[tuple[str, str]], end: str, cuts: list[int]
) -> None:
    lines = [line for text, comment in pieces for line in (comment, chunk(text), "")]
    lines += [chunk("!", "stop"), "", "data: [DONE]", "", ""]
    said, problem = answer(end.join(lines).encode(), cuts)
    words = "".join(text for text, _ in pieces)
    assert said == re.sub("[\x00-\x08\x0b-\x1f\x7f-\x9f]", "", words) + "!"
    assert not problem


@given(st.binary(max_size=60) | st.lists(JSON, max_size=3).map(
    lambda documents: "".join(f"data: {json.dumps(d)}\n\n" for d in documents).encode()
), CUTS)  # fmt: skip
@examples(40)
def test_any_stream_has_one_end(body: bytes, cuts: list[int]) -> None:
    _, problem = answer(body, cuts)
    assert problem.startswith("the cloud at localhost ")


@given(JSON)
@examples(60)
def test_a_chunk_is_read_or_is_none(document: object) -> None:
    read = read_chunk(json.dumps(document))
    if read is not None:
        read.text.encode()
    assert isinstance(error_words(document), str)


def test_a_lone_surrogate_is_no_text() -> None:
    read = read_chunk(r'{"choices": [{"delta": {"content": "a\ud800b"}}]}')
    assert read is None or read.text.isprintable()


@given(st.text(max_size=30) | st.floats().map(str))
@examples(60)
def test_a_pause_is_some_seconds_or_none(value: str) -> None:
    assert _retry_after_s(value) >= 0
