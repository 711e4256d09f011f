"""Questions to `/chat/completions` of one cloud: attempts, timeouts, and the words of errors."""

from __future__ import annotations

import asyncio
import datetime
import email.utils
import json
import math
import random
import ssl
from collections.abc import Callable
from contextlib import aclosing

import httpx2

from timely_llm.cloud.chunk import Chunk, Usage, error_words, read_chunk
from timely_llm.cloud.contract import CloudQuestion
from timely_llm.cloud.settings import CloudSettings
from timely_llm.core.errors import ConfigurationError, TimelyError
from timely_llm.core.text import count_of, quoted

PAUSES_S = (0.25, 0.75)
"""Mean pauses before a question is asked again, seconds."""
RETRIED = frozenset((408, 429))
"""Statuses below 500 after which a question may be asked again."""
MOST_EVENT = 256 * 1024
"""Most bytes of one event."""
MOST_ERROR = 64 * 1024
"""Most bytes that are read of the body of an error."""
MOST_CHARACTERS = 64
"""Most characters of an answer for each token that was asked for."""
MOST_BYTES = 4096
"""Most bytes of an event stream for each token that was asked for, beside those of one event."""

CLOSE_S = 0.1
"""How long the end of a stream may take after the last event, seconds."""
MOST_QUOTED = 200
"""Most characters of the cloud's words in a sentence."""
NO_REASON = "ended its answer without a reason, so a part may be missing"


class _NoAnswer(TimelyError):
    """A question has no whole answer; the message says why, after the name of the cloud."""


class _AskAgain(_NoAnswer):
    """An attempt failed before its first word.

    Attributes:
        after_s: pause that the cloud asks for, seconds; 0: none.
    """

    def __init__(self, message: str, after_s: float = 0.0) -> None:
        super().__init__(message)
        self.after_s = after_s


class _CloudAnswer:
    """What is known of an answer.

    Attributes:
        began: whether a word of it came.
        reason: why it ended, as the cloud says; empty: it has not.
        too_long: whether it has more characters than its tokens could have.
    """

    def __init__(self, question: CloudQuestion, hear: Callable[[str], object]) -> None:
        self.began = False
        self.reason = ""
        self.too_long = False
        self._hear = hear
        self._room = question.max_tokens * MOST_CHARACTERS
        self._pieces = 0
        self._usage: Usage | None = None

    def add(self, chunk: Chunk) -> bool:
        """Take a chunk; return whether it brought words.

        Raises:
            _NoAnswer: the answer is longer than any of its tokens could make it.
        """
        self._usage = chunk.usage or self._usage
        self.reason = self.reason or chunk.finish_reason
        text = chunk.text
        if not text:
            return False
        self._room -= len(text)
        if self._room < 0:
            self.too_long = True
            raise _NoAnswer("sent more characters than max_tokens can have")
        self._pieces += 1
        self.began = True
        self._hear(text)
        return True

    @property
    def problem(self) -> str:
        """Why an answer that has ended is not whole; empty: it is."""
        if self.reason not in ("stop", "length"):
            return f"ended its answer early: {quoted(self.reason)}"
        return "" if self.began else "answered without a word"

    @property
    def usage(self) -> Usage:
        """Tokens as the cloud counts them; pieces of the answer, if it does not."""
        return self._usage or Usage(completion_tokens=self._pieces)


class _TimeLeft:
    """The time that an answer has left: to its first word, to its next one, to its end."""

    def __init__(self, settings: CloudSettings, question: CloudQuestion) -> None:
        self._settings = settings
        self.total_s = min(question.timeout_s, settings.timeout_s)
        now = asyncio.get_running_loop().time()
        self._end = now + self.total_s
        self._first = now + settings.first_token_s
        self.timeout = asyncio.timeout_at(min(self._end, self._first))
        self._said = f"did not begin its answer within {settings.first_token_s:g} s"

    def next_word(self) -> None:
        """A word came: another one must follow."""
        silence_s = self._settings.silence_s
        silent = asyncio.get_running_loop().time() + silence_s
        self.timeout.reschedule(min(self._end, silent))
        self._said = f"went silent for {silence_s:g} s within its answer"

    def end(self) -> None:
        """The answer is over; only the end of the stream may follow."""
        now = asyncio.get_running_loop().time()
        self.timeout.reschedule(min(self._end, now + CLOSE_S))
        self._said = NO_REASON

    @property
    def left_s(self) -> float:
        """Seconds until time is up."""
        return (self.timeout.when() or math.inf) - asyncio.get_running_loop().time()

    @property
    def sentence(self) -> str:
        """What the cloud did not do in time."""
        if self.timeout.when() == self._end:
            return f"did not answer within {self.total_s:g} s"
        return self._said


