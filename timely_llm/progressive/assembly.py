"""The parts of an answer put together in order."""

from __future__ import annotations

from typing import NamedTuple

from timely_llm.core.errors import RequestError


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
        """Say how many parts there are.

        Raises:
            RequestError: text of a part beyond came before, or another number was said.
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
