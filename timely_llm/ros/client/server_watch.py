"""A server as its clients see it: its interface, and whether it is alive."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from rcl_interfaces.msg import ParameterType
from rcl_interfaces.srv import GetParameters
from rclpy.event_handler import SubscriptionEventCallbacks
from rclpy.node import Node
from std_msgs.msg import UInt32

from timely_llm import srv
from timely_llm.core.errors import ConfigurationError
from timely_llm.core.text import quoted
from timely_llm.ros import interface_number
from timely_llm.ros.identity.messages import CHALLENGE
from timely_llm.ros.identity.server_check import ServerCheck, unchecked
from timely_llm.ros.interface_number import PARAMETER, REPLACES_PLANS, RESUMES, SILENCE_S

GRACE_S = 0.4
"""Wait after a server's lease ran out, seconds: the client itself may have been stopped."""
FAREWELL_S = 0.2
"""Wait for the last messages of a server that has left, seconds."""
UNSEEN_S = 3.0
"""A server that answered and shows no liveliness for this time has died, seconds."""
PAUSE_S = 1.0
"""A client that did not look for this time was stopped itself, seconds."""
PROOF_S = 3.0
"""Time in which a server can refute by a signed answer what another node says of it, seconds."""


class Liveness:
    """Decides whether one server is lost, from DDS liveliness. Pure logic.

    Args:
        server: full name of its node.
        silence_s: lease after which a silent server is not alive, seconds.

    Attributes:
        known: the server answered, and was not lost since.
        gone: the server was lost, and no other one has shown itself since.
    """

    def __init__(self, server: str, silence_s: float) -> None:
        self._server = server
        self._silence_s = silence_s
        self._alive = 0
        self._seen = False
        self._deadline_s = math.inf
        self._reason = ""
        self._looked_s = -math.inf
        self.known = self.gone = False

    def answered(self, now: float) -> None:
        """Record that the server answered a question."""
        self.known = True
        if not self._alive and self._deadline_s == math.inf:
            self._doubt(now + UNSEEN_S, self._died())

    def changed(self, alive: int, alive_change: int, not_alive_change: int, now: float) -> bool:
        """Record a change of liveliness; return whether it may be another server now.

        Args:
            alive: number of live servers of this name. Fast DDS may take a server of the reader's
                own process off it twice, so it can be too low.
            alive_change: its change.
            not_alive_change: change of the number of servers that fell silent.
            now: seconds on the clock of the other calls.
        """
        self._alive = max(alive, alive_change, 0)
        if self._alive:
            self.gone = False
            news, self._seen = self._seen, True
            self._deadline_s = math.inf
            return news
        if alive_change < 0 and not_alive_change > 0:
            self._doubt(now + GRACE_S, self._died())
        elif alive_change < 0:
            self._doubt(now + FAREWELL_S, f"the server {self._server} has stopped")
        return False

    def lost(self, now: float) -> str:
        """Return why the server is lost, once; empty: it is not, or was not known."""
        paused = now - self._looked_s > PAUSE_S
        self._looked_s = now
        if paused and self._deadline_s < math.inf:
            self._deadline_s = max(self._deadline_s, now + self._silence_s)
        if now < self._deadline_s:
            return ""
        self._deadline_s = math.inf
        known, self.known, self._seen, self.gone = self.known, False, False, True
        return self._reason if known else ""

    def _doubt(self, deadline_s: float, reason: str) -> None:
        self._deadline_s, self._reason = deadline_s, reason

    def _died(self) -> str:
        return (
            f"the server {self._server} died or cannot be reached (no sign of life for"
            f" {self._silence_s:g} s)"
        )


class Suspicion:
    """Unsigned answers that say that a client with a key cannot use its server. Pure logic.

    Any node can send one. It counts only if the server's own answer does not come in time.
    """

    def __init__(self) -> None:
        self._problem = ""
        self._since_s = self._looked_s = -math.inf

    def rises(self, problem: str, now: float) -> None:
        """Record the problem of an unsigned answer: the first one's time, and the last's words."""
        if not self._problem:
            self._since_s = now
        self._problem = problem

    def clear(self) -> None:
        """Record that the server has proven itself."""
        self._problem = ""

    def confirmed(self, now: float) -> str:
        """Return the problem if no proof came in time; else empty. Call it often in a search."""
        if now > self._looked_s + PROOF_S:
            self._problem = ""  # the search begins
        self._looked_s = now
        return self._problem if now >= self._since_s + PROOF_S else ""


MOST_QUESTIONS = 64
"""Most open questions; the oldest one is dropped for a new one."""
ANSWER_S = 0.5
"""Period of questions to a server that discovery has just found: it may lose one. Seconds."""
OLD_S = 1.0
"""A server with only its parameters found for this time may be of an old release, seconds."""


