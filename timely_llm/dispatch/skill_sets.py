"""Skill sets of several servers: those of a dispatcher's clients reach all of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial

from timely_llm.core.errors import RequestError, TimelyError
from timely_llm.core.request import ErrorCode, Rejected, unknown_skill_set
from timely_llm.core.text import quoted
from timely_llm.dispatch.link import Link
from timely_llm.serving.limits import RequestGate
from timely_llm.serving.server.inbox import Promises, settle
from timely_llm.serving.server.registration import Read, Reading, Registered
from timely_llm.skills.skill_set import SkillSet


@dataclass(eq=False)
class _ServerAnswers:
    """The answers of several servers to one question.

    Attributes:
        awaited: servers that have not answered.
        over: called with the errors when all have.
    """

    awaited: set[str]
    over: Callable[[Sequence[str]], None]
    _errors: list[str] = field(default_factory=list)

    def take(self, server: str, error: str) -> None:
        """Take an answer, once from each server; empty: there is no error."""
        if server not in self.awaited:
            return
        self.awaited.remove(server)
        self._errors += [f"{server}: {error}"] if error else []
        if not self.awaited:
            self.over(self._errors)


class DispatchedSkillSets:
    """The skill sets that clients can name: each is at one server at least.

    A name stands for one text: the first that was read, as long as a server has it. A server with
    another text of this name gets no request that names it. A server that is started again gets
    what it had before, so that a skill set survives the restart of all servers and of dispatchers.

    Args:
        gate: lets requests in that name a known skill set.
        promises: makes the futures of clients.
        post: runs a function in the relay's thread.
        read: reads the texts, in a thread of its own.
        say: takes a sentence for the log.
    """

    def __init__(
        self,
        gate: RequestGate,
        promises: Promises,
        post: Callable[[Callable[[], None]], None],
        read: Read,
        say: Callable[[str], None],
    ) -> None:
        self._gate = gate
        self._promises = promises
        self._post = post
        self._read = read
        self._say = say
        self._of_clients, self._of_servers = Reading(), Reading()
        self._links: dict[str, Link] = {}
        self._texts: dict[str, str] = {}
        self._parsed: dict[str, SkillSet] = {}
        self._mine: dict[str, str] = {}  # texts that clients registered here
        self._has: dict[str, dict[str, str]] = {}  # texts by server and name
        self._had: dict[str, dict[str, str]] = {}  # the same, of their earlier lives
        self._asked: dict[str, set[str]] = {}
        self._unread: dict[str, str] = {}  # names by text; the first is being read
        self._unknown_s: dict[str, float] = {}  # until when a server may have unknown ones
        self._open: list[_ServerAnswers] = []

    @property
    def names(self) -> list[str]:
        """The names of the skill sets that requests may name, in alphabetical order."""
        return sorted(self._texts)

    def text(self, name: str) -> str:
        """Return a skill set as YAML text.

        Raises:
            Rejected: none is known by this name.
        """
        if name not in self._texts:
            raise unknown_skill_set(name, self._texts)
        return self._texts[name]

    def parsed(self, name: str) -> SkillSet:
        """Return a known skill set.

        Raises:
            RequestError: none is known by this name, or its text cannot be read.
        """
        if name not in self._parsed:
            raise RequestError(f"the skill set {quoted(name)} is not known here any more")
        return self._parsed[name]

    def usable(self, server: str, names: Collection[str]) -> list[str]:
        """Return those skill sets of a server that have the known text of their names."""
        has = self._has.get(server, {})
        return [name for name in names if name in has and has[name] == self._texts.get(name)]

    def has_read(self, server: str, names: Collection[str]) -> bool:
        """Return whether it is known of each skill set of a server if requests may name it."""
        has = self._has.get(server, {})
        return all(name in has and has[name] not in self._unread for name in names)

    def expect(self, name: str, now: float) -> None:
        """Let requests in that name a skill set which a server may have; see `refusal`."""
        if name not in self._texts:
            change = self._gate.know if self._learns(now) else self._gate.forget
            change(name)

    def refusal(self, name: str, now: float) -> Rejected | None:
        """Return why no server gets a request that names a skill set; None: one may."""
        if name in self._texts or self._learns(now):
            return None
        return unknown_skill_set(name, self._texts)

    def _learns(self, now: float) -> bool:
        """Return whether a server may have a skill set that is not known."""
        return any(now < until_s for until_s in self._unknown_s.values())

    # What servers have.

    def found(self, server: str, until_s: float) -> None:
        """Take a server of which it is not known, until a time, what skill sets it has."""
        self._unknown_s[server] = until_s

    def joined(self, server: str, link: Link, names: Collection[str]) -> None:
        """Give a new server what clients registered here, and what its earlier life had.

        Args:
            server: its name.
            link: the way to it.
            names: of the skill sets that it has.
        """
        self._links[server] = link
        self._has[server], self._asked[server] = {}, set()
        for name, text in {**self._had.setdefault(server, {}), **self._mine}.items():
            if name not in names and self._texts.get(name) == text:
                link.register(text, partial(self._said, server))

    def left(self, server: str) -> None:
        """Forget a server; questions to it are answered: it does not have a skill set any more."""
        for known in (self._links, self._asked, self._unknown_s):
            known.pop(server, None)
        if server in self._has:
            self._had[server].update(self._has.pop(server))
        for answers in self._open:
            answers.take(server, "it was lost")

    def seen(self, server: str, names: Collection[str]) -> None:
        """Take the names of a server's skill sets; texts that are not known are asked for."""
        asked, has = self._asked[server], self._has[server]
        for name in [name for name in has if name not in names]:
            del has[name]
            asked.discard(name)
            self._had[server].pop(name, None)
        for name in names:
            if name not in has and name not in asked:
                asked.add(name)
                self._links[server].skill_set(name, partial(self._tells, server, name))
        self._unknown_s[server] = -math.inf if self.has_read(server, names) else math.inf

    def _tells(self, server: str, name: str, text: str) -> None:
        """Take the text of a server's skill set."""
        if server not in self._has:
            return
        if not text:
            self._asked[server].discard(name)
            return
        self._has[server][name] = text
        if text == self._texts.get(name) or text in self._unread:
            return
        if self._is_taken(name):
            self._say_other(server, name)
            return
        self._unread[text] = name
        if len(self._unread) == 1:
            self._read_next()

    def _say_other(self, server: str, name: str) -> None:
        self._say(
            f"server {server} has another skill set by the name {quoted(name)}: it gets no requests"
            " that name it"
        )

    def _is_taken(self, name: str) -> bool:
        """Return whether a client registered a skill set here, or a server has its text."""
        return name in self._mine or (
            name in self._texts
            and any(has.get(name) == self._texts[name] for has in self._has.values())
        )

    def _read_next(self) -> None:
        """Read the first text of servers, one after the other: servers may have many."""
        for text in self._unread:
            self._read_then(self._of_servers, text, partial(self._is_read, text))
            return

    def _is_read(self, text: str, done: Future[SkillSet]) -> None:
        name, error = self._unread.pop(text), done.exception()
        if error is not None:
            self._say(f"the skill set {quoted(name)} of a server cannot be read: {error}")
        elif not self._is_taken(name):
            self._texts[name], self._parsed[name] = text, done.result()
            self._gate.know(name)
        elif self._texts[name] != text:
            for server in [one for one, has in self._has.items() if has.get(name) == text]:
                self._say_other(server, name)
        self._read_next()

    # What clients do.

    def register(self, text: str) -> Registered:
        """Read a skill set and give it to all servers.

        The future has its name and the tokens of the shared prompt as soon as one server has it.
        Without servers there are no tokens: those that join get it.
        """
        future: Registered = self._promises.make()
        self._read_then(self._of_clients, text, partial(self._register, text, future))
        return future

    def _register(self, text: str, future: Registered, done: Future[SkillSet]) -> None:
        error = done.exception()
        if error is not None:
            settle(future, error=error)
            return
        name = done.result().name
        if self._texts.get(name, text) != text:
            reason = f"another skill set by the name {quoted(name)} is registered"
            settle(future, error=Rejected(ErrorCode.INVALID_REQUEST, reason))
            return
        most = self._gate.limits.max_skill_sets
        if name not in self._mine and len(self._mine) >= most:
            reason = f"{most} skill sets are registered, the most allowed: unregister one first"
            settle(future, error=Rejected(ErrorCode.INVALID_REQUEST, reason))
            return
        self._texts[name] = self._mine[name] = text
        self._parsed[name] = done.result()
        self._gate.know(name)
        if not self._links:
            settle(future, (name, 0))

        def over(errors: Sequence[str]) -> None:
            if not future.done():
                self._forget(name)
                settle(future, error=Rejected(ErrorCode.INVALID_REQUEST, errors[0]))

        answers = self._awaited(self._links, over)

        def answered(server: str, _: str, tokens: int, error: str) -> None:
            self._said(server, name, tokens, error)
            if not error:
                settle(future, (name, tokens))
            answers.take(server, error)

        for server, link in self._links.items():
            link.register(text, partial(answered, server))

    def _said(self, server: str, name: str, tokens: int, error: str) -> None:
        """Take a server's answer to a skill set of this dispatcher."""
        if error:
            self._say(f"server {server} does not take a skill set: {error}")
        elif server in self._has and name in self._texts:
            self._has[server][name] = self._texts[name]
            self._asked[server].add(name)

    def unregister(self, name: str) -> Future[None]:
        """Forget a skill set here and at all servers; the future says why it cannot be."""
        future: Future[None] = self._promises.make()
        if name not in self._texts:
            settle(future, error=unknown_skill_set(name, self._texts))
            return future
        self._forget(name)
        having = [one for one in self._links if name in self._has[one]]

        def over(errors: Sequence[str]) -> None:
            if errors:
                settle(future, error=Rejected(ErrorCode.INVALID_REQUEST, "; ".join(errors)))
            else:
                settle(future)

        answers = self._awaited(having, over)
        for server in having:
            self._links[server].unregister(name, partial(answers.take, server))
        if not having:
            settle(future)
        return future

    def _awaited(
        self, servers: Iterable[str], over: Callable[[Sequence[str]], None]
    ) -> _ServerAnswers:
        """Return the answers of servers to one question, which `left` ends too."""
        self._open = [one for one in self._open if one.awaited]
        answers = _ServerAnswers(set(servers), over)
        self._open.append(answers)
        return answers

    def close(self) -> None:
        """Refuse all skill sets for ever."""
        for reading in (self._of_clients, self._of_servers):
            reading.close(ErrorCode.SHUTTING_DOWN, "the dispatcher stops")

    def _forget(self, name: str) -> None:
        self._gate.forget(name)
        for known in (self._texts, self._mine, self._parsed):
            known.pop(name, None)

    def _read_then(
        self, reading: Reading, text: str, take: Callable[[Future[SkillSet]], None]
    ) -> None:
        """Read a text in a thread of its own; `take` gets the outcome in the relay's thread."""
        try:
            reading.begin(
                lambda: self._read(text, "skill set"),
                lambda done: self._post(lambda: take(done)),
            )
        except TimelyError as error:
            refused: Future[SkillSet] = Future()
            refused.set_exception(error)
            take(refused)
