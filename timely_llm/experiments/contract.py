"""What an experiment is: a question, the options it understands, and a run that answers it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from timely_llm.core.errors import TimelyError
from timely_llm.engines.profiles import DEFAULT_PROFILE
from timely_llm.experiments.document import RunDocument
from timely_llm.experiments.stage import Progress


class ExperimentError(TimelyError):
    """An experiment cannot be run as it was asked for."""


@dataclass(frozen=True)
class Options:
    """What a user may change; an experiment ignores none of those that it understands.

    Attributes:
        policies: in the notation of `policy_spec`.
        loads: how often every job is asked.
        seeds: how many, from 0 on.
        trace: a file of jobs, instead of the experiment's own workloads.
        profile: name of the step times.
        harness: also the baselines under the limits of paper 001's code.
        uncached: also every policy with nothing of the prompts computed before.
        error: standard deviation of the logarithm of predicted over true execution times.
        noise: the same, of true execution times over the trace's.
        network_s: seconds of a message, each way.
        jobs: processes that work at once.
        engine: "simulated" in virtual time, or a real one in real time.
        seconds: of each workload in real time.
        rates: conversations a second.
        ratios: shares of real-time tasks among them.
        lengths: of their answers, in the notation of `slice_workload.Lengths`.
        bounds: most tokens that they declare, over those of the longest answer of their kind.
        charged: prompts of conversations take time, which paper 000's experiments leave out.
        model: folder, or id on the Hugging Face hub; empty: the embedded one.
        engine_args: options of vLLM's own, each `name=value`.
        scripted: sequences say the workload's segments, whatever a real engine's model says.
        own_pace: a real engine's steps take as long as they take, whatever the profile says.
        requests: how many are served at a time.
        tokens: of each answer.
        repeats: how often an engine is measured.
    """

    policies: tuple[str, ...] = ()
    loads: tuple[int, ...] = (1,)
    seeds: int = 5
    trace: Path | None = None
    profile: str = DEFAULT_PROFILE
    harness: bool = False
    uncached: bool = False
    error: float = 0.2
    noise: float = 0.0
    network_s: float = 0.001
    jobs: int = 2
    engine: str = "simulated"
    seconds: float = 60.0
    rates: tuple[float, ...] = (1.0,)
    ratios: tuple[float, ...] = (0.7,)
    lengths: tuple[str, ...] = ("8-25:40-160",)
    bounds: tuple[float, ...] = (1.0,)
    charged: bool = False
    model: str = ""
    engine_args: tuple[str, ...] = ()
    scripted: bool = False
    own_pace: bool = False
    requests: tuple[int, ...] = (1, 8, 64, 256)
    tokens: int = 64
    repeats: int = 5


STOCK = ("vllm-fcfs", "vllm-priority")
"""Stock vLLM's own schedulers, baselines where vLLM is the engine."""

_REAL_TIME = frozenset(("engine", "seconds", "model", "engine_args", "scripted", "own_pace"))
_TALKS = frozenset(("rates", "ratios", "lengths", "bounds", "charged"))
OF_ENGINES = frozenset(("engine", "model", "engine_args", "tokens", "repeats"))
"""Options of experiments that measure an engine itself."""

SIMULATED = (
    frozenset(Options.__dataclass_fields__) - _REAL_TIME - _TALKS - OF_ENGINES - {"requests"}
)
"""Options of experiments with plans in virtual time: all others."""

TALKS = _TALKS | {"policies", "seeds", "profile", "network_s", "jobs"}
"""Options of experiments with conversations alone."""


@dataclass(frozen=True)
class Experiment:
    """One figure or table of a paper.

    Attributes:
        name: what users call it.
        question: what it asks, one sentence.
        run: answers it. Called with options and a progress that takes parts done and all parts;
            leaves `command` of the document empty. It raises a TimelyError if it cannot.
        defaults: what its options are if nobody says otherwise.
        understands: names of the options that change it.
        real_time: what its options are with a real engine; None if it is for virtual time alone.
    """

    name: str
    question: str
    run: Callable[[Options, Progress], RunDocument]
    defaults: Options = field(default_factory=Options)
    understands: frozenset[str] = SIMULATED
    real_time: Options | None = None

    def options(self, **given: Any) -> Options:
        """Return its defaults with what was given.

        Raises:
            ExperimentError: it does not understand one of them.
        """
        understands, defaults = self.understands, self.defaults
        if self.real_time is not None:
            understands |= _REAL_TIME
            if given.get("engine", defaults.engine) != defaults.engine:
                defaults = self.real_time
            elif without := sorted(given.keys() & _REAL_TIME - {"engine"}):
                raise ExperimentError(f"{self.name}: {without[0]} is for a real engine: name one")
            if given.get("engine") == "vllm":
                defaults = replace(defaults, policies=(*STOCK, *defaults.policies))
        for name in given:
            if name not in understands:
                known = ", ".join(sorted(understands)) or "none"
                raise ExperimentError(f"{self.name} has no option {name}, only: {known}")
        return replace(defaults, **given)
