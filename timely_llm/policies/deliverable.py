"""What is due next of a plan: when, and what it is worth then."""

from __future__ import annotations

import math

from timely_llm.core.generation import PlanGeneration
from timely_llm.policies.lengths import Outlook, mean


class Deliverable:
    """A generation's next segment, as the policy `deadline` sees it at one moment.

    Its worth is that of the request's time utility, clamped at 0 (paper 001, Eq. 1), for a first
    segment, and nothing for later ones; minus the price of a robot that has nothing to do, which
    grows the longer that lasts, so that nobody is left waiting for ever.

    Attributes:
        outlook: tokens to go.
        tokens_to_go: the expected ones.
        due_s: when it is needed.
        zero_s: when it is worth nothing.
    """

    __slots__ = (
        "_age_s",
        "_idle_from_s",
        "_price",
        "_slope",
        "_worth",
        "due_s",
        "generation",
        "outlook",
        "tokens_to_go",
        "zero_s",
    )

    def __init__(
        self, generation: PlanGeneration, outlook: Outlook, kappa: float, age_s: float
    ) -> None:
        utility = generation.request.time_utility
        self.generation = generation
        self.outlook = outlook
        self.tokens_to_go = mean(outlook)
        # A request that is worth nothing waits like a normal one.
        self._price = kappa * (utility.beta or 1.0)
        self._age_s = age_s
        if generation.segments:
            self._worth = self._slope = 0.0
            self.due_s = self.zero_s = self._idle_from_s = generation.robot_free_s
        else:
            self._worth, self._slope = utility.beta, utility.alpha
            self._idle_from_s = generation.arrival_s
            self.due_s = generation.arrival_s + utility.ert_s
            self.zero_s = self.due_s + utility.grace_s

    def value(self, ready_s: float) -> float:
        """Return what it is worth if it is ready then."""
        worth = self._worth
        late_s = ready_s - self.due_s
        if late_s > 0.0 and worth:
            worth = max(worth + self._slope * late_s, 0.0)
        idle_s = ready_s - self._idle_from_s
        if idle_s > 0.0:
            worth -= self._price * idle_s * (1.0 + idle_s / self._age_s)
        return worth

    def expected(
        self, begin_s: float, step_s: float, delay_s: float = 0.0, most_s: float = math.inf
    ) -> float:
        """Return what it is worth on average if its steps begin then.

        Args:
            begin_s: when the first one begins.
            step_s: seconds of each.
            delay_s: seconds that others' prompts take in these steps.
            most_s: most of them in one step: who is soon done is not delayed by all.
        """
        total = 0.0
        for tokens, chance in self.outlook:
            delay = min(delay_s, tokens * most_s)
            total += chance * self.value(begin_s + tokens * step_s + delay)
        return total

    def latest_start_s(self, now: float, step_s: float, gives_way: bool = True) -> float:
        """Return when it must start to be in time.

        Who can no longer earn anything gives way, but not for ever: it stands in line as if it
        were due when waiting has become expensive.

        Args:
            now: the time, seconds.
            step_s: seconds of a step.
            gives_way: whether that is so, or it is due when it was due.
        """
        in_time = now + self.tokens_to_go * step_s < self.zero_s
        if in_time or not gives_way or self.zero_s == self.due_s:
            return self.due_s - self.tokens_to_go * step_s
        return self.zero_s + self._age_s
