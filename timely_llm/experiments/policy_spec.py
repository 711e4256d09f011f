"""Policies in the notation of users: a name and changes, as in `timely:drops:rows=4`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from timely_llm.core.errors import ConfigurationError
from timely_llm.core.object_reference import is_reference
from timely_llm.core.options import option_value, possible
from timely_llm.experiments.contract import ExperimentError
from timely_llm.experiments.virtual.simulation import SimulationSettings
from timely_llm.policies.contract import Policy
from timely_llm.policies.micro_batches.policy import Mode, in_micro_batches
from timely_llm.policies.registry import POLICIES, make_policy, options_of

HARNESS: Mapping[str, int] = {"rows": 8, "admissions": 1}
"""The limits of the code of Ling et al. 2024. It applies them to baselines too."""

SERVED = "timely:lead_s=0.5"
"""`timely` as a server runs it: a suspended plan returns 0.5 s before its robot will be idle."""

PAPER_BOUND = "timelyllm"
"""`timely` with the worst-case bound of Ling et al. 2024, §4.4, to the letter."""

FIXED = "rows=6:adaptive=off"
"""The batch of the published presets for Figure 8 of Ling et al. 2024: 6, without a bound."""

WORDS: Mapping[str, str] = {
    "harness": "the limits of the code of Ling et al. 2024: one admission a step, a batch of 8",
    "drops": "requests end when their utility reaches 0, as in the code of Ling et al. 2024",
    "uncached": "prompts are computed whole, without a prompt cache",
    "gate": "conversations that cannot begin in time are refused at once",
    "open-loop": "robots send no reports, so due times are predictions",
    "micro-batches": "the steps of a pipeline are micro-batches by this rule",
    "step-times": "step times are predicted at this ratio to the true ones, and not learned better",
    "first-step-times": "step times are predicted at this ratio to the true ones at first",
}
"""Words that may follow a policy's name, beside `option=value` for the policy's own options.

