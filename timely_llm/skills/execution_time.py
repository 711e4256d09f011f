"""The execution-time model of one skill set, learned from reports (Ling et al. 2024, §4.3)."""

from __future__ import annotations

import math
import unicodedata
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import regex

from timely_llm.core import text as echo
from timely_llm.core.errors import PlanError
from timely_llm.core.segment import SkillCall
from timely_llm.skills.skill import Skill
from timely_llm.skills.skill_set import SkillSet

INSTANT_S = 0.05
"""Shortest predicted call that is learned from, seconds: timers and networks blur shorter ones."""

LONGEST_S = 3600.0
REMEMBERED = 256
FACTOR_LOW, FACTOR_HIGH = 0.2, 5.0
FORGETTING = 0.95
PRIOR = 2.0
SURPRISE = 0.5
LOW_SHARE = 0.05
LOW_AFTER = round(1 / LOW_SHARE)


@dataclass
class _Factor:
    """Ratio of a skill's true times to those of its skill set: a robust mean of the logarithm.

    It begins as after `PRIOR` exact predictions. An observation counts as at most `SURPRISE` away
    from the mean, so that no outlier moves it far.
    """

    total: float = 0.0
    weight: float = PRIOR

    @property
    def value(self) -> float:
        return min(max(math.exp(self.total / self.weight), FACTOR_LOW), FACTOR_HIGH)

    def learn(self, ratio: float) -> None:
        now = self.total / self.weight
        seen = now + min(max(math.log(ratio) - now, -SURPRISE), SURPRISE)
        # A mean beyond the limits of `value` would only delay its way back.
        seen = min(max(seen, math.log(FACTOR_LOW)), math.log(FACTOR_HIGH))
        self.total = FORGETTING * self.total + seen
        self.weight = FORGETTING * self.weight + 1.0


@dataclass
class _Lowest:
    """The shortest times of a skill that depends on the scene.

    A share of 5 % is not known before 20 observations: until then the estimate can only fall.
    """

    seen_s: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED))

    def value(self, written_s: float) -> float:
        if not self.seen_s:
            return written_s
        low_s = sorted(self.seen_s)[int(LOW_SHARE * len(self.seen_s))]
        return low_s if len(self.seen_s) >= LOW_AFTER else min(low_s, written_s)


class ExecutionTimes:
    """Predicts durations of calls: those of the skill set, corrected by robots' reports.

    Args:
        skill_set: the skills, with the durations that were measured before.
    """

    def __init__(self, skill_set: SkillSet) -> None:
        self._skills = skill_set.skills
        self._factors: dict[str, _Factor] = {}
        self._lowest: dict[str, _Lowest] = {}
        self._errors: deque[float] = deque(maxlen=REMEMBERED)

    def predict_s(self, name: str, arguments: tuple[int | float | str, ...]) -> float:
        """Return the seconds a call of the skill `name` is predicted to take.

        For a skill that depends on the scene that is its lower bound (Ling et al. 2024, §4.3).
        """
        duration = self._skills[name].duration
        written_s = duration.predict_s(arguments)
        if duration.scene_dependent:
            return self._lowest[name].value(written_s) if name in self._lowest else written_s
        return written_s * (self._factors[name].value if name in self._factors else 1.0)

    def observe(
        self, calls: Sequence[SkillCall], seconds: float, predicted_s: float | None = None
    ) -> None:
        """Learn from a segment that a robot has finished.

        Only a segment that made each of its calls once counts: its prediction is the sum of theirs.
        A condition of several terms may stop at its first, and the end of a loop repeats calls.
        Zero seconds (a skipped segment) and implausible times are ignored. Several calls share the
        time in proportion to their predictions, unless one of them depends on the scene.

        Args:
            calls: the segment's, with the predictions it was delivered with.
            seconds: how long it took.
            predicted_s: the segment's predicted seconds; by default the sum of its calls'.
        """
        if predicted_s is not None and not made_once(calls, predicted_s):
            return
        if not 0.0 < seconds <= LONGEST_S or any(c.name not in self._skills for c in calls):
            return
        now_s = [self.predict_s(call.name, call.arguments) for call in calls]
        expected_s = math.fsum(now_s)
        if expected_s < INSTANT_S:
            return
        scene_dependent = any(self._skills[call.name].duration.scene_dependent for call in calls)
        if seconds < 0.05 * expected_s or (not scene_dependent and seconds > 20.0 * expected_s):
            return
        self._errors.append((seconds - expected_s) / seconds)
        if not scene_dependent:
            for call, part_s in zip(calls, now_s, strict=True):
                self._learn(call, part_s * seconds / expected_s)
        elif len(calls) == 1:
            self._lowest.setdefault(calls[0].name, _Lowest()).seen_s.append(seconds)

    @property
    def error(self) -> float:
        """Mean of |true - predicted| / true of the last segments learned from; 0 before them."""
        return math.fsum(map(abs, self._errors)) / max(len(self._errors), 1)

    @property
    def bias(self) -> float:
        """Mean of (true - predicted) / true of the same: above 0 if robots take longer."""
        return math.fsum(self._errors) / max(len(self._errors), 1)

    def _learn(self, call: SkillCall, seconds: float) -> None:
        written_s = self._skills[call.name].duration.predict_s(call.arguments)
        if written_s >= INSTANT_S:
            self._factors.setdefault(call.name, _Factor()).learn(seconds / written_s)


