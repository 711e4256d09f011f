"""The time-utility function of a request (Ling et al. 2024, Eq. 1)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from timely_llm.core.arguments import is_number
from timely_llm.core.errors import RequestError
from timely_llm.core.text import quoted


@dataclass(frozen=True)
class TimeUtility:
    """Time-utility function `min(beta, alpha * (t - ert) + beta)`: full worth until `ert_s`.

    Attributes:
        beta: worth of an answer in time, >= 0.
        alpha: slope after the expected response time, per second, <= 0.
        ert_s: expected response time, seconds after arrival, >= 0.

    Raises:
        RequestError: a value is not finite or has the wrong sign.
    """

    beta: float = 1.0
    alpha: float = -2.0
    ert_s: float = 1.0

    def __post_init__(self) -> None:
        for name, value, sign in (
            ("beta", self.beta, 1), ("alpha", self.alpha, -1), ("ert_s", self.ert_s, 1),
        ):  # fmt: skip
            if not is_number(value) or not math.isfinite(value) or sign * value < 0:
                allowed = "a finite number >= 0" if sign > 0 else "a finite number <= 0"
                raise RequestError(f"time utility: {name} must be {allowed}, not {quoted(value)}")

    @classmethod
    def from_deadlines(cls, beta: float, ert_s: float, zero_s: float) -> TimeUtility:
        """Return the function that is `beta` until `ert_s`, 0 at `zero_s` (LRTrace's triples)."""
        if not zero_s > ert_s:
            raise RequestError(f"time utility: zero time {zero_s!r} must come after ert {ert_s!r}")
        return cls(beta=beta, alpha=-beta / (zero_s - ert_s), ert_s=ert_s)

    def value(self, response_s: float) -> float:
        """Return the utility of an answer after `response_s` seconds; may be negative."""
        return min(self.beta, self.alpha * (response_s - self.ert_s) + self.beta)

    def clamped(self, response_s: float) -> float:
        """Return the utility, or 0 where it is negative."""
        return max(0.0, self.value(response_s))

    def later_value(self, waiting_s: float) -> float:
        """Return TUF1: the utility of a later segment after an idle time of `waiting_s` seconds.

        Alpha and beta are the request's own; the expected response time is zero (Ling et al. 2024,
        §4.2).
        """
        return min(self.beta, self.alpha * max(waiting_s, 0.0) + self.beta)

    def at_rate(self, rate: float) -> TimeUtility:
        """Return the same function over a clock with `rate` of these seconds in each of its own."""
        if rate == 1.0:
            return self
        return replace(self, alpha=self.alpha * rate, ert_s=self.ert_s / rate)

    @property
    def grace_s(self) -> float:
        """Seconds from the expected response time to the zero point; infinite if it never falls."""
        return math.inf if self.alpha == 0 else -self.beta / self.alpha

    @property
    def zero_s(self) -> float:
        """Seconds after arrival from which an answer is worth nothing."""
        return self.ert_s + self.grace_s


NORMAL = TimeUtility(beta=1.0, alpha=-2.0, ert_s=1.0)
"""Instructions of a user (Ling et al. 2024, §7.1): due after 1 s, zero point after 1.5 s."""

URGENT = TimeUtility.from_deadlines(beta=2.0, ert_s=0.2, zero_s=0.5)
"""Avoiding harm (Ling et al. 2024, §7.1): due after 0.2 s, zero point after 0.5 s."""