class ServerWatch:
    """Watches one server, in the thread of a client's node.

    With a key, the client believes only an answer of `get_identity` that the server signed for this
    question. What other answers say of the server counts when such an answer does not come.

    Args:
        node: the client's.
        server: name of the server's node.
        on_news: called when another server may have replaced it, which knows no request.
        check: of the server's signatures; None: the client has no key.

    Attributes:
        fits: the server answered, has not left or fallen silent since, has the client's interface,
            and the key of the client's agent if that has one.
        challenge: of the server that answered last; empty: it checks no keys.
        resumes: requests that are open at its end go on at the next server.
        replaces_plans: it may give a plan a newer epoch although its robot reported no failure.
    """

    def __init__(
        self,
        node: Node,
        server: str,
        on_news: Callable[[], None],
        check: ServerCheck | None = None,
    ) -> None:
        self._node = node
        self._check = check or unchecked()
        self._name = server
        self.server = node.resolve_service_name(server)
        self.fits = self.resumes = self.replaces_plans = False
        self.challenge = ""
        self._on_news = on_news
        self._liveness = Liveness(self.server, SILENCE_S)
        self._questions: deque[Any] = deque()
        self._client: Any = None
        self._identity: Any = None  # only of a client with a key
        self._proofs: deque[Any] = deque()
        self._suspicion = Suspicion()
        self._part_s = math.inf  # since when only a part of the server is found
        self._ask_s = -math.inf
        self._problem = ""
        self._subscription = node.create_subscription(
            UInt32, interface_number.TOPIC.replace("~", server, 1), lambda _: None,
            interface_number.lively(SILENCE_S),
            event_callbacks=SubscriptionEventCallbacks(
                liveliness=self._on_liveliness, use_default_callbacks=False
            ),
        )  # fmt: skip
        self.renew()

    def close(self) -> None:
        """Free what belongs to the watch; it cannot be used any more."""
        self._node.destroy_subscription(self._subscription)
        for client in (self._client, self._identity):
            if client is not None:
                self._node.destroy_client(client)

    def renew(self) -> None:
        """Replace the service clients that ask: they must be the node's last readers.

        Readers become known in order, so a server that answers the last one knows all of them.
        """
        for client in (self._client, self._identity):
            if client is not None:
                self._node.destroy_client(client)
        self._questions.clear()
        self._proofs.clear()
        self._client = self._node.create_client(GetParameters, f"{self._name}/get_parameters")
        if self._check.agent:
            name = f"{self._name}/get_identity"
            self._identity = self._node.create_client(srv.GetIdentity, name)

    def find(self, there: Callable[[], bool]) -> bool:
        """Go on looking for the server, if need be; return whether it is found. Call it often.

        Args:
            there: returns whether all that the client uses of a server is found.

        Raises:
            ConfigurationError: the server has another interface.
        """
        if self._problem:
            raise ConfigurationError(self._problem)
        now = time.monotonic()
        # What a server that died has left in the graph is there for a while.
        found = not self._liveness.gone and there()
        if not self.fits and now >= self._ask_s and self._look(found, self._answered):
            self._ask_s = now + ANSWER_S
        return self.fits

    def _answered(self, problem: str) -> None:
        self._problem = problem

    def look(self, there: bool, answered: Callable[[str], None]) -> bool:
        """Ask for the interface's number; return whether there is a server to ask.

        A server that is starting has only its parameters. One that stays so may be of an old
        release: then an answer that says so is passed on.

        Args:
            there: all that the client uses of a server is found.
            answered: takes the reason why the client cannot use the server; empty: it can.
        """
        problem = self._suspicion.confirmed(time.monotonic())
        if problem:
            self.fits = False
            answered(problem)
            answered = _hear_nothing
        return self._look(there, answered) or bool(problem)

    def _look(self, there: bool, answered: Callable[[str], None]) -> bool:
        now = time.monotonic()
        if not self._client.service_is_ready():
            self._part_s = math.inf
            return False
        self._part_s = math.inf if there else min(self._part_s, now)
        if not there and now < self._part_s + OLD_S:
            return False
        if self._check.agent:
            self._ask_for_proof(there, answered)
        else:
            self._ask(there, answered)
        return True

    def _ask_for_proof(self, there: bool, answered: Callable[[str], None]) -> None:
        """Ask for an answer that the server signed, and for the number, if it can sign none."""

        def on_number(answer: GetParameters.Response) -> None:
            problem = interface_number.problem_of(self.server, _number_in(answer))
            if problem:
                self._suspicion.rises(problem, time.monotonic())

        def on_unsigned(answer: srv.GetIdentity.Response) -> None:
            problem = _signs_nothing(self.server)
            if answer.challenge:
                problem = _proves_nothing(self.server, self._check.agent)
            self._suspicion.rises(problem, time.monotonic())

        def on_proof(answer: srv.GetIdentity.Response) -> None:
            if self._liveness.gone:
                return
            self._suspicion.clear()
            self._liveness.answered(time.monotonic())
            problem = interface_number.problem_of(self.server, answer.interface)
            self.challenge, self.resumes = answer.challenge, answer.resumes
            self.replaces_plans = answer.replaces_plans
            self.fits, self._problem = not problem, problem
            answered(problem)

        self._ask_for([PARAMETER], on_number)
        if there and self._identity.service_is_ready():
            _make_room(self._identity, self._proofs)
            asked = self._check.ask(self._identity, srv.GetIdentity.Request(), on_unsigned)
            self._proofs.append(asked)
            asked.add_done_callback(lambda future: on_proof(future.result()))

    def _ask(self, there: bool, answered: Callable[[str], None]) -> None:
        """Ask for the number, and then for what the server can.

        The next server answers for its parameters before it has anything else. What the last one
        has left in the graph looks like the rest until the next one shows its liveliness.
        """

        def on_number(answer: GetParameters.Response) -> None:
            problem = interface_number.problem_of(self.server, _number_in(answer))
            is_whole = there and not self._liveness.gone
            if is_whole:
                self._liveness.answered(time.monotonic())
            if is_whole and not problem:
                self._ask_for([RESUMES, CHALLENGE, REPLACES_PLANS], on_traits)
            elif is_whole or problem:
                self.fits = False
                answered(problem)

        def on_traits(answer: GetParameters.Response) -> None:
            if self._liveness.gone:
                return
            values = answer.values  # empty: it lacks one of them
            self.challenge = str(values[1].string_value) if values else ""
            self.resumes = bool(values and values[0].bool_value)
            self.replaces_plans = bool(values and values[2].bool_value)
            self.fits, self._problem = True, ""
            answered("")

        self._ask_for([PARAMETER], on_number)

    def _ask_for(self, names: list[str], take: Callable[[GetParameters.Response], None]) -> None:
        _make_room(self._client, self._questions)
        asked = self._client.call_async(GetParameters.Request(names=names))
        self._questions.append(asked)
        asked.add_done_callback(lambda future: take(future.result()))

    def lost(self) -> str:
        """Return why the server is lost, once; empty: it is not. Call it often."""
        sentence = self._liveness.lost(time.monotonic())
        if sentence:
            self.fits = False
            self._withdraw_proofs()
        return sentence

    def _on_liveliness(self, status: Any) -> None:
        now = time.monotonic()
        changes = status.alive_count_change, status.not_alive_count_change
        renewed = self._liveness.changed(status.alive_count, *changes, now)
        if renewed or status.alive_count <= 0:
            self.fits = False  # the next request asks again, and does not go to a server that left
        if renewed:
            self._withdraw_proofs()
            self._on_news()

    def _withdraw_proofs(self) -> None:
        """Take no answer of the last server for one of the next server."""
        _make_room(self._identity, self._proofs, 1)


