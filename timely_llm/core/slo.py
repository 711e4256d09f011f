"""Service levels of streams: when words are due."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from timely_llm.core.echo import quoted
from timely_llm.core.errors import ConfigurationError, RequestError

LONGEST_S = 86_400.0
MAX_WEIGHT = 1e6
_ROUNDING = 1 + 1e-9  # what adding up times may cost


@dataclass(frozen=True)
class Slo:
    """What the listener of one answer is promised (paper 000 §IV-A).

    Attributes:
        ttft_s: seconds from asking to the first token.
        tpot_s: seconds for each token after it, in the mean.
        deadline_s: seconds from asking to the whole answer. With one, the answer is a real-time
            task: it is worth something only if all of it is there by then.

    Raises:
        RequestError: a value is out of its range.
    """

    ttft_s: float = 1.0
    tpot_s: float = 0.1
    deadline_s: float = math.inf

    def __post_init__(self) -> None:
        for name, value in (("ttft", self.ttft_s), ("tpot", self.tpot_s)):
            if not 0.0 < value <= LONGEST_S:
                raise RequestError(f"{name} must be above 0 and at most 86400 s, not {value:g}")
        if not (0.0 < self.deadline_s <= LONGEST_S or self.deadline_s == math.inf):
            raise RequestError(
                f"deadline must be above 0 and at most 86400 s, not {self.deadline_s:g}"
            )

    @property
    def real_time(self) -> bool:
        """Whether the whole answer has a deadline."""
        return self.deadline_s < math.inf

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return 1.0 / self.tpot_s

    def met(self, ttft_s: float, tpot_s: float, completion_s: float) -> bool:
        """Return whether an answer with these times kept what was promised."""
        if self.real_time:
            return completion_s <= self.deadline_s * _ROUNDING
        return self.met_ttft(ttft_s) and self.met_tpot(tpot_s)

    def met_ttft(self, ttft_s: float) -> bool:
        """Return whether the first token came in time."""
        return ttft_s <= self.ttft_s * _ROUNDING

    def met_tpot(self, tpot_s: float) -> bool:
        """Return whether the tokens after the first one were fast enough in the mean."""
        return tpot_s <= self.tpot_s * _ROUNDING


@dataclass(frozen=True)
class SloClass:
    """A service level by name, with what an answer of it is worth.

    Attributes:
        weight: of an answer that is in time, beside others; no unit.
    """

    name: str
    slo: Slo
    weight: float = 1.0


VOICE = SloClass("voice", Slo(tpot_s=1 / 8))
TEXT = SloClass("text", Slo(tpot_s=1 / 10))
REAL_TIME = SloClass("real-time", Slo(tpot_s=1 / 20, deadline_s=1.5), weight=100.0)
SLO_CLASSES = (VOICE, TEXT, REAL_TIME)
"""Those of paper 000 §VI-A: speech, reading, and tasks of machines."""

_FIELDS = ("ttft", "rate", "deadline", "weight")


def parse_slo_class(text: str) -> SloClass:
    """Return what a text such as `voice:ttft=1,rate=8` means.

    Args:
        text: a name and any of `ttft` (s), `rate` (tokens/s), `deadline` (s) and `weight`; what is
            not said is as in `Slo`.

    Raises:
        ConfigurationError: it means nothing, or a value is out of its range.
    """
    name, _, settings = text.partition(":")
    made = SloClass(name.strip(), Slo())
    if not made.name or not made.name.isprintable():
        raise ConfigurationError(f"service level {quoted(text)}: it needs a name before the colon")
    for setting in filter(None, settings.split(",")):
        field, _, number = setting.partition("=")
        field = field.strip()
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if field not in _FIELDS or not 0.0 < value <= MAX_WEIGHT:
            raise ConfigurationError(
                f"service level {quoted(text)}: {quoted(setting)} is not one of"
                f" {', '.join(_FIELDS)}, an equals sign and a number above 0"
            )
        made = _with(made, text, field, value)
    return made


def _with(made: SloClass, text: str, field: str, value: float) -> SloClass:
    if field == "weight":
        return replace(made, weight=value)
    change = {"tpot_s": 1.0 / value} if field == "rate" else {f"{field}_s": value}
    try:
        return replace(made, slo=replace(made.slo, **change))
    except RequestError as error:
        raise ConfigurationError(f"service level {quoted(text)}: {error}") from error
