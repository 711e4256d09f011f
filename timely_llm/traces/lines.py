"""A trace as JSON lines, in files and in bags: a header, then a line for each request."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, fields
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from timely_llm.core.documents.problems import field_problem
from timely_llm.core.errors import RequestError
from timely_llm.core.time_utility import TimeUtility
from timely_llm.traces.model import Conversation, Job, SkillTime, Trace, TraceError, printable

VERSION = 1
"""Version of the format. It rises with each change that older readers cannot read."""

MAX_LINE_BYTES = 262_144
MAX_REQUESTS = 200_000
MAX_DETAILS = 2_000_000
"""Most skill times and segments of all jobs together."""

TracedRequest = Job | Conversation


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Header(_Line):
    """The name of a trace, and the numbers of lines that follow: readers detect a cut trace."""

    kind: Literal["trace"]
    version: int
    name: str
    source: str
    jobs: int
    conversations: int


class _TimeUtility(_Line):
    beta: float
    alpha: float
    ert_s: float


class _JobLine(_Line):
    kind: Literal["job"]
    id: str
    arrival_s: float
    agent: str
    task: str
    skill_set: str
    text: str
    time_utility: _TimeUtility
    skill_times: list[tuple[str, float]] = []
    plan: str = ""
    segment_tokens: list[int] = []
    given: bool = False

    def request(self) -> Job:
        """Return the job of the line."""
        values: dict[str, Any] = {name: getattr(self, name) for name in _JOB}
        values["time_utility"] = TimeUtility(**self.time_utility.model_dump())
        values["skill_times"] = tuple(SkillTime(*pair) for pair in self.skill_times)
        values["segment_tokens"] = tuple(self.segment_tokens)
        return Job(**values)


class _ConversationLine(_Line):
    kind: Literal["conversation"]
    id: str
    arrival_s: float
    agent: str
    prompt_tokens: int
    output_tokens: int
    ttft_s: float = 1.0
    tpot_s: float = 0.125
    deadline_s: float = math.inf
    weight: float = 1.0
    text: str = ""
    max_tokens: int = 0

    def request(self) -> Conversation:
        """Return the conversation of the line."""
        return Conversation(**self.model_dump(exclude={"kind"}))


_JOB = [field.name for field in fields(Job)]
_AnyLine = Annotated[_Header | _JobLine | _ConversationLine, Field(discriminator="kind")]
_ADAPTER: TypeAdapter[_Header | _JobLine | _ConversationLine] = TypeAdapter(_AnyLine)


def in_order(trace: Trace) -> list[TracedRequest]:
    """Return a trace's jobs and conversations in order of arrival."""
    return sorted((*trace.jobs, *trace.conversations), key=lambda request: request.arrival_s)


def header_line(trace: Trace) -> str:
    """Return the first line of a trace."""
    return _json(
        {
            "kind": "trace",
            "version": VERSION,
            "name": trace.name,
            "source": trace.source,
            "jobs": len(trace.jobs),
            "conversations": len(trace.conversations),
        }
    )


def request_line(request: TracedRequest) -> str:
    """Return the line of a request.

    Raises:
        TraceError: the line is longer than a reader takes.
    """
    values: dict[str, Any] = {"kind": "job" if isinstance(request, Job) else "conversation"}
    values.update(asdict(request))
    if isinstance(request, Job):
        values["skill_times"] = [(t.skill, t.seconds) for t in request.skill_times]
        if not request.given:  # older readers refuse the field
            del values["given"]
    elif request.deadline_s == math.inf:  # JSON has no infinity
        del values["deadline_s"]
    line = _json(values)
    if len(line.encode()) > MAX_LINE_BYTES:
        raise TraceError(f"{request.id} would take more than {MAX_LINE_BYTES} bytes of a trace")
    return line


def read_lines(lines: Iterable[str | bytes], source: str) -> Trace:
    """Return the trace of some lines.

    Args:
        lines: the header, then a line for each request; none longer than `MAX_LINE_BYTES`.
        source: name of the lines in errors, such as a path.

    Raises:
        TraceError: the lines are not a whole trace, or have more than `MAX_REQUESTS` requests. The
            sentence names the line.
    """
    numbered = enumerate(lines, start=1)
    header = _header(numbered, source)
    requests: list[TracedRequest] = []
    details = 0
    for number, line in numbered:
        place = f"{source}, line {number}"
        request = _request(line, place)
        requests.append(request)
        if isinstance(request, Job):
            details += len(request.skill_times) + len(request.segment_tokens)
        if len(requests) > MAX_REQUESTS or details > MAX_DETAILS:
            raise TraceError(
                f"{place}: a trace may have {MAX_REQUESTS} requests and {MAX_DETAILS} skill times"
                " and segments; this one has more"
            )
    jobs = tuple(request for request in requests if isinstance(request, Job))
    conversations = tuple(request for request in requests if isinstance(request, Conversation))
    if (len(jobs), len(conversations)) != (header.jobs, header.conversations):
        raise TraceError(
            f"{source} has {len(jobs)} jobs and {len(conversations)} conversations, its header"
            f" says {header.jobs} and {header.conversations}: lines are missing or too many"
        )
    try:
        return Trace(header.name, header.source, jobs, conversations)
    except TraceError as error:
        raise TraceError(f"{source}: {error}") from error


def _header(numbered: Iterator[tuple[int, str | bytes]], source: str) -> _Header:
    number, line = next(numbered, (0, ""))
    if not number:
        raise TraceError(f"{source} is empty: the first line of a trace is its header")
    try:
        version = json.loads(line)["version"]
    except (ValueError, TypeError, KeyError, RecursionError):
        version = VERSION
    if version != VERSION:
        raise TraceError(
            f"{source} is a trace of version {str(version)[:20]!r}, this reads version {VERSION}"
        )
    header = _parsed(line, f"{source}, line {number}")
    if not isinstance(header, _Header):
        raise TraceError(f"{source}, line {number}: the first line of a trace is its header")
    return header


def _request(line: str | bytes, place: str) -> TracedRequest:
    parsed = _parsed(line, place)
    if isinstance(parsed, _Header):
        raise TraceError(f"{place}: a second header, where a job or a conversation was expected")
    try:
        return parsed.request()
    except (TraceError, RequestError) as error:
        raise TraceError(f"{place}: {error}") from error


def _parsed(line: str | bytes, place: str) -> _Header | _JobLine | _ConversationLine:
    try:
        return _ADAPTER.validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path = ".".join(str(part) for part in first["loc"][1:])
        where = f" at {printable(path)[:80]}" if path else ""
        raise TraceError(f"{place}{where}: {printable(field_problem(first))[:200]}") from error


def _json(values: dict[str, Any]) -> str:
    return json.dumps(values, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
