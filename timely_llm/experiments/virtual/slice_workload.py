"""Workloads of machines, speakers and readers at Poisson times (Zhou et al. 2025, §VI-A)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice, takewhile

import numpy as np

from timely_llm.core.request import MAX_TOKENS
from timely_llm.core.slo import REAL_TIME, TEXT, VOICE, SloClass
from timely_llm.experiments.contract import ExperimentError
from timely_llm.traces.model import Conversation, Trace

TASKS = 300
"""Of a workload."""

PROMPT_TOKENS = (60, 200)
"""Fewest and most; they matter only where prompts take time."""

AGENTS = {REAL_TIME: "machine", VOICE: "speaker", TEXT: "reader"}

_NOTATION = re.compile(r"(\d{1,4})-(\d{1,4}):(\d{1,4})-(\d{1,4})", re.ASCII)


@dataclass(frozen=True)
class LengthRange:
    """Fewest and most tokens of answers; each number between them is as likely.

    Zhou et al. 2025 says nothing of the lengths of its tasks.

    Attributes:
        real_time: of real-time tasks.
        others: of voice chats and questions.
    """

    real_time: tuple[int, int] = (8, 25)
    others: tuple[int, int] = (40, 160)

    @classmethod
    def parse(cls, text: str) -> LengthRange:
        """Return what a text such as `8-25:40-160` means.

        Raises:
            ExperimentError: it is no such text, or a length is not possible.
        """
        found = _NOTATION.fullmatch(text)
        a, b, c, d = map(int, found.groups()) if found else (0, 0, 0, 0)
        if not (1 <= a <= b <= MAX_TOKENS and 1 <= c <= d <= MAX_TOKENS):
            raise ExperimentError(
                f"lengths must be like 8-25:40-160, tokens of real-time tasks and of others, 1 to"
                f" {MAX_TOKENS}, not {text[:80]!r}"
            )
        return cls((a, b), (c, d))

    def __str__(self) -> str:
        """Return them in the notation of `parse`."""
        return ":".join(f"{low}-{high}" for low, high in (self.real_time, self.others))


@dataclass(frozen=True)
class Mix:
    """A mix of real-time tasks and conversations.

    Attributes:
        rate: tasks a second, from 0 on.
        rt_ratio: probability that a task is a real-time one; half of the other tasks are
            voice chats, half are questions.
        lengths: of answers.
        bound: most tokens that a request declares, over the longest answer of its kind; below 1,
            longer answers end there, as in a server.
        ttft_s: seconds to the first token that a conversation asks for. Zhou et al. 2025 names no
            value: the default is this package's.

    Raises:
        ExperimentError: a request would declare more tokens than are allowed.
    """

    rate: float
    rt_ratio: float = 0.7
    lengths: LengthRange = LengthRange()
    bound: float = 1.0
    ttft_s: float = TEXT.slo.ttft_s

    def __post_init__(self) -> None:
        most = max(self.lengths.real_time[1], self.lengths.others[1])
        if self.bound * most > MAX_TOKENS:
            raise ExperimentError(
                f"a bound of {self.bound:g} times {most} tokens is more than {MAX_TOKENS}"
            )


@lru_cache(maxsize=512)
def tasks(mix: Mix, seed: int, minutes: float | None = None) -> Trace:
    """Return the first tasks of a mix, as a workload.

    Args:
        mix: the mix.
        seed: seed of arrivals, kinds and lengths.
        minutes: tasks that arrive in this time; None: the first `TASKS`.
    """
    name = f"{mix.rate:g}/s, {mix.rt_ratio:.0%} real-time"
    endless = talks(mix, seed)
    if minutes is None:
        made = tuple(islice(endless, TASKS))
    else:
        end_s = 60.0 * minutes
        made = tuple(takewhile(lambda one: one.arrival_s <= end_s, endless))
    return Trace(name, f"{name}, {mix.lengths} tokens, seed {seed}", (), made)


def talks(mix: Mix, seed: int) -> Iterator[Conversation]:
    """Yield conversations of a mix without end; none at rate 0.

    With the same seed, mixes differ only in their attributes: at a higher rate the same tasks
    arrive faster, and at a higher ratio some tasks become real-time ones.
    """
    rng = np.random.default_rng(seed)
    arrival_s, number = 0.0, 0
    while mix.rate > 0.0:
        arrival_s += float(rng.exponential()) / mix.rate
        real_time, voice, length, prompt = map(float, rng.random(4))
        kind = REAL_TIME if real_time < mix.rt_ratio else VOICE if voice < 0.5 else TEXT
        span = mix.lengths.real_time if kind is REAL_TIME else mix.lengths.others
        yield talk(
            f"{AGENTS[kind]}-{number}",
            _asked(kind, mix),
            arrival_s,
            _between(span, length),
            math.ceil(mix.bound * span[1]),
            _between(PROMPT_TOKENS, prompt),
        )
        number += 1


def _asked(kind: SloClass, mix: Mix) -> SloClass:
    """Return a kind of task; a conversation has the time to the first token of the mix."""
    if kind is REAL_TIME:
        return kind
    return replace(kind, slo=replace(kind.slo, ttft_s=mix.ttft_s))


def talk(
    name: str, kind: SloClass, arrival_s: float, tokens: int, max_tokens: int, prompt_tokens: int
) -> Conversation:
    """Return what one agent asks once, under the service level of its kind."""
    return Conversation(
        id=name,
        arrival_s=arrival_s,
        agent=name,
        prompt_tokens=prompt_tokens,
        output_tokens=tokens,
        ttft_s=kind.slo.ttft_s,
        tpot_s=kind.slo.tpot_s,
        deadline_s=kind.slo.deadline_s,
        weight=kind.weight,
        max_tokens=max_tokens,
    )


def _between(span: tuple[int, int], share: float) -> int:
    """Return the whole number of a span, both ends included, at a share from 0 to 1 of it."""
    low, high = span
    return low + int(share * (high - low + 1))
