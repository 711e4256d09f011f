"""Policies as users write them: a name and what is changed, as in `timely:drops:rows=4`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from timely_llm.experiments.contract import ExperimentError, Options
from timely_llm.experiments.simulation import Settings
from timely_llm.policies.contract import Policy
from timely_llm.policies.registry import POLICIES, make_policy

HARNESS: Mapping[str, int] = {"rows": 8, "admissions": 1}
"""The limits of the code that paper 001 published, in both arms."""

WORDS: Mapping[str, str] = {
    "harness": "the limits of paper 001's code: one admission a step, a batch of 8",
    "drops": "requests are given up when their worth is spent, as paper 001's code does",
    "uncached": "nothing of a prompt is computed before",
    "open-loop": "robots report nothing: due times are predicted ones",
}
"""What may follow a policy's name, beside `option=value` for an option of its own."""

_SWITCH = {"on": True, "off": False}
_MOST = 1e9


@dataclass(frozen=True)
class PolicySpec:
    """A policy and the conditions that it runs under.

    Attributes:
        text: as the user wrote it; the `policy` of rows.
        name: in the registry of policies.
        values: of the policy's own options.
        words: of `WORDS`.
    """

    text: str
    name: str
    values: Mapping[str, float]
    words: frozenset[str]

    def make(self) -> Policy:
        """Return a new policy."""
        return make_policy(self.name, **self.values)

    def settings(self, settings: Settings) -> Settings:
        """Return settings changed as the words say."""
        if "uncached" in self.words:
            settings = settings.uncached()
        return replace(
            settings,
            drop_late=settings.drop_late or "drops" in self.words,
            reports=settings.reports and "open-loop" not in self.words,
        )


def parse(text: str) -> PolicySpec:
    """Return what a text such as `timely:drops:rows=4` means.

    Raises:
        ExperimentError: no such policy, word or option, or a value that is not possible.
    """
    name, *parts = text.split(":")
    if name not in POLICIES:
        raise ExperimentError(f"unknown policy {name!r}: choose one of {', '.join(POLICIES)}")
    known = options_of(name)
    values: dict[str, float] = {}
    words = set()
    for part in parts:
        option, given, value = part.partition("=")
        if given and option in known:
            values[option] = _value(f"{name}:{option}", known[option], value)
        elif part == "harness" and known.keys() >= HARNESS.keys():
            values |= HARNESS
        elif part in WORDS and part != "harness":
            words.add(part)
        else:
            allowed = [*(w for w in WORDS if w != "harness" or "rows" in known)]
            allowed += [f"{option}=..." for option in known]
            raise ExperimentError(f"{text}: {part!r} is not one of {', '.join(allowed)}")
    return PolicySpec(text, name, values, frozenset(words))


def options_of(name: str) -> dict[str, Any]:
    """Return the options of a policy's own, each with its default."""
    return {option.name: option.default for option in fields(POLICIES[name])}  # type: ignore[arg-type]


def chosen(options: Options) -> list[PolicySpec]:
    """Return the policies of an experiment, with their harness and uncached versions if wanted.

    Raises:
        ExperimentError: there is none, or one is not possible or named twice.
    """
    texts = list(options.policies)
    if not texts:
        raise ExperimentError(f"no policy is named: choose one of {', '.join(POLICIES)}")
    if options.harness:
        texts += [f"{text}:harness" for text in options.policies if _is_unbounded(parse(text))]
    if options.uncached:
        texts += [f"{text}:uncached" for text in texts if "uncached" not in parse(text).words]
    specs = [parse(text) for text in texts]
    for place, spec in enumerate(specs):
        if spec.text in texts[:place]:
            raise ExperimentError(f"the policy {spec.text} is named twice")
    return specs


def _is_unbounded(spec: PolicySpec) -> bool:
    known = {**options_of(spec.name), **spec.values}
    return known.keys() >= HARNESS.keys() and all(known[name] is None for name in HARNESS)


def _value(what: str, default: object, text: str) -> float:
    """Return an option's value, of the kind that its default is of.

    Raises:
        ExperimentError: it is none.
    """
    if isinstance(default, bool):
        if text not in _SWITCH:
            raise ExperimentError(f"{what} must be on or off, not {text!r}")
        return _SWITCH[text]
    if isinstance(default, float):
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not (0.0 <= number <= _MOST or number == math.inf):
            raise ExperimentError(f"{what} must be a number from 0 on or inf, not {text!r}")
        return number
    if not (text.isascii() and text.isdecimal() and 1 <= int(text[:11]) <= _MOST):
        raise ExperimentError(f"{what} must be a whole number from 1 on, not {text!r}")
    return int(text)
