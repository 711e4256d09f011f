"""Methods without sketches for edges: the baselines of Zhan et al. 2025, and two more."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from timely_llm.engines.simulated import PROFILES, Profile
from timely_llm.experiments.virtual.sketches.bench import Bench, DecodingSite, ShownAnswer, SiteCall
from timely_llm.experiments.virtual.sketches.quality import edge_quality
from timely_llm.experiments.virtual.sketches.questions import PROMPT_TOKENS
from timely_llm.experiments.virtual.sketches.testbed import (
    EDGE_ROWS,
    NETWORK_TO_EDGE,
    Devices,
    edge_profile,
)

SOT_POINT_TOKENS, SOT_POINTS = 6, 8
"""Tokens of a point of a skeleton, and points of an answer (Ning et al. 2024: 3 to 10 of 3 to 5
words)."""

ACCEPTED = 0.7
"""Chance that a drafted token is accepted. This package's: no draft model ran."""

MOST_DRAFTED = 8


class CloudOnly:
    """The cloud answers each question; those without a row wait in order.

    Args:
        bench: runs it.
        devices: the testbed.
        pace: the cloud's, in place of its model's.
    """

    def __init__(self, bench: Bench, devices: Devices, pace: Speculative | None = None) -> None:
        self.bench = bench
        self.devices = devices
        far = devices.far
        self.cloud = DecodingSite("cloud", pace or far.profile, far.rows, devices.path)
        self.sites: list[DecodingSite] = [self.cloud]
        self.waiting: deque[ShownAnswer] = deque()

    def begin(self, answer: ShownAnswer, now: float) -> None:
        """Let a question wait for a row of the cloud."""
        self.waiting.append(answer)

    def turn(self, now: float) -> None:
        """Give questions to the cloud's free rows."""
        while self.waiting and self.cloud.requests < self.cloud.max_rows:
            self.dispatch(self.waiting.popleft(), now)

    def dispatch(self, answer: ShownAnswer, now: float) -> None:
        """Begin a question for which the cloud has a row."""
        self.direct(answer, now)

    def direct(self, answer: ShownAnswer, now: float, before: int = 0) -> None:
        """Let the cloud write the whole answer, after some tokens that are not shown."""
        part = answer.first_part
        answer.parts.expect(part + 1)

        def word(number: int, at_s: float) -> None:
            answer.cloud_tokens += 1
            if number > before:
                answer.show(part, at_s)

        tokens = before + answer.question.tokens
        self.cloud.call(
            SiteCall(tokens, PROMPT_TOKENS, word, lambda at_s: answer.end(part, at_s)), now
        )


def edge_call(answer: ShownAnswer, part: int, tokens: int, prompt_tokens: int) -> SiteCall:
    """Return the call with which an edge writes a part of an answer.

    Args:
        answer: it takes the words.
        part: number of the part.
        tokens: of the part.
        prompt_tokens: that the edge has no KV of.
    """

    def word(number: int, at_s: float) -> None:
        answer.edge_tokens += 1
        answer.show(part, at_s)

    return SiteCall(tokens, prompt_tokens, word, lambda at_s: answer.end(part, at_s))


def whole_answer(answer: ShownAnswer) -> SiteCall:
    """Return the call with which an edge answers a question without a sketch."""
    part = answer.first_part
    answer.parts.expect(part + 1)
    return edge_call(answer, part, answer.question.tokens, PROMPT_TOKENS)


@dataclass(frozen=True)
class EdgeRules:
    """Edges alone.

    Attributes:
        rows: most questions of an edge at a time; the paper's numbers are those of one.
    """

    rows: int = 1


class EdgeOnly:
    """Edges with one model answer alone, each question at the one with the fewest.

    Args:
        bench: runs it.
        devices: the testbed; the edges run the cloud's model if they can, else the most capable
            small one.
        rules: of the edges.
    """

    def __init__(self, bench: Bench, devices: Devices, rules: EdgeRules) -> None:
        far = devices.far
        fits = f"orin-{far.name}" in PROFILES
        model = far.name if fits else far.small[-1]
        self.model = "" if fits else model
        self.sites = [
            DecodingSite(f"edge{place}/{model}", edge_profile(model), rules.rows, NETWORK_TO_EDGE)
            for place in range(devices.edges)
        ]

    def begin(self, answer: ShownAnswer, now: float) -> None:
        """Give a question to an edge."""
        site = min(self.sites, key=lambda one: one.requests)
        answer.model = self.model
        site.call(whole_answer(answer), now)

    def turn(self, now: float) -> None:
        """Do nothing: each edge has its questions."""


@dataclass(frozen=True)
class RoutingRules:
    """A router and its edges.

    Attributes:
        share: of the questions that go to edges.
        rows: most questions of an edge at a time.
    """

    share: float = 0.2
    rows: int = EDGE_ROWS


