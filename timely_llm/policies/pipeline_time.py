"""The step-time model of an engine in stages: a step's latency and a pipeline's cycle differ."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from timely_llm.core.step import Capacity, StageTimes, StepContent
from timely_llm.policies.step_time import StepTime

_FORGETTING = 0.98
_TAKEN_TO_BLOCK = 1.0  # of the transfer times, until some were measured


class Coefficients(NamedTuple):
    """Seconds of a step as a linear function of what it computes.

    Attributes:
        base_s: of any step.
        row_s: of each decoding sequence.
        prefill_token_s: of each prompt token.
        context_token_s: of each token that is attended to.
    """

    base_s: float
    row_s: float
    prefill_token_s: float
    context_token_s: float

    def plus(self, other: Sequence[float], share: float = 1.0) -> Coefficients:
        """Return these plus a share of others."""
        return Coefficients(*(a + share * b for a, b in zip(self, other, strict=True)))

    def seconds(self, rows: float, prefill_tokens: float, context_tokens: float) -> float:
        """Return the seconds of a step."""
        base, row, prefill, context = self
        return base + row * rows + prefill * prefill_tokens + context * context_tokens

    def below(self, other: Coefficients) -> bool:
        """Return whether no step takes longer than by others."""
        return all(a <= b for a, b in zip(self, other, strict=True))


class PipelineTime(StepTime):
    """Predicted seconds of an engine in stages.

    In one stage the time of a step is all there is to say: its sequences get a token after it, and
    for as long the engine can do nothing else. In a pipeline these are two numbers. `latency_s` is
    the time of one step through all stages and links, with the engine's own work for it.
    `predict_s` is the time of a *cycle*: each of `rows` sequences gets a token in it, in
    `micro_batches` steps that share them evenly. It is the latency, or the time of all steps at the
    busiest stage or link if that is longer (Ahn et al. 2025, Eq. 1 and 2, with links). A cycle is
    what policies count in: rates, shares and segments of many tokens go by it, and no token comes
    sooner.

    Args:
        stages: seconds of computing of each stage. They learn.
        links: seconds of each transfer to the next stage, all tokens as prompt tokens. They learn.
        micro_batches: steps of a cycle.
        blocking: share of its transfers in which a stage cannot compute, for all stages, until it
            is learned; 0: transfers overlap with computing.
        overhead_s: seconds of each step in which neither a stage nor a link has it, until they are
            learned; meanwhile other steps pass. See `StepResult.overhead_s`.

    Attributes:
        stages, links: as given.
        blocking: the share of each stage.
    """

    def __init__(
        self,
        stages: Sequence[StepTime],
        links: Sequence[StepTime],
        micro_batches: int | None = None,
        blocking: float = _TAKEN_TO_BLOCK,
        overhead_s: float = 0.0,
    ) -> None:
        if len(links) != len(stages) - 1:
            raise ValueError(f"{len(stages)} stages have {len(stages) - 1} links, not {len(links)}")
        self.stages = list(stages)
        self.links = list(links)
        self._overhead = StepTime(overhead_s, 0.0, 0.0)
        self.observations = 0
        self.grows = True
        self.blocking = [blocking] * len(self.stages)
        self._blocked_s = [0.0] * len(self.stages)
        self._sent_s = [0.0] * len(self.stages)
        self._micro_batches = micro_batches or len(self.stages)
        self._sum_up()

    @classmethod
    def unknown(cls, stages: int) -> PipelineTime:
        """Return the model of an engine of which nothing was measured."""
        whole = StepTime()
        return cls(
            [StepTime(*(part / stages for part in whole.coefficients)) for _ in range(stages)],
            [StepTime(0.001, 0.0, 0.0001) for _ in range(stages - 1)],
        )

    @property
    def overhead_s(self) -> float:
        """Seconds of a step in which neither a stage nor a link has it."""
        return self._overhead.coefficients[0]

    @property
    def latency(self) -> Coefficients:
        """Seconds of a step through all stages and links."""
        return self._latency

    @property
    def resources(self) -> Sequence[Coefficients]:
        """Seconds of a step at each stage and link that can be the busiest one."""
        return self._resources

    @property
    def micro_batches(self) -> int:
        """Steps of a cycle."""
        return self._micro_batches

    @micro_batches.setter
    def micro_batches(self, number: int) -> None:
        if number != self._micro_batches:
            self._micro_batches = number
            self._sum_up()

    def predict_s(self, rows: int, prefill_tokens: int = 0, context_tokens: int = 0) -> float:
        """Return the predicted seconds of a cycle.

        Args:
            rows: sequences that decode one token each, in all steps of the cycle.
            prefill_tokens: prompt tokens that one of its steps computes.
            context_tokens: tokens that the sequences attend to.
        """
        number = self._micro_batches
        base, row, prefill, context = self._latency
        seconds = (
            base
            + (row * rows + context * context_tokens) / number
            + prefill * prefill_tokens
        )  # fmt: skip
        for base, row, prefill, context in self._cycles:
            cycle_s = base + row * rows + prefill * prefill_tokens + context * context_tokens
            if cycle_s > seconds:
                seconds = cycle_s
        return max(seconds, 1e-6)

    def first_s(self, rows: int, prefill_tokens: int = 0, context_tokens: int = 0) -> float:
        """Return the most seconds until all sequences of a cycle have a token.

        The last of its steps waits for the others at the busiest stage or link, and has the prompt
        tokens. The arguments are those of `predict_s`.
        """
        number = self._micro_batches
        share = rows / number, 0.0, context_tokens / number
        others_s = (number - 1) * max(one.seconds(*share) for one in self._resources)
        prompts_s = self._latency.prefill_token_s * prefill_tokens
        return max(others_s + self._latency.seconds(*share) + prompts_s, 1e-6)

    @property
    def delay_s(self) -> float:
        """Seconds by which a sequence's first token comes later than each further one, at most.

        Each further one comes after a cycle. The first one comes after all stages, and the steps
        of a cycle may be in front of it.
        """
        return self.first_s(1) - self.predict_s(1)

    def beside(self, in_flight: Sequence[StepContent]) -> NextStepTime:
        """Return the seconds of the next step, beside steps in flight."""
        return NextStepTime(self, in_flight)

    def latency_s(self, rows: int, prefill_tokens: int = 0, context_tokens: int = 0) -> float:
        """Return the predicted seconds from a step's begin to its tokens, in an idle pipeline.

        Args:
            rows: sequences that decode one token each, in this step.
            prefill_tokens: prompt tokens computed by the step.
            context_tokens: tokens that the step's sequences attend to.
        """
        return max(self._latency.seconds(rows, prefill_tokens, context_tokens), 1e-6)

    def occupancy_s(self, rows: int, prefill_tokens: int = 0, context_tokens: int = 0) -> float:
        """Return the predicted seconds in which a step keeps its busiest stage or link from others.

        Args:
            rows: sequences that decode one token each, in this step.
            prefill_tokens: prompt tokens computed by the step.
            context_tokens: tokens that the step's sequences attend to.
        """
        return max(
            resource.seconds(rows, prefill_tokens, context_tokens) for resource in self._resources
        )

    def observe(
        self,
        seconds: float,
        rows: int,
        prefill_tokens: int = 0,
        context_tokens: int = 0,
        least_s: float | None = None,
    ) -> None:
        """Learn from a step without times of its stages.

        A step waits for those before it, so its seconds are no less than its latency. It is behind
        the last one by no more than its latency. A prediction between both is not changed; another
        one is moved to the nearer of them, each stage and link by its share.

        Args:
            seconds: from its submission to its end.
            rows: sequences that decoded one token each.
            prefill_tokens: prompt tokens that it computed.
            context_tokens: tokens that its sequences attended to.
            least_s: from its submission, or from the end of the step before if that was later, to
                its end; None: `seconds`, as of a step that was alone.
        """
        predicted_s = self.latency_s(rows, prefill_tokens, context_tokens)
        least_s = seconds if least_s is None else least_s
        if least_s < predicted_s < seconds:
            return
        share = min(max(predicted_s, least_s), seconds) / predicted_s
        for stage in self.stages:
            stage_s = share * stage.predict_s(rows, prefill_tokens, context_tokens)
            stage.observe(stage_s, rows, prefill_tokens, context_tokens)
        self._learn_links(
            [share * link.predict_s(0, rows + prefill_tokens) for link in self.links],
            rows + prefill_tokens,
        )
        self.observations += 1
        self._sum_up()

    def observe_stages(
        self,
        times: StageTimes,
        rows: int,
        prefill_tokens: int = 0,
        context_tokens: int = 0,
        overhead_s: float = 0.0,
    ) -> None:
        """Learn from the times of a step in each stage; impossible ones are ignored.

        Args:
            times: of the stages and links.
            rows: sequences that decoded one token each.
            prefill_tokens: prompt tokens that it computed.
            context_tokens: tokens that its sequences attended to.
            overhead_s: as `StepResult.overhead_s`.
        """
        measured = *times.stage_s, *times.link_s, *times.blocked_s, overhead_s
        if not all(0.0 <= seconds < inf for seconds in measured):
            return
        for stage, stage_s in zip(self.stages, times.stage_s, strict=True):
            stage.observe(stage_s, rows, prefill_tokens, context_tokens)
        self._learn_links(times.link_s, rows + prefill_tokens)
        self._learn_blocking(times)
        if overhead_s:
            if not self.overhead_s:  # nothing is known yet
                self._overhead = StepTime(overhead_s, 0.0, 0.0)
            self._overhead.observe(overhead_s, 0)
        self.observations += 1
        self._sum_up()

    def _learn_links(self, links_s: Sequence[float], tokens: int) -> None:
        for link, link_s in zip(self.links, links_s, strict=True):
            link.observe(link_s, 0, tokens)

    def _learn_blocking(self, times: StageTimes) -> None:
        for place, blocked_s in enumerate(times.blocked_s):
            sent_s = sum(times.link_s[max(place - 1, 0) : place + 1])
            self._blocked_s[place] = _FORGETTING * self._blocked_s[place] + blocked_s
            self._sent_s[place] = _FORGETTING * self._sent_s[place] + sent_s
            if self._sent_s[place] > 0.0:
                self.blocking[place] = min(self._blocked_s[place] / self._sent_s[place], 1.0)

    def _sum_up(self) -> None:
        """Compute the coefficients of all resources."""
        computing = [Coefficients(*stage.coefficients) for stage in self.stages]
        sending = []
        for link in self.links:
            base, _, token, _ = link.coefficients
            sending.append(Coefficients(base, token, token, 0.0))
        latency = Coefficients(self.overhead_s, 0.0, 0.0, 0.0)
        for part in (*computing, *sending):
            latency = latency.plus(part)
        self._latency = latency
        busy = list(sending)
        for place, taken in enumerate(computing):
            for transfer in sending[max(place - 1, 0) : place + 1]:
                taken = taken.plus(transfer, self.blocking[place])
            busy.append(taken)
        self._resources = [
            one
            for place, one in enumerate(busy)
            if not any(
                one.below(other) and (place > at or not other.below(one))
                for at, other in enumerate(busy)
                if at != place
            )
        ]
        number = self._micro_batches
        self._cycles = [one._replace(base_s=number * one.base_s) for one in self._resources]
        base, row, prefill, context = max(self._cycles, key=lambda one: one.seconds(number, 0, 0))
        first = latency.base_s + latency.row_s / number
        # A cycle of one row per step, and what the busiest resource has of each further one.
        self.coefficients = max(base, first - row), row, prefill, context


class NextStepTime(StepTime):
    """Predicted seconds of the next step of a pipeline, for policies that plan no cycles.

    Such a policy sees the sequences of one step, and others are in flight. `predict_s` is the time
    from one token of the step's sequences to the next, while all these steps go round: the latency
    of the longest one, or the time of all of them at the busiest stage or link if that is longer.
    `first_s` bounds the time to the step's own tokens, wherever the others are: each of them is in
    front of it once, at the busiest stage or link, and is as large as the largest one.

    It learns nothing, and is for one plan.

    Args:
        pipeline: seconds of stages and links.
        in_flight: the steps in flight.

    Attributes:
        coefficients: those of the latency.
    """

    def __init__(self, pipeline: PipelineTime, in_flight: Sequence[StepContent]) -> None:
        self.observations, self.grows = pipeline.observations, pipeline.grows
        self.coefficients = self._latency = pipeline.latency
        resources = pipeline.resources
        now = [(one.rows, one.prompt_tokens, one.context_tokens) for one in in_flight]
        later = [
            (one.rows + one.prompts, 0, one.context_tokens + one.prompt_tokens) for one in in_flight
        ]
        self._busy = [(one, sum([one.seconds(*step) for step in later])) for one in resources]
        self._longest_s = max([self._latency.seconds(*step) for step in later], default=0.0)
        self._largest = [max(sizes) for sizes in zip((0, 0, 0), *now, strict=True)]
        busy_s = max([one.seconds(*self._largest) for one in resources])
        self._front_s = len(now) * busy_s

    def predict_s(self, rows: int, prefill_tokens: int = 0, context_tokens: int = 0) -> float:
        """Return the predicted seconds from one token of the step's sequences to the next.

        Args:
            rows: sequences of the step that decode one token each.
            prefill_tokens: prompt tokens computed by the step.
            context_tokens: tokens that the step's sequences attend to.
        """
        step = rows, prefill_tokens, context_tokens
        seconds = max(self._latency.seconds(*step), self._longest_s, 1e-6)
        for one, others_s in self._busy:
            if (busy_s := others_s + one.seconds(*step)) > seconds:
                seconds = busy_s
        return seconds

    def first_s(self, rows: int, prefill_tokens: int = 0, context_tokens: int = 0) -> float:
        """Return the most seconds until the step brings its tokens, if it is submitted now."""
        step = rows, prefill_tokens, context_tokens
        largest = [max(sizes) for sizes in zip(step, self._largest, strict=True)]
        return max(self._front_s + self._latency.seconds(*largest), 1e-6)


def of_next_step(step_time: StepTime, capacity: Capacity) -> StepTime:
    """Return the seconds of the next step, for a policy that plans no cycles.

    Without stages this is the step time itself.
    """
    if capacity.stages > 1 and isinstance(step_time, PipelineTime):
        return step_time.beside(capacity.in_flight)
    return step_time