def made_once(calls: Sequence[SkillCall], predicted_s: float) -> bool:
    """Return whether a segment that was executed made each of its calls once.

    Args:
        calls: the segment's, with their predictions.
        predicted_s: the segment's predicted seconds, which leave out the later terms of a
            condition and count all rounds of a loop.
    """
    total_s = math.fsum(call.predicted_s for call in calls)
    return bool(calls) and abs(predicted_s - total_s) <= INSTANT_S


# One argument and what ends it; possessive, so that no text takes long.
_QUOTED = r"\s*+(?:'(?P<one>(?:[^'\\]|\\.)*+)'|\"(?P<two>(?:[^\"\\]|\\.)*+)\")\s*+"
_ARGUMENT = regex.compile(rf"(?:{_QUOTED}|(?P<bare>[^,'\"]*+))(?P<end>,|\Z)", regex.DOTALL)
_ESCAPE = regex.compile(r"\\(.)", regex.DOTALL)
_NUMBER = regex.compile(r"[-+]?[0-9]{1,16}(?P<broken>\.[0-9]{0,16})?")


def checked_call(
    name: str, skill: Skill, arguments: Sequence[int | float | str], times: ExecutionTimes
) -> SkillCall:
    """Return a call with its predicted seconds.

    Raises:
        PlanError: its arguments are not allowed.
    """
    if len(arguments) != len(skill.arguments):
        raise PlanError(f"{name} takes {len(skill.arguments)} arguments, not {len(arguments)}")
    for argument, value in zip(skill.arguments, arguments, strict=True):
        if problem := argument.problem(value):
            raise PlanError(f"{name}: {problem}")
    given = tuple(arguments)
    predicted_s = times.predict_s(name, given)
    return SkillCall(name, given, predicted_s, skill.blocking, skill.parameters)


def parse_arguments(text: str, skill: Skill) -> list[int | float | str]:
    """Return the arguments written in `text`, between the brackets of a call.

    Commas separate them. An argument is a number, a quoted text with a backslash before a quote
    inside, or a bare word, which is a text. A text argument stays a text even if it looks like a
    number.

    Raises:
        PlanError: a quote is open or stands in a bare word, or there are control characters.
    """
    if any(unicodedata.category(char) == "Cc" and char not in "\t\n\r" for char in text):
        raise PlanError("arguments must not contain control characters")
    found: list[int | float | str] = []
    place = 0
    while text.strip():
        match = _ARGUMENT.match(text, place)
        if match is None:
            given = echo.quoted(text)
            raise PlanError(f"arguments must be numbers, texts in quotes or words, not {given}")
        quoted = match["one"] if match["one"] is not None else match["two"]
        if quoted is not None:
            found.append(_ESCAPE.sub(r"\1", quoted))
        else:
            wanted = skill.arguments[len(found)].type if len(found) < len(skill.arguments) else ""
            found.append(_bare(match["bare"].strip(), wanted))
        place = match.end()
        if match["end"] != ",":
            break
    return found


def _bare(word: str, wanted: str) -> int | float | str:
    """Return what an argument without quotes means."""
    number = _NUMBER.fullmatch(word)
    if number is None or wanted == "text":
        return word
    return int(word) if number["broken"] is None else float(word)
