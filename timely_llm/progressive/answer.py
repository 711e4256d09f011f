"""One answer with help: a cloud writes its sketch, the edge expands each part, in order."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple
from uuid import uuid4

from timely_llm.cloud.prompts import answer_sketch, expansion
from timely_llm.core.errors import RequestError
from timely_llm.core.generation import StreamGeneration
from timely_llm.core.request import (
    ErrorCode,
    Rejected,
    RequestMode,
    StreamChunk,
    StreamRequest,
    StreamResult,
)
from timely_llm.core.slo import LONGEST_S, Listener, Slo
from timely_llm.progressive.helped import ENDS, HelpedRequest, Outlets
from timely_llm.progressive.settings import HelpSettings
from timely_llm.serving.pool import result_of

LEAST_TOKENS = 16
"""Least tokens of a part, if the answer has them left."""
_ENDS = ENDS | {ErrorCode.EXPIRED}
"""The listener has waited for words for as long as any request may."""
_SENTENCE = re.compile(r"[.!?:;][\"')\]]*(?=\s|$)")
_SENTENCE_ENDS = re.compile(_SENTENCE.pattern + r"\s*$")


@dataclass(eq=False)
class _Section:
    """A text of the edge: the opening, or the expansion of a part.

    Attributes:
        request_id: at the edge.
        part: number of the part, from 1; 0: the opening.
        budget: most tokens that it may have.
        made: tokens so far.
        text: of these tokens.
        complete: the edge is through with it.
    """

    request_id: str
    part: int
    budget: int
    made: int = 0
    text: str = ""
    complete: bool = False


class HelpedAnswer(HelpedRequest[StreamRequest, StreamChunk, StreamResult]):
    """One answer for which a cloud writes a sketch.

    The opening ends with its sentence when the first part has words; without a sketch it goes on to
    the end. The first part is expanded after the first sentence of the opening, and each other one
    after the part before. It is expanded beside it while the listener has words for less than
    `lead_s`. A chunk is passed on when all before it have been. A part that the edge cannot expand
    is left out.

    Args:
        request: of the client, with all messages of its conversation.
        outlets: take what is to be done.
        settings: of the help.
        now: seconds on the clock of all calls.
    """

    def __init__(
        self, request: StreamRequest, outlets: Outlets, settings: HelpSettings, now: float
    ) -> None:
        chat = answer_sketch(request.messages, settings.sketch_words)
        super().__init__(request, outlets, settings, chat, now)
        self._record = StreamGeneration(
            self.key, request, now, 0, 0, listener=Listener(request.words_per_s)
        )
        self._sections = [_Section(self.key, 0, request.max_tokens)]  # by the number of the part
        self._refused: list[_Section] = []
        self._assembly = Assembly()
        self._said = 0  # the part of which the listener got words last
        self._left = request.max_tokens  # tokens that no section of a part may have yet
        self._reserve = min(settings.opening_tokens, request.max_tokens // 2)  # of the opening

    @property
    def opening(self) -> StreamRequest:
        """The request that begins at the edge, without a mode."""
        alone = replace(self.request, mode=RequestMode.DIRECT, conversation="", turn=0)
        return replace(alone, part_of=self._name)

    @property
    def _name(self) -> str:
        """Name under which the edge keeps the prompts of the parts, and of later turns."""
        request = self.request
        return f"{request.agent}/{request.conversation}" if request.conversation else self.key

    @property
    def made_so_far(self) -> tuple[int, str]:
        """Chunks that were delivered, and their text."""
        return self.delivered, "".join(self._record.pieces)

    @property
    def delivered(self) -> int:
        """Chunks that were delivered."""
        return len(self._record.token_ids)

    def due_in_s(self, now: float) -> float:
        """Return the seconds until the next token is needed."""
        return self._record.due_s - now

    def wake_s(self, now: float) -> float:
        """Return when `tick` is needed at the latest."""
        if self.result is not None:
            return math.inf
        if self._refused:
            return self._again_s
        return now + self._spare_s(now) if self._has_more else math.inf

    def tick(self, now: float) -> None:
        """Expand the parts that the listener will need."""
        while self._refused and self.result is None and now >= self._again_s:
            self._ask(self._refused.pop(0), now)
        while self._is_due(now):
            self._expand(now)

    def made(self, what: StreamChunk, now: float) -> None:
        """Take a token of a section."""
        section = self._section(what.request_id)
        if self.result is not None or section is None or section.complete:
            return
        self._refused_s = math.inf
        section.made += 1
        section.text += what.text
        self._record.tally.generated_tokens += 1
        self._say(self._assembly.push(section.part, what.text), now)
        self._end_opening(now)
        self._go_on(now)

    def piece_ended(self, result: StreamResult, now: float) -> None:
        """Take the end of a section."""
        section = self._section(result.request_id)
        if self.result is not None or section is None:
            return
        record = self._record
        record.tally.prompt_tokens += result.prompt_tokens
        record.tally.recomputed_tokens += result.recomputed_tokens
        record.kept_tokens += result.kept_tokens
        if section.complete:
            return
        failed = result.error_code is not ErrorCode.NONE
        if failed and (not section.part or result.error_code in _ENDS):
            self.cancel(result.error_code, result.error_msg, now)
            return
        if failed:
            self._leave_out(result.error_msg)
        record.cut = result.cut and not section.part
        self._complete(section, now)
        self._go_on(now)

    def refused(self, request_id: str, error: Rejected, now: float) -> None:
        """Take the refusal of a section: it is tried again, but not for ever."""
        section = self._section(request_id)
        if self.result is None and section is not None and self._tries_again(error, now):
            self._refused.append(section)

    def cancel(self, code: ErrorCode, reason: str, now: float) -> None:
        """End all sections, and the answer."""
        if self.result is not None:
            return
        for section in self._sections:
            if not section.complete:
                self._outlets.end_part(section.request_id)
        self._end(result_of(self._record, code, reason), self._said > 0, now)

    def _sketched(self, now: float) -> None:
        self._go_on(now)

    def _sketch_over(self, broke: bool, now: float) -> None:
        if broke and self.parts:
            self._problem += f"; parts of its sketch that were expanded: {len(self.parts)}"
        self._go_on(now)

    def _section(self, request_id: str) -> _Section | None:
        found = (section for section in self._sections if section.request_id == request_id)
        return next(found, None)

    def _complete(self, section: _Section, now: float) -> None:
        section.complete = True
        self._left += (section.budget if section.part else 0) - section.made
        self._say(self._assembly.end(section.part), now)

    def _end_opening(self, now: float) -> None:
        """End the opening with its sentence if words of a part follow, or with its last token."""
        opening = self._sections[0]
        following = (one for one in self._sections[1:] if one.text or not one.complete)
        first = next(following, None)
        if opening.complete or not opening.made or first is None:
            return
        whole = opening.made >= self._reserve or _SENTENCE_ENDS.search(opening.text)
        if (first.text and whole) or opening.made >= self._left:
            self._outlets.end_part(opening.request_id)
            self._complete(opening, now)

    @property
    def _has_more(self) -> bool:
        """Whether a part waits for its expansion, and may have tokens."""
        return len(self._sections) <= len(self.parts) and self._free > 0

    @property
    def _free(self) -> int:
        """Tokens that parts may still have; the opening has some of its own."""
        opening = self._sections[0]
        kept = 0 if opening.complete else max(opening.made, self._reserve)
        return self._left - kept

    def _spare_s(self, now: float) -> float:
        """Return the seconds until the listener has words for less than the lead."""
        return self._record.listener.credit_s(now) - self._settings.lead_s

    def _is_due(self, now: float) -> bool:
        """Return whether one more part is to be expanded."""
        if self.result is not None or self._refused or not self._has_more:
            return False
        running = [section for section in self._sections if not section.complete]
        if not running:
            return True
        if len(self._sections) == 1 and _SENTENCE.search(running[0].text):
            return True  # the opening may end when the first part has words
        return len(running) < self._settings.most_parallel and self._spare_s(now) <= 0.0

    def _expand(self, now: float) -> None:
        """Give the next part to the edge."""
        number = len(self._sections)
        share = max(self._free // (len(self.parts) - number + 1), LEAST_TOKENS)
        budget = min(self._free, self._settings.part_tokens, share)
        self._left -= budget
        self._sections.append(_Section("", number, budget))
        self._ask(self._sections[-1], now)

    def _ask(self, section: _Section, now: float) -> None:
        """Ask the edge for a part; one that no request can carry is left out."""
        request, part = self.request, self.parts[section.part - 1]
        query, sketch = request.messages[-1].content, " ".join(one.text for one in self.parts)
        section.request_id = f"{self.key[:80]}~{section.part}-{uuid4().hex[:12]}"
        try:
            child = StreamRequest(
                section.request_id,
                request.agent,
                (*request.messages[:-1], *expansion(query, sketch, part.text)),
                self._slo(now),
                request.weight,
                words_per_s=request.words_per_s,
                max_tokens=section.budget,
                temperature=request.temperature,
                seed=request.seed,
                part_of=self._name,
            )
        except RequestError as error:
            self._leave_out(str(error))
            self._complete(section, now)
        else:
            self._outlets.ask_edge(self.key, child)

    def _slo(self, now: float) -> Slo:
        """Return the service level of a part: its first token is due when the words run out."""
        slo, record = self.request.slo, self._record
        credit_s = record.listener.credit_s(now)
        left_s = record.arrival_s + slo.deadline_s - now
        return replace(
            slo,
            ttft_s=min(max(credit_s, slo.ttft_s), LONGEST_S),
            deadline_s=max(left_s, slo.tpot_s) if slo.real_time else math.inf,
        )

    def _go_on(self, now: float) -> None:
        """Expand what is due, and end what is through."""
        self.tick(now)
        through = self._assembly.part == len(self._sections) and not self._has_more
        if self.result is not None or not through:
            return
        expanded = len(self._sections) - 1
        if expanded and self._cloud_open and self._free > 0:
            return  # more parts come
        self._record.cut |= expanded < len(self.parts)
        self._deliver("", expanded, now, final=True)
        self._end(result_of(self._record, ErrorCode.NONE, ""), self._said > 0, now)

    def _say(self, texts: Sequence[PartText], now: float) -> None:
        """Deliver texts; a space keeps sections apart."""
        for part, text in texts:
            if part != self._said:
                text = text.lstrip()
                if text and not "".join(self._record.pieces)[-1:].isspace():
                    text = f" {text}"
            if text:
                self._said = part
                self._deliver(text, part, now)

    def _deliver(self, text: str, part: int, now: float, final: bool = False) -> None:
        record = self._record
        index = self.request.first_token + len(record.token_ids)
        record.token_ids.append(0)  # of a listener that counts chunks
        record.pieces.append(text)
        record.token_arrived(now)
        record.listener.receive(text, now)
        self._outlets.deliver(StreamChunk(record.key, self.request.agent, index, text, final, part))


class PartText(NamedTuple):
    """Text of a part that can be shown.

    Attributes:
        part: number of the part.
        text: of it, as it was taken; not empty.
    """

    part: int
    text: str


class Assembly:
    """Holds text back until all parts before it have ended.

    Parts may come in any order and at the same time. Text of a part is shown as it comes once the
    parts before it have ended; a part that ends without text is passed over.
    """

    def __init__(self) -> None:
        self._held: dict[int, list[str]] = {}
        self._ended: set[int] = set()
        self._shown: list[str] = []
        self._next = 0
        self._parts: int | None = None

    @property
    def text(self) -> str:
        """What was shown."""
        return "".join(self._shown)

    @property
    def part(self) -> int:
        """The part that is shown now: each one before it has ended."""
        return self._next

    @property
    def done(self) -> bool:
        """Whether all parts have ended, and their number is known."""
        return self._next == self._parts

    def push(self, part: int, text: str) -> list[PartText]:
        """Take the next text of a part; return the texts that can be shown now, in order.

        Raises:
            RequestError: the part has ended, or there is no part of this number.
        """
        self._check(part)
        if text:
            self._held.setdefault(part, []).append(text)
        return self._release()

    def end(self, part: int) -> list[PartText]:
        """End a part; return the texts that can be shown now, in order.

        Raises:
            RequestError: the part has ended already, or there is no part of this number.
        """
        self._check(part)
        self._ended.add(part)
        return self._release()

    def expect(self, parts: int) -> None:
        """Set the number of parts.

        Raises:
            RequestError: text of a part beyond came before, or another number was set.
        """
        most = max((*self._held, *self._ended, self._next - 1), default=-1)
        if parts <= most or self._parts not in (None, parts):
            known = most + 1 if self._parts is None else self._parts
            raise RequestError(f"an answer with {known} parts cannot have {parts}")
        self._parts = parts

    def _check(self, part: int) -> None:
        if part < self._next or part in self._ended:
            raise RequestError(f"part {part} of the answer has ended: nothing follows")
        if self._parts is not None and part >= self._parts:
            raise RequestError(f"the answer has {self._parts} parts: part {part} is none of them")

    def _release(self) -> list[PartText]:
        shown = []
        while True:
            texts = self._held.pop(self._next, [])
            shown += [PartText(self._next, text) for text in texts]
            self._shown += texts
            if self._next not in self._ended:
                return shown
            self._ended.remove(self._next)
            self._next += 1
