"""The executable `talkers`: simulated people in conversation with the server, in one process."""

from __future__ import annotations

import sys
import time

from timely_llm.action import Converse
from timely_llm.core.echo import quoted
from timely_llm.core.errors import ConfigurationError
from timely_llm.core.journal import FileJournal, Journal, NoJournal
from timely_llm.core.request import MAX_TOKENS
from timely_llm.core.stream import StreamRequest
from timely_llm.resources import resource
from timely_llm.robots.people import people
from timely_llm.robots.questions import load_question_set
from timely_llm.ros.guarded import Guarded
from timely_llm.ros.parameters import Parameter, declare
from timely_llm.ros.rcl_errors import reason
from timely_llm.ros.spinning import executor_of, exit_status, ros, spin, undisturbed
from timely_llm.ros.stream_conversions import request_fields
from timely_llm.ros.talk_node import TalkNode
from timely_llm.ros.talker import Talker

DRAIN_S = 15.0
TICK_S = 0.1
FAREWELL_S = 1.0
PARAMETERS = (
    Parameter("people", 4, "simulated people; every other one hears, the others read", 1, 512),
    Parameter("duration_s", 60.0, "seconds in which they ask", 0.1, 1e6),
    Parameter("seed", 0, "seed of everything random", 0, 2**31 - 1),
    Parameter("server", "plan_server", "name of the plan server's node"),
    Parameter("pause_s", 2.0,
              "mean seconds from the last word of an answer, as it is heard or read, to the next"
              " question", 0.0, 3600.0),
    Parameter("max_tokens", 160, "most tokens of an answer", 1, MAX_TOKENS),
    Parameter("temperature", 0.7, "0: always the most likely token", 0.0, 2.0),
    Parameter("questions", "", "question set file; empty: small talk"),
    Parameter("log", "", "write what happens to this file as JSON lines; empty: do not"),
    Parameter("server_timeout_s", 60.0, "seconds to wait for the plan server", 0.1, 3600.0),
)  # fmt: skip


class TalkersLine(TalkNode):
    """The requests of many people at one server, and what comes of them."""

    def __init__(self, server: str, namespace: str) -> None:
        self._open: dict[str, Talker] = {}
        super().__init__(server, namespace, None, lambda request_id: self._open.get(request_id))

    def ask(self, request: StreamRequest, slo_class: str, talker: Talker) -> None:
        """Send a request of a service level; what comes of it goes to the talker."""
        self._open = {t.request_id: t for t in (*self._open.values(), talker) if t.request_id}
        goal = Converse.Goal(**(request_fields(request) | {"slo_class": slo_class, "weight": 0.0}))
        self.send(goal, request, talker)


class Talkers(Guarded):
    """Lets people ask, and ends when they have asked long enough and been answered."""

    def __init__(self) -> None:
        super().__init__("talkers")
        self._values = values = declare(self, PARAMETERS)
        self._questions = load_question_set(
            values["questions"] or resource("config/questions/small_talk.yaml")
        )
        self._journal: Journal = FileJournal(values["log"]) if values["log"] else NoJournal()
        try:
            self.line = TalkersLine(values["server"], self.get_namespace())
        except Exception as error:  # rclpy has a different one for each way to be wrong
            raise ConfigurationError(
                f"cannot make a client of {quoted(values['server'])}: {reason(error)}"
            ) from error
        self._talkers: list[Talker] = []
        self._end_s = 0.0

    def begin(self) -> None:
        """Wait for the server, then let the people begin.

        Raises:
            ConfigurationError: the server is not there in time.
        """
        values = self._values
        self.line.find(values["server_timeout_s"])
        now = time.monotonic()
        self._end_s = now + values["duration_s"]
        self._talkers = [
            Talker(
                person, self.line, self._journal, time.monotonic, values["max_tokens"],
                values["temperature"],
            )
            for person in people(
                values["people"], self._questions, values["seed"], values["pause_s"], now
            )
        ]  # fmt: skip
        self.get_logger().info(f"{values['people']} people ask for {values['duration_s']:g} s")

    def tick(self) -> bool:
        """Let people ask and take what has come for them; return whether there is more to do."""
        now = time.monotonic()
        asks = now < self._end_s
        for talker in self._talkers:
            talker.tick(asks)
        due_s = min(talker.wake_s for talker in self._talkers) if asks else now + TICK_S
        self.line.spin(min(max(due_s - now, 0.0), TICK_S))
        return asks or (self._busy() and now < self._end_s + DRAIN_S)

    def stop(self) -> None:
        """Cancel what is open, and wait a moment until the server has said so."""
        for talker in self._talkers:
            talker.cancel()
        end_s = time.monotonic() + FAREWELL_S
        while self._busy() and time.monotonic() < end_s:
            self.line.spin(TICK_S)
        for talker in self._talkers:
            talker.hang_up()
        self.line.close()

    def _busy(self) -> bool:
        return any(talker.request_id for talker in self._talkers)


def main(args: list[str] | None = None) -> int:
    """Run the people until they have finished or are interrupted; return the exit status."""

    def work() -> None:
        with ros(args):
            talkers = Talkers()
            with executor_of() as executor:
                executor.add_node(talkers)
                try:
                    talkers.begin()
                    spin(executor, talkers.tick, poll_s=lambda: 0.0)
                finally:
                    with undisturbed():
                        talkers.stop()

    return exit_status("talkers", work)


if __name__ == "__main__":
    sys.exit(main())
