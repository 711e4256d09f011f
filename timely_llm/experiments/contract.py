"""What an experiment is: a question, the options it understands, and a run that answers it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from timely_llm.core.errors import TimelyError
from timely_llm.core.text import quoted
from timely_llm.engines.simulated import DEFAULT_PROFILE
from timely_llm.experiments.results.document import RowValue, RunDocument
from timely_llm.experiments.virtual.durations import DURATIONS, MODEL, NOISY
from timely_llm.resources import EMBEDDED_MODEL, resource

ReportProgress = Callable[[int, int], None]
"""Called with the done and with all of what an experiment counts."""


class ExperimentError(TimelyError):
    """An experiment cannot run with these options."""


@dataclass(frozen=True)
class Options:
    """The options of an experiment: every field is an option, with its default.

    Each experiment has a subclass of its own in its catalog module. A subclass that fixes a field
    of its base declares it again with `field(default=..., init=False)`: it is no option then.
    """


@dataclass(frozen=True)
class ModelOptions(Options):
    """Options of experiments that run a real model.

    Attributes:
        model: folder, or id on the Hugging Face hub; empty for the embedded model.
        engine_args: vLLM's own options, each `name=value`.
    """

    model: str = ""
    engine_args: tuple[str, ...] = ()

    @property
    def model_path(self) -> str | Path:
        """Where the model is."""
        return self.model or resource(EMBEDDED_MODEL)

    @property
    def model_name(self) -> str:
        """The model, for people."""
        return self.model or "the embedded model"


@dataclass(frozen=True)
class SimulationOptions(Options):
    """Options of experiments that compare policies in virtual time.

    Attributes:
        policies: in the notation of `policy_spec`.
        profile: name of the step-time profile.
        network_s: seconds of a message, each way.
        jobs: processes that run at once.
    """

    policies: tuple[str, ...] = ()
    profile: str = DEFAULT_PROFILE
    network_s: float = 0.001
    jobs: int = 2


@dataclass(frozen=True)
class SeedOptions(Options):
    """Options of experiments that run once for each seed.

    Attributes:
        seeds: number of seeds.
        first_seed: the first of them; the others follow it.
    """

    seeds: int = 5
    first_seed: int = 0

    @property
    def each_seed(self) -> range:
        """One seed for each run, ascending."""
        return range(self.first_seed, self.first_seed + self.seeds)

    @property
    def named_seeds(self) -> str:
        """The seeds, for people: "0 to 4"."""
        return f"{self.first_seed} to {self.each_seed[-1]}"


@dataclass(frozen=True)
class PlanOptions(SeedOptions, SimulationOptions):
    """Options of experiments with plans.

    Attributes:
        loads: requests for each job of the trace.
        minutes: length of a composed workload; None: as its preset says.
        harness: adds the baselines under the limits of the code of Ling et al. 2024.
        uncached: adds every policy without a prompt cache.
        error: standard deviation of the logarithm of predicted over true execution times.
        noise: standard deviation of the logarithm of true execution times over the trace's.
    """

    loads: tuple[int, ...] = (1,)
    minutes: float | None = None
    harness: bool = False
    uncached: bool = False
    error: float = 0.2
    noise: float = 0.0


@dataclass(frozen=True)
class WorkloadOptions(PlanOptions):
    """Options of experiments with plans of a workload that a user may replace.

    Attributes:
        trace: a file of jobs in place of the experiment's workloads.
        explain: timelines give the reasons of waits; not an option of experiments without
            timelines.
        durations: where predicted execution times come from, one of `DURATIONS`.

    Raises:
        ExperimentError: `durations` has another value.
    """

    trace: Path | None = None
    explain: bool = False
    durations: str = NOISY

    def __post_init__(self) -> None:
        if self.predicted not in DURATIONS:
            allowed = " or ".join(DURATIONS)
            raise ExperimentError(f"durations must be {allowed}, not {quoted(self.durations)}")

    @property
    def predicted(self) -> str:
        """Where predicted execution times come from: `durations`, or by the workload if empty."""
        return self.durations or (MODEL if self.trace is None else NOISY)


@dataclass(frozen=True)
class PaperOptions(WorkloadOptions):
    """Options of the experiments of Ling et al. 2024, with its network and its model of times.

    Attributes:
        network_s: the paper's (§7.2).
        durations: empty: `MODEL` for composed workloads (§4.3), which have the calls of all plans;
            `NOISY` for a user's trace, which may have none.
    """

    network_s: float = 0.008
    durations: str = ""


@dataclass(frozen=True)
class RealTimeOptions(ModelOptions, WorkloadOptions):
    """Options of experiments that also run on a real engine, in real time.

    Attributes:
        engine: "simulated" for virtual time, or a real engine for real time.
        seconds: length of each workload in real time.
        scripted: sequences produce the workload's segments in place of the model's tokens.
        own_pace: steps of a real engine are not stretched to the profile.
    """

    engine: str = "simulated"
    seconds: float = 60.0
    scripted: bool = False
    own_pace: bool = False


@dataclass(frozen=True)
class EngineOptions(ModelOptions):
    """Options of experiments that measure an engine itself.

    Attributes:
        engine: the engine's name.
        tokens: tokens of each answer.
        repeats: number of measurements.

    Raises:
        ExperimentError: the engine is simulated.
    """

    engine: str = "vllm"
    tokens: int = 64
    repeats: int = 5

    def __post_init__(self) -> None:
        if self.engine == "simulated":
            raise ExperimentError("a simulated engine takes no time: name vllm or transformers")

    @property
    def setup(self) -> dict[str, RowValue]:
        """The engine and its model, for a run document."""
        return {"engine": self.engine, "model": self.model_name}


def _names(options: Options | type[Options]) -> frozenset[str]:
    return frozenset(option.name for option in fields(options) if option.init)


STOCK = ("vllm-fcfs", "vllm-priority")
"""vLLM's own schedulers: baselines where vLLM is the engine."""

