"""Service levels of streams, and the listeners that they are for."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from timely_llm.core.arguments import is_number
from timely_llm.core.errors import ConfigurationError, RequestError
from timely_llm.core.text import quoted

LONGEST_S = 86_400.0
MAX_WEIGHT = 1e6
_ROUNDING = 1 + 1e-9  # tolerance for sums of times


@dataclass(frozen=True)
class Slo:
    """Service-level objective of one stream (Zhou et al. 2025, §IV-A).

    Eq. 2 prints `t_TTFT >= T_TTFT` for a met objective, which would reward late tokens. It is read
    as `t_TTFT <= T_TTFT`.

    Attributes:
        ttft_s: time to first token, seconds after arrival. The default of 1 s is this package's:
            the paper names no value.
        tpot_s: time per later output token in the mean, seconds.
        deadline_s: seconds from arrival to the whole answer; infinite: none. With a deadline the
            answer is a real-time task: late, it is worth nothing.

    Raises:
        RequestError: a value is out of its range.
    """

    ttft_s: float = 1.0
    tpot_s: float = 0.1
    deadline_s: float = math.inf

    def __post_init__(self) -> None:
        for name, value in (("ttft", self.ttft_s), ("tpot", self.tpot_s)):
            if not is_number(value) or not 0.0 < value <= LONGEST_S:
                raise RequestError(
                    f"{name} must be above 0 and at most 86400 s, not {quoted(value)}"
                )
        value = self.deadline_s
        if not is_number(value) or not (0.0 < value <= LONGEST_S or value == math.inf):
            raise RequestError(f"deadline must be above 0 and at most 86400 s, not {quoted(value)}")

    @property
    def real_time(self) -> bool:
        """Whether the whole answer has a deadline."""
        return self.deadline_s < math.inf

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return 1.0 / self.tpot_s

    def met(self, ttft_s: float, tpot_s: float, completion_s: float) -> bool:
        """Return whether an answer with these times, in seconds, met the objective (Eq. 2).

        The paper prints a TTFT of at least the requested one, which is taken as a misprint.
        """
        if self.real_time:
            return completion_s <= self.deadline_s * _ROUNDING
        return self.met_ttft(ttft_s) and self.met_tpot(tpot_s)

    def met_ttft(self, ttft_s: float) -> bool:
        """Return whether the first token came in time."""
        return ttft_s <= self.ttft_s * _ROUNDING

    def met_tpot(self, tpot_s: float) -> bool:
        """Return whether the later tokens were fast enough in the mean."""
        return tpot_s <= self.tpot_s * _ROUNDING


@dataclass(frozen=True)
class SloClass:
    """A service level by name.

    Attributes:
        weight: worth of an answer that meets it, relative to others; no unit.
    """

    name: str
    slo: Slo
    weight: float = 1.0


VOICE = SloClass("voice", Slo(tpot_s=1 / 8))
TEXT = SloClass("text", Slo(tpot_s=1 / 10))
REAL_TIME = SloClass("real-time", Slo(tpot_s=1 / 20, deadline_s=1.5), weight=100.0)
SLO_CLASSES = (VOICE, TEXT, REAL_TIME)
"""The service levels of Zhou et al. 2025, §VI-A: speech, reading, and tasks of machines.

The rates and the deadline are the paper's. The weight of 100 is the upper end of what the paper
calls typical, "10 to 100 times higher" (§I). The paper names no time to the first token: 1 s is
this package's.
"""

_FIELDS = ("ttft", "rate", "deadline", "weight")


def parse_slo_class(text: str) -> SloClass:
    """Return the service level of a text such as `voice:ttft=1,rate=8`.

    Args:
        text: a name and any of `ttft` (s), `rate` (tokens/s), `deadline` (s) and `weight`; the
            others have the defaults of `Slo`.

    Raises:
        ConfigurationError: the text has another form, or a value is out of its range.
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


READING_WORDS_PER_S = 5.0
SPEAKING_WORDS_PER_S = 3.0
SLOWEST_WORDS_PER_S, FASTEST_WORDS_PER_S = 0.1, 1000.0


class Listener:
    """Consumes the words of a stream at a steady speed, and stalls when there are none.

    Args:
        words_per_s: speed of reading or of speech, above 0.

    Attributes:
        stalled_s: seconds without a word to consume, after the first one came.
    """

    def __init__(self, words_per_s: float = READING_WORDS_PER_S) -> None:
        self._words_per_s = words_per_s
        self._dry_s = math.nan  # when all received words are consumed
        self._in_word = False
        self.stalled_s = 0.0

    def receive(self, text: str, now: float) -> None:
        """Add text that came at `now`; a word counts as soon as it begins."""
        words = 0
        for character in text:
            if character.isspace():
                self._in_word = False
            elif not self._in_word:
                self._in_word = True
                words += 1
        if not words:
            return
        if math.isnan(self._dry_s):
            self._dry_s = now
        elif now > self._dry_s:
            self.stalled_s += now - self._dry_s
            self._dry_s = now
        self._dry_s += words / self._words_per_s

    def credit_s(self, now: float) -> float:
        """Return the credit: seconds until all received words are consumed; below 0 in a stall."""
        return 0.0 if math.isnan(self._dry_s) else self._dry_s - now
