"""A stand-in for a cloud: OpenAI's `/v1/chat/completions` over an engine of the package."""

from __future__ import annotations

import itertools
import json
import logging
import math
import queue
import threading
import time
from collections.abc import Callable, Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, Field, ValidationError

from timely_llm.cloud.prompts import asks_plan_sketch
from timely_llm.core.clock import WallClock
from timely_llm.core.errors import RequestError
from timely_llm.core.request import (
    MAX_TOKENS,
    ChatMessage,
    ErrorCode,
    Rejected,
    Request,
    Result,
    StreamChunk,
    StreamRequest,
    StreamResult,
)
from timely_llm.core.segment import Segment
from timely_llm.core.step import StepResult
from timely_llm.core.text import quoted
from timely_llm.engines.contract import Engine
from timely_llm.policies.fcfs import Stream
from timely_llm.serving.limits import RequestLimits, Timeouts
from timely_llm.serving.loop import Loop
from timely_llm.serving.server.server import Server

log = logging.getLogger(__name__)
MOST_BYTES = 1_000_000
"""Most bytes of a request."""
IDLE_S = 60.0
"""How long a connection may be silent, seconds."""
_STATUS = {
    ErrorCode.INVALID_REQUEST: 400,
    ErrorCode.TOO_LONG: 400,
    ErrorCode.QUEUE_FULL: 429,
    ErrorCode.AGENT_LIMIT: 429,
    ErrorCode.BUSY: 429,
    ErrorCode.SHUTTING_DOWN: 503,
    ErrorCode.EXPIRED: 503,
    ErrorCode.NO_MEMORY: 503,
}
"""HTTP's status by error code; the others are 500."""
_KINDS = {400: "invalid_request_error", 404: "not_found_error", 429: "rate_limit_error"}

AnswerQueue = queue.SimpleQueue[StreamChunk | StreamResult]
"""The chunks of an answer and, as the last item, its result."""


class _Message(BaseModel):
    role: str
    content: str


class _StreamOptions(BaseModel):
    include_usage: bool = False


Tokens = Annotated[int, Field(ge=1, le=MAX_TOKENS)]


class _Body(BaseModel):
    """What is read of a request; what is not read changes nothing."""

    model: str
    messages: list[_Message]
    max_tokens: Tokens | None = None
    max_completion_tokens: Tokens | None = None
    temperature: float = 1.0
    seed: int = 0
    n: Literal[1] = 1
    stream: bool = False
    stream_options: _StreamOptions | None = None


