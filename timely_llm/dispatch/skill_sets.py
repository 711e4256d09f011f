"""Skill sets of several servers: those of a dispatcher's clients reach all of them."""

from __future__ import annotations

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
from timely_llm.serving.server.registration import Read, Reading
from timely_llm.skills.skill_set import SkillSet

Registered = Future[tuple[str, int]]


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

    A name stands for one text: the first that came, as long as a server has it. A server with
    another text of this name gets no request that names it.

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
        self._reading = Reading()
        self._links: dict[str, Link] = {}
        self._texts: dict[str, str] = {}
        self._parsed: dict[str, SkillSet] = {}
        self._mine: dict[str, str] = {}  # texts that clients registered here
        self._same: dict[str, dict[str, bool]] = {}  # by server and name; false: another text
        self._asked: dict[str, set[str]] = {}
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
        same = self._same.get(server, {})
        return [name for name in names if same.get(name)]

    def has_read(self, server: str, names: Collection[str]) -> bool:
        """Return whether it is known of each skill set of a server if requests may name it."""
        return all(name in self._same.get(server, {}) for name in names)

    # What servers have.

    def joined(self, server: str, link: Link) -> None:
        """Give a new server the skill sets that clients registered here."""
        self._links[server] = link
        self._same[server], self._asked[server] = {}, set()
        for text in self._mine.values():
            link.register(text, partial(self._said, server))

    def left(self, server: str) -> None:
        """Forget a server; questions to it are answered: it does not have a skill set any more."""
        for known in (self._links, self._same, self._asked):
            known.pop(server, None)
        for answers in self._open:
            answers.take(server, "it was lost")

    def seen(self, server: str, names: Collection[str]) -> None:
        """Take the names of a server's skill sets; texts that are not known are asked for."""
        asked, same = self._asked[server], self._same[server]
        for name in [name for name in same if name not in names]:
            del same[name]
            asked.discard(name)
        for name in names:
            if name not in same and name not in asked:
                asked.add(name)
                self._links[server].skill_set(name, partial(self._has, server, name))

    def _has(self, server: str, name: str, text: str) -> None:
        """Take the text of a server's skill set."""
        if server not in self._same:
            return
        if not text:
            self._asked[server].discard(name)
        elif name not in self._texts or (self._texts[name] != text and not self._in_use(name)):
            self._texts[name] = text
            self._read_then(text, partial(self._is_read, server, name))
        else:
            self._same[server][name] = same = self._texts[name] == text
            if not same:
                self._say(
                    f"server {server} has another skill set by the name {quoted(name)}: it gets no"
                    " requests that name it"
                )

    def _in_use(self, name: str) -> bool:
        """Return whether a client registered a skill set here, or a server has its text."""
        return name in self._mine or any(same.get(name) for same in self._same.values())

    def _is_read(self, server: str, name: str, done: Future[SkillSet]) -> None:
        error = done.exception()
        if error is not None:
            self._texts.pop(name, None)
            self._say(f"the skill set {quoted(name)} of server {server} cannot be read: {error}")
            if server in self._same:
                self._same[server][name] = False
            return
        self._parsed[name] = done.result()
        self._gate.know(name)
        if server in self._same:
            self._same[server][name] = True

    # What clients do.

    def register(self, text: str) -> Registered:
        """Read a skill set and give it to all servers.

        The future has its name and the tokens of the shared prompt as soon as one server has it.
        Without servers there are no tokens: those that join get it.
        """
        future: Registered = self._promises.make()
        self._read_then(text, partial(self._register, text, future))
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
        elif server in self._same:
            self._same[server][name] = True
            self._asked[server].add(name)

    def unregister(self, name: str) -> Future[None]:
        """Forget a skill set here and at all servers; the future says why it cannot be."""
        future: Future[None] = self._promises.make()
        if name not in self._texts:
            settle(future, error=unknown_skill_set(name, self._texts))
            return future
        self._forget(name)
        having = [one for one in self._links if name in self._same[one]]

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
        self._reading.close(ErrorCode.SHUTTING_DOWN, "the dispatcher stops")

    def _forget(self, name: str) -> None:
        self._gate.forget(name)
        for known in (self._texts, self._mine, self._parsed):
            known.pop(name, None)

    def _read_then(self, text: str, take: Callable[[Future[SkillSet]], None]) -> None:
        """Read a text in a thread of its own; `take` gets the outcome in the relay's thread."""
        try:
            self._reading.begin(
                lambda: self._read(text, "skill set"),
                lambda done: self._post(lambda: take(done)),
            )
        except TimelyError as error:
            refused: Future[SkillSet] = Future()
            refused.set_exception(error)
            take(refused)