class Routing(CloudOnly):
    """A router sends a share of the questions to edges: those that lose least there.

    It knows what each answer of the edge would be worth: no trained router does better.

    Args:
        bench: runs it.
        devices: the testbed; without a small model all questions go to the cloud.
        rules: of router and edges.
    """

    def __init__(self, bench: Bench, devices: Devices, rules: RoutingRules) -> None:
        super().__init__(bench, devices)
        small = devices.far.small
        self.easy: set[str] = set()
        self.model = small[-1] if small else ""
        self.edges: list[DecodingSite] = []
        if small:
            self.edges = [
                DecodingSite(f"edge{place}", edge_profile(self.model), rules.rows, NETWORK_TO_EDGE)
                for place in range(devices.edges)
            ]
            worth = {one.question.key: edge_quality(one.question, self.model)
                     for one in bench.answers}  # fmt: skip
            easy = sorted(worth, key=worth.__getitem__, reverse=True)
            self.easy = set(easy[: round(rules.share * len(easy))])
        self.sites += self.edges

    def begin(self, answer: ShownAnswer, now: float) -> None:
        """Send a question where its router says."""
        if answer.question.key not in self.easy:
            super().begin(answer, now)
            return
        site = min(self.edges, key=lambda one: one.requests)
        answer.model = self.model
        site.call(whole_answer(answer), now)


class SkeletonOfThought(CloudOnly):
    """The cloud writes a skeleton, then all its points at once, a row each (Ning et al. 2024)."""

    def __init__(self, bench: Bench, devices: Devices) -> None:
        super().__init__(bench, devices)
        self.branches: deque[Callable[[float], None]] = deque()

    def turn(self, now: float) -> None:
        """Give rows to points first, then to questions."""
        while self.branches and self.cloud.requests < self.cloud.max_rows:
            self.branches.popleft()(now)
        super().turn(now)

    def dispatch(self, answer: ShownAnswer, now: float) -> None:
        """Begin a skeleton."""
        points = SOT_POINTS
        answer.parts.expect(points)

        def word(number: int, at_s: float) -> None:
            answer.cloud_tokens += 1

        def end(at_s: float) -> None:
            for part in range(points):
                self.branches.append(self._point(answer, part, points))

        self.cloud.call(SiteCall(points * SOT_POINT_TOKENS, PROMPT_TOKENS, word, end), now)

    def _point(self, answer: ShownAnswer, part: int, points: int) -> Callable[[float], None]:
        tokens = answer.question.tokens
        first, last = (place * tokens // points for place in (part, part + 1))

        def word(number: int, at_s: float) -> None:
            answer.cloud_tokens += 1
            answer.show(part, at_s)

        call = SiteCall(last - first, PROMPT_TOKENS, word, lambda at_s: answer.end(part, at_s))
        return lambda now: self.cloud.call(call, now)


@dataclass(frozen=True)
class Speculative:
    """Seconds of a step of speculative decoding, spread over the tokens that it brings.

    A draft model in the cloud writes some tokens in turn; the target checks them in one step
    (Leviathan et al. 2023, Eq. 1). The number of drafted tokens is the best one for
    each number of rows. Checking a token costs what a prompt token costs.

    Attributes:
        target, draft: their step times.
        accepted: chance that a drafted token is accepted.
    """

    target: Profile
    draft: Profile
    accepted: float = ACCEPTED

    def step_s(self, rows: int, prefill_tokens: int = 0) -> float:
        """Return the seconds of a step with which each row has one more token."""
        if not rows:
            return self.target.step_s(0, prefill_tokens)
        return min(self._token_s(rows, prefill_tokens, drafted) for drafted in range(MOST_DRAFTED))

    def _token_s(self, rows: int, prefill_tokens: int, drafted: int) -> float:
        checked = self.target.step_s(rows, prefill_tokens + rows * drafted)
        tokens = (1.0 - self.accepted ** (drafted + 1)) / (1.0 - self.accepted)
        return (checked + drafted * self.draft.step_s(rows)) / tokens


def group_call(answer: ShownAnswer, numbers: list[int], tokens: list[int], prompt: int) -> SiteCall:
    """Return the call in which one row of an edge writes some parts, one after another.

    Args:
        answer: it takes the words.
        numbers: of the parts, in order.
        tokens: of each part.
        prompt: tokens that the edge has no KV of.
    """
    ends = np.cumsum(tokens).tolist()
    place = 0

    def word(number: int, at_s: float) -> None:
        nonlocal place
        answer.edge_tokens += 1
        while number > ends[place]:
            answer.end(numbers[place], at_s)
            place += 1
        answer.show(numbers[place], at_s)

    def end(at_s: float) -> None:
        for number in numbers[place:]:
            answer.end(number, at_s)

    return SiteCall(sum(tokens), prompt, word, end)