class ChatCompletions:
    """Client of one cloud; belongs to one event loop.

    A connection is kept for further questions. A redirect is not followed. A proxy of the
    environment is used, but not to this machine.

    Args:
        settings: where the cloud is, and its bounds.

    Raises:
        ConfigurationError: the key's variable is not set, or the URL is none.
    """

    def __init__(self, settings: CloudSettings) -> None:
        self._settings = settings
        self._key = settings.key()
        self._counts = True
        headers = {"Accept": "text/event-stream", "Accept-Encoding": "identity"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        try:
            self._url = httpx2.URL(f"{settings.base}/chat/completions")
            self._client = httpx2.AsyncClient(
                headers=headers,
                timeout=httpx2.Timeout(None, connect=settings.connect_s),
                limits=httpx2.Limits(
                    max_connections=None, max_keepalive_connections=4, keepalive_expiry=30.0
                ),
                trust_env=not settings.loopback,
            )
        except (httpx2.InvalidURL, ValueError, OSError) as error:
            raise ConfigurationError(f"no client for cloud_url can be made: {error}") from None

    async def ask(
        self, question: CloudQuestion, hear: Callable[[str], object]
    ) -> tuple[Usage, str]:
        """Ask a question until it is answered, within its time.

        Args:
            question: what to ask.
            hear: takes the words as they come.

        Returns:
            Tokens of the question and of the answer; why there is no whole answer, or nothing.
        """
        answer = _CloudAnswer(question, hear)
        limits = _TimeLeft(self._settings, question)
        problem = ""
        try:
            async with limits.timeout:
                await self._attempts(question, answer, limits)
        except TimeoutError:
            problem = limits.sentence
        except _NoAnswer as error:
            problem = str(error)
        if answer.reason and not answer.too_long:
            problem = answer.problem  # it has ended: what failed afterwards changes nothing
        name = f"the cloud at {self._settings.host}"
        return answer.usage, f"{name} {problem}" if problem else ""

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    def _quoted(self, words: str) -> str:
        """Return words of the cloud for a sentence; a key that it repeats is left out."""
        return quoted(words.replace(self._key, "(key)") if self._key else words, MOST_QUOTED)

    async def _attempts(
        self, question: CloudQuestion, answer: _CloudAnswer, limits: _TimeLeft
    ) -> None:
        for tries, mean_s in enumerate((*PAUSES_S, math.inf), 1):
            try:
                return await self._attempt(question, answer, limits)
            except _AskAgain as error:
                pause_s = max(mean_s * random.uniform(0.5, 1.5), error.after_s)
                if pause_s >= limits.left_s:
                    again = f"; it was asked {count_of(tries, 'time')}" if tries > 1 else ""
                    raise _NoAnswer(f"{error}{again}") from None
            await asyncio.sleep(pause_s)
        return None

    async def _attempt(
        self, question: CloudQuestion, answer: _CloudAnswer, limits: _TimeLeft
    ) -> None:
        """Send a question and read its answer.

        Raises:
            _NoAnswer: there is no whole answer.
        """
        try:
            async with self._client.stream(
                "POST", self._url, json=self._body(question)
            ) as response:
                await self._check(response)
                await self._read(response, question, answer, limits)
        except httpx2.SSEError:
            raise _NoAnswer(f"sent an event of more than {MOST_EVENT:,} bytes") from None
        except httpx2.ConnectTimeout:
            seconds = f"{self._settings.connect_s:g} s"
            raise _AskAgain(f"took no connection within {seconds}") from None
        except httpx2.ConnectError as error:
            raise _unreachable(error) from None
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            if answer.began:
                raise _NoAnswer("broke off within its answer") from None
            raise _AskAgain(f"broke off before its answer: {_cause(error)}") from None

    def _body(self, question: CloudQuestion) -> dict[str, object]:
        body: dict[str, object] = {
            "model": self._settings.model,
            "messages": [{"role": m.role, "content": m.content} for m in question.messages],
            "max_tokens": question.max_tokens,
            "temperature": 0.0,
            "stream": True,
        }
        if self._counts:
            body["stream_options"] = {"include_usage": True}
        return body

    async def _check(self, response: httpx2.Response) -> None:
        """Return if an event stream follows.

        Raises:
            _NoAnswer: the cloud does not answer the question.
        """
        status = response.status_code
        if response.is_redirect:
            raise _NoAnswer(
                f"redirects (HTTP {status}), which is not followed: cloud_url must name the server"
                " itself"
            )
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        coding = response.headers.get("content-encoding", "identity").strip().lower()
        if status == 200 and kind == "text/event-stream" and coding == "identity":
            response.encoding = "utf-8"  # as the standard has it, whatever the header says
            return
        words = await _error_text(response)
        reason = f": {self._quoted(words)}" if words else ""
        if status == 200:
            found = kind if coding == "identity" else f"{kind} in {coding}"
            raise _NoAnswer(f"answered with {quoted(found)}, not with an event stream{reason}")
        options = "stream_options"
        if (
            status in (400, 422)
            and options in words
            and options.encode() in response.request.content
        ):
            self._counts = False  # such servers count without it
            raise _AskAgain(f"refuses {options} (HTTP {status})")
        message = f"refused the question (HTTP {status}){reason}"
        if status in RETRIED or status >= 500:
            raise _AskAgain(message, _retry_after_s(response.headers.get("retry-after", "")))
        raise _NoAnswer(message)

    async def _read(
        self,
        response: httpx2.Response,
        question: CloudQuestion,
        answer: _CloudAnswer,
        limits: _TimeLeft,
    ) -> None:
        """Read an event stream to its end.

        Raises:
            _NoAnswer: it is none of a chat completion, or too long.
        """
        most = MOST_EVENT + question.max_tokens * MOST_BYTES
        events = aiter(httpx2.EventSource(response, MOST_EVENT))
        async with aclosing(events):  # type: ignore[type-var]
            async for event in events:
                if event.data == "[DONE]":
                    limits.end()  # read on: a stream that was read to its end frees the connection
                    continue
                if response.num_bytes_downloaded > most:
                    raise _NoAnswer(f"sent more than {most:,} bytes")
                chunk = read_chunk(event.data)
                if chunk is None:
                    shown = self._quoted(event.data)
                    raise _NoAnswer(f"sent {shown}, which is no chunk of a chat completion")
                if chunk.error is not None:
                    words = self._quoted(error_words(chunk.error))
                    failed = _NoAnswer if answer.began else _AskAgain
                    raise failed(f"failed within its answer: {words}")
                if answer.add(chunk):
                    limits.next_word()
        if not answer.reason:
            raise _NoAnswer(NO_REASON)


def _unreachable(error: httpx2.ConnectError) -> _NoAnswer:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            return _NoAnswer(f"cannot be trusted: {_plain(cause)}")
        cause = cause.__cause__ or cause.__context__
    return _AskAgain(f"cannot be reached: {_cause(error)}")


def _plain(error: ssl.SSLError) -> str:
    return str(getattr(error, "verify_message", "") or error.reason or error)


def _cause(error: Exception) -> str:
    return str(error) or type(error).__name__


async def _error_text(response: httpx2.Response) -> str:
    """Return what the beginning of an error's body says."""
    body = b""
    async with aclosing(response.aiter_raw()) as pieces:
        async for piece in pieces:
            body += piece
            if len(body) > MOST_ERROR:
                break
    text = body[:MOST_ERROR].decode("utf-8", "replace")
    try:
        return error_words(json.loads(text)) or text.strip()
    except (ValueError, RecursionError):
        return text.strip()


def _retry_after_s(value: str) -> float:
    """Return the seconds of a Retry-After header, or to the date in it; 0: there is none."""
    try:
        seconds = float(value)
    except ValueError:
        try:
            date = email.utils.parsedate_to_datetime(value)
        except ValueError:
            return 0.0
        if date.tzinfo is None:
            date = date.replace(tzinfo=datetime.UTC)
        seconds = (date - datetime.datetime.now(datetime.UTC)).total_seconds()
    return max(seconds, 0.0) if not math.isnan(seconds) else 0.0