Three have a value: `micro-batches` one of `Mode`, as in `deadline:micro-batches=cycle`, and
`step-times` and `first-step-times` a number, as in `deadline:step-times=0.7`.
"""

MICRO_BATCHES, STEP_TIMES, FIRST_STEP_TIMES = "micro-batches", "step-times", "first-step-times"
_WITH_VALUE: Mapping[str, Mode | float] = {
    MICRO_BATCHES: Mode.OFF, STEP_TIMES: 1.0, FIRST_STEP_TIMES: 1.0,
}  # fmt: skip
_LEAST_RATIO = 0.01
MOST_MICRO_BATCHES = 8
"""Most micro-batches in flight with a rule that chooses their number."""


@dataclass(frozen=True)
class PolicySpec:
    """A policy and the conditions under which it runs.

    Attributes:
        text: the user's text; the column `policy` of rows.
        name: name in the registry of policies, or a user's own, such as `my_module:MyPolicy`.
        values: the policy's own options.
        words: a subset of `WORDS`.
        micro_batches: rule of the micro-batches of a pipeline.
        step_times: predicted over true seconds of a step.
        first_step_times: the same at the beginning; the loop learns better ones.
    """

    text: str
    name: str
    values: Mapping[str, float | str]
    words: frozenset[str]
    micro_batches: Mode = Mode.OFF
    step_times: float = 1.0
    first_step_times: float = 1.0

    def make(self) -> Policy:
        """Return a new policy."""
        return in_micro_batches(make_policy(self.name, **self.values), self.micro_batches)

    def settings(self, settings: SimulationSettings) -> SimulationSettings:
        """Return settings with the changes of the words.

        Raises:
            ExperimentError: a word does not fit the engine.
        """
        for name, ratio in (
            (STEP_TIMES, self.step_times), (FIRST_STEP_TIMES, self.first_step_times),
        ):  # fmt: skip
            if ratio != 1.0 and settings.pipeline is not None:
                raise ExperimentError(f"{self.text}: {name} is for an engine without stages")
        if "uncached" in self.words:
            settings = settings.uncached()
        stages = len(settings.pipeline.stages) if settings.pipeline is not None else 1
        if self.micro_batches is not Mode.OFF and stages > 1:
            settings = replace(settings, micro_batches=MOST_MICRO_BATCHES)
        return replace(
            settings,
            drop_late=settings.drop_late or "drops" in self.words,
            step_times=settings.step_times * self.step_times,
            first_step_times=settings.first_step_times * self.first_step_times,
            gate=settings.gate or "gate" in self.words,
            reports=settings.reports and "open-loop" not in self.words,
        )


def parse(text: str) -> PolicySpec:
    """Return the policy of a text such as `timely:drops:rows=4`.

    Raises:
        ExperimentError: a policy, word or option is unknown, or a value is not possible.
    """
    name, *parts = text.split(":")
    own = ":".join([name, *parts[:1]])
    if name not in POLICIES and is_reference(own) and parts[0] not in WORDS:
        name = own
        del parts[0]
    try:
        known = options_of(name)
        if name not in POLICIES:
            make_policy(name)
    except ConfigurationError as error:
        raise ExperimentError(str(error)) from error
    values: dict[str, float | str] = {}
    conditions: dict[str, float | str] = {}
    words = set()
    for part in parts:
        option, given, value = part.partition("=")
        if given and option in {**known, **_WITH_VALUE}:
            taken, defaults = (
                (conditions, _WITH_VALUE) if option in _WITH_VALUE else (values, known)
            )
            try:
                taken[option] = option_value(f"{name}:{option}", defaults[option], value)
            except ConfigurationError as error:
                raise ExperimentError(str(error)) from error
        elif part == "harness" and known.keys() >= HARNESS.keys():
            values |= HARNESS
        elif part in WORDS and part not in ("harness", *_WITH_VALUE):
            words.add(part)
        else:
            allowed = [w for w in WORDS if w not in _WITH_VALUE]
            if "rows" not in known:
                allowed.remove("harness")
            choices = {**_WITH_VALUE, **known}
            allowed += [f"{option}={possible(default)}" for option, default in choices.items()]
            raise ExperimentError(f"{text}: {part!r} is not one of {', '.join(allowed)}")
    step_times, first = (
        _ratio(f"{name}:{word}", conditions.get(word, 1.0))
        for word in (STEP_TIMES, FIRST_STEP_TIMES)
    )
    if step_times != 1.0 and first != 1.0:
        raise ExperimentError(f"{text}: name one of {STEP_TIMES} and {FIRST_STEP_TIMES}")
    micro_batches = Mode(str(conditions.get(MICRO_BATCHES, Mode.OFF)))
    spec = PolicySpec(
        text, name, values, frozenset([*words, *conditions]), micro_batches, step_times, first
    )
    try:
        spec.make()
    except ConfigurationError as error:
        raise ExperimentError(str(error)) from error
    return spec


def _ratio(name: str, value: float | str) -> float:
    """Return the value of a ratio, if it is in its limits."""
    ratio = float(value)
    if not _LEAST_RATIO <= ratio <= 1.0 / _LEAST_RATIO:
        limits = f"{_LEAST_RATIO:g} to {1.0 / _LEAST_RATIO:g}"
        raise ExperimentError(f"{name} must be {limits}, not {ratio:g}")
    return ratio


def chosen(
    policies: Sequence[str], harness: bool = False, uncached: bool = False, words: bool = True
) -> list[PolicySpec]:
    """Return the policies of an experiment, with their harness and uncached versions if wanted.

    Args:
        policies: the user's texts.
        harness: adds those with the limits of `HARNESS`.
        uncached: adds those without a prompt cache.
        words: the experiment has the conditions that words change.

    Raises:
        ExperimentError: no policy is named, or one is not possible or named twice, or has a word
            without effect.
    """
    texts = list(policies)
    if not texts:
        raise ExperimentError(f"no policy is named: choose one of {', '.join(POLICIES)}")
    if harness:
        limited = [f"{text}:harness" for text in policies if _is_unbounded(parse(text))]
        texts += [text for text in limited if text not in texts]
    if uncached:
        texts += [f"{text}:uncached" for text in texts if "uncached" not in parse(text).words]
    specs = [parse(text) for text in texts]
    for place, spec in enumerate(specs):
        if spec.text in texts[:place]:
            raise ExperimentError(f"the policy {spec.text} is named twice")
        if spec.words and not words:
            named = ", ".join(sorted(spec.words))
            raise ExperimentError(
                f"{spec.text}: {named} has no effect in this experiment: name a policy and its own"
                " options"
            )
    return specs


def _is_unbounded(spec: PolicySpec) -> bool:
    known = {**options_of(spec.name), **spec.values}
    return known.keys() >= HARNESS.keys() and all(known[name] is None for name in HARNESS)