def not_found(server: str, timeout_s: float) -> str:
    """Return the error of a server that did not answer."""
    return (
        f"no plan server {server} answered within {timeout_s:g} s: is it running, in the same"
        " ROS_DOMAIN_ID?"
    )


def _signs_nothing(server: str) -> str:
    """Return the error of a client with a key at a server that checks no keys."""
    return (
        f"the server {server} checks no keys and signs nothing, so any node could send in its name:"
        " start it with agent_keys, or use the client with accept_unsigned (--accept-unsigned)"
    )


def _proves_nothing(server: str, agent: str) -> str:
    """Return the error of a client with a key at a server that does not sign with this key."""
    return (
        f"the server {server} did not sign its answer with the key of the agent {quoted(agent)}: it"
        " has no key of this agent, or another one, or another node answers for it"
    )


def _hear_nothing(_: str) -> None:
    pass


def _make_room(client: Any, questions: deque[Any], most: int = MOST_QUESTIONS) -> None:
    """Drop the oldest questions until there are fewer than these."""
    while len(questions) >= most:
        client.remove_pending_request(questions.popleft())


def _number_in(answer: GetParameters.Response) -> int | None:
    """Return the number in an answer; None: there is no such parameter."""
    values = answer.values
    if values and values[0].type == ParameterType.PARAMETER_INTEGER:
        return int(values[0].integer_value)
    return None
