"""Methods by name, with options, such as `pice:batch=4:merge=off`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from timely_llm.core.options import read_options
from timely_llm.core.text import quoted
from timely_llm.engines.simulated import PROFILES
from timely_llm.experiments.contract import ExperimentError
from timely_llm.experiments.virtual.sketches.bench import Bench, Method
from timely_llm.experiments.virtual.sketches.methods import (
    CloudOnly,
    EdgeOnly,
    EdgeRules,
    Routing,
    RoutingRules,
    SkeletonOfThought,
    Speculative,
)
from timely_llm.experiments.virtual.sketches.ours import Ours, OursRules
from timely_llm.experiments.virtual.sketches.pice import Pice, PiceRules
from timely_llm.experiments.virtual.sketches.testbed import Devices

DRAFT = "qwen2.5-1.5b"


@dataclass(frozen=True)
class NoRules:
    """A method without options."""


class MethodKind(NamedTuple):
    """A kind of method.

    Attributes:
        rules: its options with their defaults.
        make: bench, devices, rules -> a new method.
    """

    rules: Any
    make: Callable[[Bench, Devices, Any], Method]


def _speculative(bench: Bench, devices: Devices, rules: NoRules) -> Method:
    """Return a cloud with a draft model, if there is a smaller one."""
    far = devices.far
    if not far.small:
        return CloudOnly(bench, devices)
    return CloudOnly(bench, devices, Speculative(far.profile, PROFILES[f"a100x4-{DRAFT}"]))


METHODS: Mapping[str, MethodKind] = {
    "cloud-only": MethodKind(NoRules(), lambda bench, devices, rules: CloudOnly(bench, devices)),
    "edge-only": MethodKind(EdgeRules(), EdgeOnly),
    "routing": MethodKind(RoutingRules(), Routing),
    "skeleton": MethodKind(
        NoRules(), lambda bench, devices, rules: SkeletonOfThought(bench, devices)
    ),
    "speculative": MethodKind(NoRules(), _speculative),
    "pice-static": MethodKind(PiceRules(static=True), Pice),
    "pice": MethodKind(PiceRules(), Pice),
    "sketches": MethodKind(OursRules(), Ours),
}


def method(text: str) -> Callable[[Bench, Devices], Method]:
    """Return what makes a method.

    Raises:
        ExperimentError: there is no method of that name.
        ConfigurationError: an option is not possible.
    """
    name, *options = text.split(":")
    if name not in METHODS:
        allowed = ", ".join(METHODS)
        raise ExperimentError(f"unknown method {quoted(name)}: choose one of {allowed}")
    kind = METHODS[name]
    known = asdict(kind.rules)
    rules = type(kind.rules)(**{**known, **read_options(name, known, options)})
    return lambda bench, devices: kind.make(bench, devices, rules)