REASONS: Mapping[str, str] = {
    "trace": "since it composes its own requests",
    "first_seed": "since nothing in it is random",
}
"""Why an experiment lacks an option that most experiments have."""

_REAL_TIME = _names(RealTimeOptions) - _names(WorkloadOptions)
AnyOptions = TypeVar("AnyOptions", bound=Options)


@dataclass(frozen=True)
class Experiment(Generic[AnyOptions]):
    """One figure or table of a paper.

    Attributes:
        name: name of its command.
        question: one sentence.
        run: answers the question. Its arguments are options and a progress callback, which takes
            the finished and the total number of parts. It leaves `command` of the document empty.
            It raises a TimelyError if the options are not possible.
        defaults: its options with their defaults.
        real_time: its defaults with a real engine; None if it runs in virtual time only.
        reasons: why it lacks an option that most experiments have, in place of `REASONS`.
    """

    name: str
    question: str
    run: Callable[[AnyOptions, ReportProgress], RunDocument]
    defaults: AnyOptions
    real_time: AnyOptions | None = None
    reasons: Mapping[str, str] = field(default_factory=dict)

    def document(self, profile: str, setup: Mapping[str, RowValue], **parts: Any) -> RunDocument:
        """Return a run document with the experiment's name and question.

        Args:
            profile: name of the step-time profile, or of the measured engine.
            setup: conditions of the run.
            parts: further fields of `RunDocument`.
        """
        return RunDocument(
            experiment=self.name, question=self.question, profile=profile, setup=dict(setup),
            **parts,
        )  # fmt: skip

    def options(self, **given: Any) -> AnyOptions:
        """Return the defaults, with the given options replaced.

        Raises:
            ExperimentError: the experiment has no such option.
        """
        understands, defaults, changed = _names(self.defaults), self.defaults, {}
        if self.real_time is not None:
            virtual: Any = self.defaults
            live: Any = self.real_time
            if given.get("engine", virtual.engine) != virtual.engine:
                defaults = live
                if given.get("explain"):
                    raise ExperimentError(f"{self.name}: explain is for virtual time: no engine")
            elif without := sorted(given.keys() & _REAL_TIME - {"engine"}):
                raise ExperimentError(f"{self.name}: {without[0]} is for a real engine: name one")
            if given.get("engine") == "vllm":
                changed = {"policies": (*STOCK, *live.policies)}
        for name in given:
            if name not in understands:
                known = ", ".join(sorted(understands)) or "none"
                why = {**REASONS, **self.reasons}.get(name, f"only: {known}")
                raise ExperimentError(f"{self.name} has no option {name}, {why}")
        return replace(defaults, **{**changed, **given})
