"""The topic `~/load`: a server's view as a message and back, and the feed of these messages."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable

from timely_llm import msg
from timely_llm.core.clock import Clock
from timely_llm.core.errors import RequestError
from timely_llm.core.text import quoted
from timely_llm.dispatch.contract import MOST_DUE, Due, ServerView

PERIOD_S = 0.1
"""Time between two messages while nothing changes, seconds."""
LEAST_S = 0.02
"""Shortest time from a view to the question for the next one, seconds."""

Take = Callable[[msg.ServerLoad], None]


def load_message(view: ServerView, life: str, active: bool) -> msg.ServerLoad:
    """Return what a server says of itself as a message, without a stamp.

    Args:
        view: its name, its age and its round trip are left out.
        life: random text of this start of the server.
        active: the server takes requests.
    """
    return msg.ServerLoad(
        life=life,
        active=active,
        steps=[float(seconds) for seconds in view.steps_s],
        row=float(view.row_s),
        prompt_token=float(view.prefill_token_s),
        kv_tokens=view.kv_tokens,
        free_kv_tokens=view.free_kv_tokens,
        max_rows=view.max_rows,
        skill_sets=[
            msg.PinnedSkillSet(name=name, tokens=tokens) for name, tokens in view.skill_sets.items()
        ],
        kept=[
            msg.KeptConversation(agent=agent, conversation=name, tokens=tokens)
            for (agent, name), tokens in view.kept.items()
        ],
        rates=[float(rate) for rate in view.rates],
        due=[
            msg.DueSegment(
                due_in=float(one.due_in_s),
                tokens=float(one.tokens),
                weight=float(one.weight),
                grace=float(one.grace_s),
                prompt_tokens=one.prompt_tokens,
            )
            for one in view.due
        ],
        requests=[
            msg.ServedRequest(request_id=key, begun=key not in view.unstarted)
            for key in view.served or ()
        ],
    )


def server_view(
    message: msg.ServerLoad, name: str, rtt_s: float = 0.0, age_s: float = 0.0
) -> ServerView:
    """Return the view in a message.

    Args:
        message: from any node.
        name: of the server.
        rtt_s: seconds of a message to the server and back.
        age_s: seconds since the server made the message.

    Raises:
        RequestError: the view has an impossible number or too long a due list.
    """
    if len(message.due) > MOST_DUE:
        raise RequestError(
            f"the view of server {quoted(name)} has {len(message.due)} entries in its due list, at"
            f" most {MOST_DUE} are allowed"
        )
    return ServerView(
        name,
        tuple(message.steps),
        message.row,
        message.prompt_token,
        message.kv_tokens,
        message.free_kv_tokens,
        message.max_rows,
        {one.name: one.tokens for one in message.skill_sets},
        {(one.agent, one.conversation): one.tokens for one in message.kept},
        tuple(message.rates),
        tuple(
            Due(one.due_in, one.tokens, one.weight, one.grace, one.prompt_tokens)
            for one in message.due
        ),
        len(message.requests),
        frozenset(one.request_id for one in message.requests if not one.begun),
        rtt_s,
        age_s,
        tuple(one.request_id for one in message.requests),
        message.active,
    )


class LoadFeed:
    """Publishes the load once a period, and soon after a change, while a node listens.

    A view is made in the loop's thread, between two steps. In a step longer than a period the last
    message is published again, with the stamp of its view.

    Args:
        publish: publishes a message; called from this thread or the loop's.
        active: returns whether the server takes requests.
        listened: returns whether a node listens; called at most once a period or change.
        wake: makes the node call `tick` soon; called from any thread.
        clock: the time of the feed.
    """

    def __init__(
        self,
        publish: Take,
        active: Callable[[], bool],
        listened: Callable[[], bool],
        wake: Callable[[], None],
        clock: Clock,
    ) -> None:
        self._publish = publish
        self._active = active
        self._listens = listened
        self._wake = wake
        self._clock = clock
        self._lock = threading.Lock()
        self._next_s = self._view_s = 0.0
        self._listened = False
        self._begin(0)

    def _begin(self, life: int) -> None:
        self._life = life
        self._last: msg.ServerLoad | None = None
        self._waits = self._stale = False

    def restart(self) -> None:
        """Forget the last message: another loop has the requests from now on."""
        with self._lock:
            self._begin(self._life + 1)

    @property
    def wait_s(self) -> float:
        """Seconds until a message is due."""
        return max(self._next_s - self._clock.now(), 0.0)

    def changed(self) -> None:
        """Let a message be due `LEAST_S` after the last view; of any thread."""
        if not self._listened:
            return
        with self._lock:
            self._stale = self._waits  # the view that is awaited may lack the change
            soon = not self._waits and self._soon()
        if soon:
            self._wake()

    def _soon(self) -> bool:
        """Let a message be due as soon as it may be; return whether none was."""
        due_s = self._view_s + LEAST_S
        later = self._next_s > due_s
        self._next_s = min(due_s, self._next_s)
        return later

    def tick(self, ask: Callable[[Take], None]) -> None:
        """Ask for a view if a message is due and a node listens.

        Args:
            ask: asks the loop's thread for a message with a new view.
        """
        now = self._clock.now()
        if now < self._next_s:
            return
        self._listened = self._listens()
        with self._lock:
            self._next_s = now + PERIOD_S
            if not self._listened:
                return
            if self._waits:
                if self._last is not None:
                    self._publish(self._again(self._last))
                return
            self._waits, life = True, self._life
        ask(lambda message: self._made(message, life))

    def _again(self, last: msg.ServerLoad) -> msg.ServerLoad:
        made = copy.copy(last)
        made.active = self._active()
        return made

    def _made(self, message: msg.ServerLoad, life: int) -> None:
        with self._lock:
            if life != self._life:
                return
            self._last, self._waits, self._view_s = message, False, self._clock.now()
            self._publish(message)
            soon = self._stale and self._soon()
            self._stale = False
        if soon:
            self._wake()