class _Refused(Exception):
    """A request is refused by a status of HTTP."""

    def __init__(self, status: int, message: str, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s


class CloudStandIn(ThreadingHTTPServer):
    """Serves an engine until it is closed.

    Args:
        make_engine: makes the engine, in the thread that runs it.
        model: name of the model, for its clients.
        host: address to listen at.
        port: 0: any free one.
        most: most answers at a time.
        heeds_system: False: of the messages of the role system only the question for a plan's steps
            is read. The embedded model was trained on it and can follow no other instruction.
        answers: factory of the answering object, called with `make_engine` and `most`; None:
            `Answers`.

    Raises:
        OSError: the address cannot be used.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(
        self, make_engine: Callable[[], Engine], model: str, host: str = "127.0.0.1",
        port: int = 0, most: int = 64, heeds_system: bool = True,
        answers: Callable[[Callable[[], Engine], int], Answers] | None = None,
    ) -> None:  # fmt: skip
        super().__init__((host, port), _Handler)
        self._host = host
        self.model = model
        self.heeds_system = heeds_system
        self.numbers = itertools.count()
        try:
            self.answers = (answers or Answers)(make_engine, most)
        except BaseException:
            self.server_close()
            raise
        self._thread = threading.Thread(target=self.serve_forever, name="stand-in", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Base of its interface: a `cloud_url`."""
        return f"http://{self._host}:{self.server_port}/v1"

    def show_and_serve(self) -> None:
        """Print the URL, and answer until a signal ends the process."""
        try:
            print(self.url, flush=True)
            threading.Event().wait()
        finally:
            self.close()

    def close(self) -> None:
        """End all answers, listen no more and free the engine."""
        self.shutdown()
        self.server_close()
        self.answers.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log what went wrong with a connection; most often its client is gone."""
        log.debug("a connection of %s failed", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    timeout = IDLE_S

    @property
    def _site(self) -> CloudStandIn:
        return cast(CloudStandIn, self.server)

    def do_GET(self) -> None:
        """Answer a request for the list of models."""
        if self.path.rstrip("/") == "/v1/models":
            model = {"id": self._site.model, "object": "model", "owned_by": "timely_llm"}
            self._send(200, {"object": "list", "data": [model]})
        else:
            self.send_error(404, f"there is no {quoted(self.path)}")

    def do_POST(self) -> None:
        """Answer a question."""
        try:
            body = self._body()
            if self.path.rstrip("/") != "/v1/chat/completions":
                raise _Refused(404, f"there is no {quoted(self.path)}")
            self._answer(_read(body, self._site.model))
        except _Refused as error:
            self._refuse(error)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Send an error as OpenAI does, and close the connection."""
        self._refuse(_Refused(code, message or HTTPStatus(code).phrase))

    def log_message(self, format: str, *args: Any) -> None:
        """Log a request."""
        log.debug(format, *args)

    def _refuse(self, error: _Refused) -> None:
        kind = _KINDS.get(error.status, "server_error")
        said = {"message": str(error), "type": kind, "param": None, "code": error.status}
        self.close_connection = True
        self._send(error.status, {"error": said}, error.retry_after_s)

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            raise _Refused(411, "a request needs a Content-Length")
        if int(length) > MOST_BYTES:
            raise _Refused(413, f"a request may have {MOST_BYTES:,} bytes")
        return self.rfile.read(int(length))

    def _answer(self, body: _Body) -> None:
        number = next(self._site.numbers)
        request = _request(f"chatcmpl-{number}", body, self._site.heeds_system)
        try:
            answer = self._site.answers.begin(request)
        except Rejected as error:
            raise _refusal(error.code, str(error), error.retry_after_s) from error
        try:
            first = answer.get()
            if isinstance(first, StreamResult) and first.error_code:
                raise _refused(first)
            items = itertools.chain([first], iter(answer.get, None))
            if body.stream:
                self._stream(request, body, items)
            else:
                self._whole(request, items)
        finally:
            self._site.answers.cancel(request.request_id)

    def _stream(self, request: StreamRequest, body: _Body, items: Iterator[Any]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Cache-Control", "no-cache")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        about = self._about(request, "chat.completion.chunk")
        delta: dict[str, object] = {"role": "assistant", "content": ""}
        for item in items:
            if isinstance(item, StreamResult):
                break
            if item.text:
                self._event({**about, "choices": [_choice(delta | {"content": item.text})]})
                delta = {}
        if item.error_code:
            self._event({"error": {"message": item.error_msg, "type": "server_error"}})
        else:
            self._event({**about, "choices": [_choice(delta, _reason(item))]})
            if body.stream_options is not None and body.stream_options.include_usage:
                self._event({**about, "choices": [], "usage": _usage(item)})
            self._event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def _whole(self, request: StreamRequest, items: Iterator[Any]) -> None:
        result = next(item for item in items if isinstance(item, StreamResult))
        if result.error_code:
            raise _refused(result)
        message = {"role": "assistant", "content": result.text}
        choice = {"index": 0, "message": message, "finish_reason": _reason(result)}
        about = self._about(request, "chat.completion")
        self._send(200, {**about, "choices": [choice], "usage": _usage(result)})

    def _about(self, request: StreamRequest, kind: str) -> dict[str, object]:
        name = {"id": request.request_id, "object": kind}
        return {**name, "created": int(time.time()), "model": self._site.model}

    def _event(self, document: object) -> None:
        data = document if isinstance(document, str) else json.dumps(document)
        event = f"data: {data}\n\n".encode()
        self.wfile.write(f"{len(event):x}\r\n".encode() + event + b"\r\n")

    def _send(self, status: int, document: object, retry_after_s: float = 0.0) -> None:
        data = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if retry_after_s:
            self.send_header("Retry-After", str(max(1, round(retry_after_s))))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(data)


def _read(data: bytes, model: str) -> _Body:
    try:
        body = _Body.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "the request"
        raise _Refused(400, f"{place}: {first['msg']}") from None
    if body.model != model:
        shown = quoted(body.model)
        raise _Refused(404, f"there is no model {shown}: {quoted(model)} is served")
    return body


def _request(request_id: str, body: _Body, heeds_system: bool) -> StreamRequest:
    try:
        messages = [ChatMessage(message.role, message.content) for message in body.messages]
        return StreamRequest(
            request_id,
            "cloud",
            tuple(m for m in messages if heeds_system or m.role != "system" or asks_plan_sketch(m)),
            max_tokens=body.max_completion_tokens or body.max_tokens or 256,
            temperature=body.temperature,
            seed=body.seed,
        )
    except RequestError as error:
        raise _Refused(400, str(error)) from None


def _refusal(code: ErrorCode, message: str, retry_after_s: float) -> _Refused:
    return _Refused(_STATUS.get(code, 500), message, retry_after_s)


def _refused(result: Result) -> _Refused:
    return _refusal(result.error_code, result.error_msg, result.retry_after_s)


def _choice(delta: dict[str, object], reason: str | None = None) -> dict[str, object]:
    return {"index": 0, "delta": delta, "finish_reason": reason}


def _reason(result: StreamResult) -> str:
    return "length" if result.cut else "stop"


def _usage(result: StreamResult) -> dict[str, int]:
    prompt, said = result.prompt_tokens, result.generated_tokens
    return {
        "prompt_tokens": prompt,
        "completion_tokens": said,
        "total_tokens": prompt + said,
    }


class Answers:
    """Serves conversations on an engine by continuous batching, as clouds do.

    Args:
        make_engine: makes the engine, in the thread that runs it.
        most: most answers at a time.
    """

    def __init__(self, make_engine: Callable[[], Engine], most: int = 64) -> None:
        self._answers: dict[str, AnswerQueue] = {}
        self._lock = threading.Lock()
        clock = WallClock()
        self._server = Server(
            lambda: Loop(make_engine(), Stream(), clock, timeouts=Timeouts(math.inf)),
            self,
            clock,
            RequestLimits(max_requests=most, max_requests_per_agent=most),
        )
        self._server.wait_ready()

    def begin(self, request: StreamRequest) -> AnswerQueue:
        """Begin an answer.

        Raises:
            Rejected: it is refused, and why.
        """
        answer: AnswerQueue = queue.SimpleQueue()
        with self._lock:
            self._answers[request.request_id] = answer
        try:
            self._server.submit(request)
        except BaseException:
            self._forget(request.request_id)
            raise
        return answer

    def cancel(self, request_id: str) -> None:
        """Give an answer up; one that has ended is not an error."""
        self._server.cancel(request_id)

    def close(self) -> None:
        """End all answers and free the engine."""
        self._server.close()

    def _forget(self, request_id: str) -> AnswerQueue | None:
        with self._lock:
            return self._answers.pop(request_id, None)

    # The sink of the server.

    def accepted(self, request: Request) -> None:
        """Take a request; see `ServerSink.accepted`."""

    def segment(self, segment: Segment) -> None:
        """Take a segment: conversations have none."""

    def chunk(self, chunk: StreamChunk) -> None:
        """Pass a chunk on to its answer."""
        answer = self._answers.get(chunk.request_id)
        if answer is not None:
            answer.put(chunk)

    def ended(self, result: Result) -> None:
        """Pass a result on to its answer."""
        answer = self._forget(result.request_id)
        if answer is not None and isinstance(result, StreamResult):
            answer.put(result)

    def stepped(self, result: StepResult) -> None:
        """Take a step; see `Sink.stepped`."""
