"""A sink that writes to the journal before a server publishes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress

from timely_llm.core.errors import RequestError, TimelyError
from timely_llm.core.events.log import EventLog, NullEventLog
from timely_llm.core.events.run_event import RunEvent
from timely_llm.core.events.schema import AnswerEvent, EndEvent, ReplanEvent, ReportEvent
from timely_llm.core.generation import Generation, PlanGeneration
from timely_llm.core.request import (
    ErrorCode,
    PlanRequest,
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
from timely_llm.serving.conversations import Conversations
from timely_llm.serving.journal.file import JournalFile
from timely_llm.serving.journal.saved import (
    SavedRequest,
    fields_of,
    report_fields,
    segment_fields,
)
from timely_llm.serving.loop import Loop
from timely_llm.serving.server.server import Server
from timely_llm.serving.sink import ServerSink

log = logging.getLogger(__name__)


class JournalSink:
    """Passes on what a server makes, once the journal has it; its sink and its event log.

    A segment that an earlier server has recorded is passed on unless its robot reported that it
    began: the server may have ended before it was published. If it has another text now, it ends
    its request: the model, the skill set or the machine has changed.

    Args:
        journal: takes the records.
        sink: takes requests, segments and results.
        event_log: takes the events; None: there is none.
    """

    def __init__(
        self, journal: JournalFile, sink: ServerSink, event_log: EventLog | None = None
    ) -> None:
        self._journal = journal
        self._sink = sink
        self._event_log = event_log or NullEventLog()
        self._saved = dict(journal.saved)
        self._begun = {key for key, saved in self._saved.items() if saved.begun}
        self._tokens = {key: saved.tokens for key, saved in self._saved.items()}
        self._generation: Callable[[str], Generation | None] = lambda _: None
        self._skill_set: Callable[[str], str] = lambda _: ""
        self._conversations: Conversations | None = None
        self._recorded: dict[int, Segment] = {}  # that come next, by their identity

    def attach(self, server: Server, now: float) -> int:
        """Record the requests of a server from now on; its loop is made.

        The skill sets of the journal are registered, unless the server has one of that name. Its
        conversations are kept, without KV, and clients can ask for its results. Then the requests
        of the journal go on; an answer that had begun ends.

        Args:
            server: serves from now on.
            now: seconds on its clock.

        Returns:
            The number of requests that had not ended.

        Raises:
            TimelyError: the server cannot serve.
        """
        server.call(lambda loop: self.record_loop(loop, server.skill_sets.text)).result()
        for name, text in self._journal.skill_sets.items():
            if name not in server.skill_sets.names:
                try:
                    server.skill_sets.register(text, f"skill set {quoted(name)}").result()
                except TimelyError as error:
                    log.error("a skill set of the recovery journal is not registered: %s", error)
        server.earlier_results = self._journal.earlier_results(now)
        server.journal_problem = lambda: self._journal.problem
        saved = list(self._saved.values())
        plans = {s.request.request_id: s for s in saved if isinstance(s.request, PlanRequest)}
        server.call(lambda loop: loop.saved.update(plans)).result()
        for one in saved:
            refusal = self._refusal(one)
            try:
                if refusal:
                    raise Rejected(ErrorCode.ENGINE_FAILED, refusal)
                server.submit(one.request, must=True)
            except Rejected as error:
                ended = one.request.refused(error.code, str(error))
                code = error.code.name.lower()
                self._event_log.write(EndEvent(now, ended.request_id, code, str(error), ended))
                self.ended(ended)
        return len(saved)

    def record_loop(self, loop: Loop, skill_set: Callable[[str], str]) -> None:
        """Record the requests of a loop that serves nothing yet; it keeps the conversations.

        Args:
            loop: serves from now on.
            skill_set: returns the text of a skill set.
        """
        self._generation, self._skill_set = loop.generation, skill_set
        self._conversations = loop.conversations
        self._conversations.restore(self._journal.conversations.values())

    def _refusal(self, saved: SavedRequest) -> str:
        """Return why a request cannot go on; empty: it can."""
        request = saved.request
        if isinstance(request, StreamRequest) and saved.begun:
            return "the server was started again in the middle of the answer: ask again"
        if isinstance(request, PlanRequest):
            try:
                text = self._skill_set(request.skill_set)
            except RequestError as error:
                return f"the server was started again: {error}"
            if text != self._journal.skill_sets.get(request.skill_set):
                return (
                    f"the server was started again with another skill set"
                    f" {quoted(request.skill_set)}: ask again"
                )
        return ""

    # The sink.

    def coming(self, segments: Iterable[Segment]) -> None:
        """Record segments that come next with one write; later records wait for `written`."""
        self._journal.hold()
        for segment in segments:
            if segment.request_id not in self._saved:
                with suppress(Exception):  # `segment` raises it again, and ends this request
                    self._record(segment)
                    self._recorded[id(segment)] = segment
        if self._recorded:
            self._journal.flush()

    def written(self) -> None:
        """Write the records that wait."""
        self._journal.release()
        self._recorded.clear()

    def accepted(self, request: Request) -> None:
        """Pass a request on."""
        if request.request_id in self._saved:
            self._sink.accepted(request)
            return
        skill_set = None
        if isinstance(request, PlanRequest):
            skill_set = request.skill_set, self._skill_set(request.skill_set)
        self._journal.accepted(request, skill_set)
        try:
            self._sink.accepted(request)
        except BaseException:
            self._journal.ended(request.request_id)
            raise

    def segment(self, segment: Segment) -> None:
        """Record a segment and pass it on.

        Raises:
            ValueError: it was recorded with another text.
        """
        if self._recorded.pop(id(segment), None) is None:
            saved = self._saved.get(segment.request_id)
            if saved is not None and segment.epoch == saved.epoch:
                known = saved.published.get(segment.index)
                if known is not None and _is_recorded(segment, *known):
                    if segment.index > max(saved.started, saved.finished):
                        self._sink.segment(segment)
                    return
            self._record(segment)
            self._journal.flush()
        self._sink.segment(segment)

    def _record(self, segment: Segment) -> None:
        key = segment.request_id
        generation = self._generation(key)
        tokens: list[int] = []
        tally = None
        if isinstance(generation, PlanGeneration):
            tokens = generation.token_ids[self._tokens.get(key, 0) :]
            tally = generation.tally
        self._journal.write(key, segment_fields(segment, tokens, tally))
        if isinstance(generation, PlanGeneration):
            self._tokens[key] = len(generation.token_ids)

    def chunk(self, chunk: StreamChunk) -> None:
        """Pass a piece of an answer on."""
        if chunk.request_id not in self._begun:
            self._begun.add(chunk.request_id)
            self._journal.write(chunk.request_id, fields_of({"kind": "begun"}))
        self._sink.chunk(chunk)

    def ended(self, result: Result) -> None:
        """Pass an end on, then write it: one that is lost between comes twice."""
        key = result.request_id
        if isinstance(result, StreamResult):
            self._keep_conversations(key)
        try:
            self._sink.ended(result)
        finally:
            self._journal.ended(key, result)
            self._saved.pop(key, None)
            self._tokens.pop(key, None)
            self._begun.discard(key)

    def _keep_conversations(self, request_id: str) -> None:
        """Write the turn of an answer that ends, and which conversations are forgotten."""
        if self._conversations is None:
            return
        conversation = self._conversations.saved(request_id)
        if conversation is not None:
            self._journal.keep(conversation)
        if self._journal.conversations:
            self._journal.keep_only(self._conversations.names)

    def stepped(self, result: StepResult) -> None:
        """Pass a step on."""
        self._sink.stepped(result)

    # The event log.

    def write(self, event: RunEvent) -> None:
        """Write what robots reported, and pass the event on."""
        match event:
            case ReportEvent():
                self._journal.write(event.id, report_fields(event.state, event.index))
                if event.id in self._saved:
                    self._saved[event.id].reported(event.state, event.index)
            case AnswerEvent():
                value = {"kind": "value", "value": event.value}
                self._journal.write(event.id, fields_of(value))
            case ReplanEvent():
                self._write_epoch(event.id)
        self._event_log.write(event)

    def _write_epoch(self, request_id: str) -> None:
        self._tokens.pop(request_id, None)
        self._saved.pop(request_id, None)
        generation = self._generation(request_id)
        if isinstance(generation, PlanGeneration):
            epoch = {
                "kind": "epoch", "epoch": generation.epoch, "task": generation.request.task,
                "history": generation.tally.history,
            }  # fmt: skip
            self._journal.write(request_id, fields_of(epoch))

    def close(self) -> None:
        """Close the journal and the event log."""
        self.written()
        self._journal.close()
        self._event_log.close()


def _is_recorded(segment: Segment, text: str, final: bool) -> bool:
    """Return whether a segment is in the journal; the last one may come twice, longer and final.

    Args:
        segment: the segment.
        text: recorded by its number.
        final: whether it was recorded as final.

    Raises:
        ValueError: it has another text now.
    """
    if (segment.text, segment.final) == (text, final):
        return True
    if final and not segment.final and text.startswith(segment.text):
        return True
    if segment.final and not final and segment.text.startswith(text):
        return False
    raise ValueError("its plan is not the one from before the restart any more")
