"""The executable `talkers`: simulated people in conversation with the server, in one process."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from typing import Protocol

from rclpy.executors import Executor

from timely_llm.action import Converse
from timely_llm.core.events.log import EventLog
from timely_llm.core.events.schema import AnsweredEvent, HeardEvent, PersonEvent, QuestionEvent
from timely_llm.core.request import (
    MAX_TOKENS,
    ErrorCode,
    ExecutionReport,
    ReportState,
    RequestMode,
    StreamChunk,
    StreamRequest,
    StreamResult,
)
from timely_llm.resources import resource
from timely_llm.robots.people import Person, people
from timely_llm.robots.questions import load_question_set
from timely_llm.ros.client.node import TalkNode
from timely_llm.ros.conversions import STREAM_REQUEST
from timely_llm.ros.fleet.agents import (
    ALIVE_PERIOD_S,
    DRAIN_S,
    LOG,
    MODE,
    SEED,
    SERVER_TIMEOUT,
    AgentsNode,
    run,
    waiting_for,
)
from timely_llm.ros.parameters import SERVER, NodeParameter

TICK_S = 0.1
FAREWELL_S = 1.0
SILENCE_S = 30.0
"""A person hangs up when no chunk came for this time, seconds."""
PARAMETERS = (
    NodeParameter("people", 4, "simulated people; every other one hears, the others read", 1, 512),
    NodeParameter("duration_s", 60.0, "seconds in which they ask", 0.1, 1e6),
    SEED,
    SERVER,
    NodeParameter("pause_s", 2.0,
              "mean seconds from the last word of an answer, as it is heard or read, to the next"
              " question", 0.0, 3600.0),
    NodeParameter("max_tokens", 160, "most tokens of an answer", 1, MAX_TOKENS),
    NodeParameter("temperature", 0.7, "0: always the most likely token", 0.0, 2.0),
    NodeParameter("questions", "", "question set file; empty: small talk"),
    MODE,
    LOG,
    SERVER_TIMEOUT,
)  # fmt: skip


class PersonLink(Protocol):
    """The part of a client that a person needs."""

    def ask(self, request: StreamRequest, slo_class: str, talker: Talker) -> None:
        """Send a request of a service level; its chunks and result go to the talker."""
        ...

    def cancel(self, request_id: str) -> None:
        """End a request."""
        ...

    def report(self, report: ExecutionReport) -> None:
        """Send a report, such as a sign of life."""
        ...


class Talker:
    """A simulated person, and the open request.

    Args:
        person: chooses questions and their times.
        link: sends requests to the server.
        event_log: takes the person's events.
        clock: returns the time, seconds.
        max_tokens, temperature, mode: of each answer.
    """

    def __init__(
        self, person: Person, link: PersonLink, event_log: EventLog, clock: Callable[[], float],
        max_tokens: int, temperature: float, mode: RequestMode = RequestMode.DIRECT,
    ) -> None:  # fmt: skip
        self._person = person
        self._link = link
        self._event_log = event_log
        self._clock = clock
        self._max_tokens = max_tokens
        self._temperature = temperature
        self._mode = mode
        self._count = 0
        self._request: StreamRequest | None = None
        self._received = ""
        self._alive_s = self._last_s = -math.inf
        manner = person.manner
        event_log.write(PersonEvent(clock(), person.agent, manner.slo_class, manner.words_per_s))

    @property
    def agent(self) -> str:
        """Name of the person."""
        return self._person.agent

    @property
    def request_id(self) -> str:
        """Id of the open request; empty: there is none."""
        return self._request.request_id if self._request else ""

    @property
    def wake_s(self) -> float:
        """When the next question is due; infinite: none is."""
        return self._person.next_s

    def tick(self, asks: bool) -> None:
        """Send a due sign of life, hang up if the answer is overdue, and ask if `asks` is true."""
        now = self._clock()
        if self._request is None:
            if asks and now >= self._person.next_s:
                self._ask(now)
            return
        if now >= self._alive_s + ALIVE_PERIOD_S:
            self._alive_s = now
            self._link.report(ExecutionReport("", self._person.agent, ReportState.ALIVE))
        if now >= self._last_s + SILENCE_S:
            self._link.cancel(self.request_id)
            reason = f"nothing came for {SILENCE_S:g} s"
            self.finish(self._request.refused(ErrorCode.NO_ANSWER, reason))

    def offer(self, chunk: StreamChunk) -> None:
        """Take a chunk of an answer."""
        if chunk.request_id == self.request_id:
            self._receive(chunk.index, chunk.text, chunk.part)

    def finish(self, result: StreamResult) -> None:
        """Take the result of the open request; other results change nothing."""
        if result.request_id != self.request_id:
            return
        # The result may come before the last chunks.
        if len(result.text) > len(self._received):
            self._receive(result.generated_tokens - 1, result.text[len(self._received) :])
        self._request = None
        self._person.take(result, self._clock())
        self._event_log.write(AnsweredEvent(
            self._clock(), id=result.request_id, agent=result.agent,
            outcome=_outcome(result.error_code), error_code=int(result.error_code),
            error_msg=result.error_msg, ttft_s=round(result.ttft_s, 6),
            tpot_s=round(result.tpot_s, 6), largest_gap_s=round(result.largest_gap_s, 6),
            completion_s=round(result.completion_s, 6), slo_met=result.slo_met,
            stalls=self._person.stalls, stalled_s=round(self._person.stalled_s, 6),
            tokens=result.generated_tokens, cut=result.cut, kept_tokens=result.kept_tokens,
            recomputed_tokens=result.recomputed_tokens,
            helped=result.mode_used is RequestMode.PROGRESSIVE,
            cloud_tokens=result.cloud_tokens, cloud_s=round(result.cloud_time_s, 6),
            fallback=result.fallback,
        ))  # fmt: skip

    def cancel(self) -> None:
        """Cancel the open request; its result comes as of any other."""
        if self._request is not None:
            self._link.cancel(self.request_id)

    def lose(self, reason: str) -> None:
        """End the open request: its server is gone, or has forgotten it."""
        if self._request is not None:
            self.finish(self._request.refused(ErrorCode.SHUTTING_DOWN, reason))

    def hang_up(self) -> None:
        """End the open request without its result."""
        if self._request is not None:
            self.finish(self._request.refused(ErrorCode.CANCELED, "the talkers ended"))

    def _ask(self, now: float) -> None:
        person, asked = self._person, self._person.ask()
        self._count += 1
        self._request = StreamRequest(
            f"{person.agent}-{self._count}", person.agent, asked.messages,
            conversation=asked.conversation, turn=asked.turn,
            words_per_s=person.manner.words_per_s, max_tokens=self._max_tokens,
            temperature=self._temperature, seed=asked.seed, mode=self._mode,
        )  # fmt: skip
        self._received, self._alive_s, self._last_s = "", -math.inf, now
        self._event_log.write(
            QuestionEvent(
                now, self.request_id, person.agent, asked.text, person.manner.slo_class,
                asked.conversation, asked.turn, self._mode.name.lower() if self._mode else "",
            )
        )  # fmt: skip
        self._link.ask(self._request, person.manner.slo_class, self)

    def _receive(self, index: int, text: str, part: int = 0) -> None:
        now = self._last_s = self._clock()
        self._received += text
        self._person.receive(text, now)
        self._event_log.write(HeardEvent(now, self.request_id, index, text, part))


def _outcome(code: ErrorCode) -> str:
    """Return in one word how an answer ended."""
    words = {
        ErrorCode.NONE: "answered",
        ErrorCode.CANCELED: "canceled",
        ErrorCode.UNKNOWN_CONVERSATION: "forgotten",
        ErrorCode.BUSY: "refused",
    }
    return words.get(code, "error")


class TalkersLink(TalkNode):
    """Sends the requests of many people to one server, and passes on the answers."""

    def __init__(self, server: str, namespace: str) -> None:
        self._by_agent: dict[str, Talker] = {}
        super().__init__(
            server, namespace, None, lambda request_id: waiting_for(request_id, self._by_agent)
        )

    def ask(self, request: StreamRequest, slo_class: str, talker: Talker) -> None:
        """Send a request of a service level; its chunks and result go to the talker."""
        self._by_agent[talker.agent] = talker
        level = {"slo_class": slo_class, "weight": 0.0}
        goal = Converse.Goal(**(STREAM_REQUEST.fields(request) | level))
        self.send(goal, request, talker)


class Talkers(AgentsNode):
    """Lets people ask for a while, and ends when their questions are answered.

    Args:
        collector: takes all events, beside the file of the parameter `log`.
    """

    def __init__(self, collector: EventLog) -> None:
        super().__init__("talkers", PARAMETERS, collector)
        values = self.values
        self._questions = load_question_set(
            values["questions"] or resource("config/questions/small_talk.yaml")
        )
        self.link = TalkersLink(values["server"], self.get_namespace())
        self._talkers: list[Talker] = []
        self._end_s = 0.0

    def begin(self, executor: Executor) -> None:
        """Wait for the server, then let the people begin; raises as `AgentsNode.begin`."""
        values = self.values
        self.link.find(values["server_timeout_s"])
        now = time.monotonic()
        self._end_s = now + values["duration_s"]
        self._talkers = [
            Talker(
                person, self.link, self.event_log, time.monotonic, values["max_tokens"],
                values["temperature"], RequestMode[values["mode"].upper()],
            )
            for person in people(
                values["people"], self._questions, values["seed"], values["pause_s"], now
            )
        ]  # fmt: skip
        self.get_logger().info(f"{values['people']} people ask for {values['duration_s']:g} s")

    def tick(self) -> bool:
        """Let people ask, and pass on their answers; return whether there is more to do."""
        link = self.link
        self._check_server(link.watch, self._talkers, link.tick(), lambda: link.server_is_there)
        now = time.monotonic()
        asks = now < self._end_s
        can_ask = asks and self.link.watch.fits
        for talker in self._talkers:
            talker.tick(can_ask)
        due_s = min(talker.wake_s for talker in self._talkers) if can_ask else now + TICK_S
        self.link.spin(min(max(due_s - now, 0.0), TICK_S))
        return asks or (self._busy() and now < self._end_s + DRAIN_S)

    def stop(self, executor: Executor) -> None:
        """Cancel all open requests, and wait a moment for their results."""
        for talker in self._talkers:
            talker.cancel()
        end_s = time.monotonic() + FAREWELL_S
        while self._busy() and time.monotonic() < end_s:
            self.link.spin(TICK_S)
        for talker in self._talkers:
            talker.hang_up()
        self.link.close()

    def _busy(self) -> bool:
        return any(talker.request_id for talker in self._talkers)


def main(args: list[str] | None = None, collector: EventLog | None = None) -> int:
    """Run the people until they have finished or are interrupted; return the exit status."""
    return run("talkers", Talkers, args, collector)


if __name__ == "__main__":
    sys.exit(main())
