"""Profiles of engines in stages: their fit to measured steps, a stage and a link at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from statistics import median

from timely_llm.core.errors import ConfigurationError
from timely_llm.core.step import StageTimes
from timely_llm.engines.pipelined import PipelineProfile, StageLink
from timely_llm.engines.simulated import Profile
from timely_llm.policies.micro_batches.layer_split import LayerSplit, split_layers
from timely_llm.profiling.engine_steps import MeasuredStep
from timely_llm.profiling.step_profile import (
    StepFit,
    error_quantiles,
    fit_profile,
    four_digits,
    predicted_s,
    relative_fit,
)

WHOLE = "whole step"
"""Name of a step's way through all stages."""

ROWS = 16
"""Decoding sequences of the step for which layers are split."""

_SHORTEST_S = 1e-9
"""Least seconds of a transfer, so that errors relative to it exist."""


@dataclass(frozen=True)
class PipelineFit:
    """A profile with stages and its errors.

    Attributes:
        profile: fitted to the seen steps.
        stages: fit of each stage.
        steps: all measured steps.
        errors: median and 95th percentile of |predicted - measured| / measured of unseen steps, by
            the names of `parts`.
    """

    profile: PipelineProfile
    stages: tuple[StepFit, ...]
    steps: tuple[MeasuredStep, ...]
    errors: Mapping[str, tuple[float, float]]


def fit_pipeline(steps: Sequence[MeasuredStep], name: str, source: str) -> PipelineFit:
    """Return the profile that fits the times of each stage and each link best.

    A stage is fitted as by `fit_profile`. A link is `message_s` and `token_s` for each token of a
    step. Transfers block if one keeps the first stage for at least half of its time.

    Args:
        steps: measured steps with times of stages, some of them unseen.
        name: name of the profile.
        source: text about the measurement; the errors are appended.

    Raises:
        ConfigurationError: a step has no times of stages, or there are no seen or no unseen steps.
    """
    times = [step.stages for step in steps if step.stages is not None]
    if not times or len(times) < len(steps):
        raise ConfigurationError("a profile with stages needs steps with times of each stage")
    stages = tuple(
        fit_profile(
            [replace(step, seconds=one.stage_s[stage])
             for step, one in zip(steps, times, strict=True)],
            f"{name}, stage {stage + 1}", source,
        )
        for stage in range(len(times[0].stage_s))
    )  # fmt: skip
    links = tuple(_link(steps, times, link) for link in range(len(times[0].link_s)))
    profile = PipelineProfile(
        name, source, tuple(fit.profile for fit in stages), links, _blocks(times)
    )
    unseen = [parts(profile, step) for step in steps if step.setting.unseen]
    errors = {
        part: error_quantiles(predicted / measured - 1.0 for measured, predicted in found)
        for part in unseen[0]
        for found in [[one[part] for one in unseen]]
    }
    source += "; error on unseen steps, median and 95th percentile: " + ", ".join(
        f"{part} {middle:.1%} and {high:.1%}" for part, (middle, high) in errors.items()
    )
    named = tuple(replace(stage, source=source) for stage in profile.stages)
    profile = replace(profile, source=source, stages=named)
    return PipelineFit(profile, stages, tuple(steps), errors)


def parts(profile: PipelineProfile, step: MeasuredStep) -> dict[str, tuple[float, float]]:
    """Return the seconds of each stage, each link and the whole step: measured, and predicted.

    The predicted whole step is the sum of all stages and links.
    """
    assert step.stages is not None
    stages = [
        (seconds, predicted_s(stage, step))
        for stage, seconds in zip(profile.stages, step.stages.stage_s, strict=True)
    ]
    links = [
        (max(seconds, _SHORTEST_S), link.transfer_s(_tokens(step)))
        for link, seconds in zip(profile.links, step.stages.link_s, strict=True)
    ]
    return {
        **{f"stage {number}": pair for number, pair in enumerate(stages, 1)},
        **{f"link {number}": pair for number, pair in enumerate(links, 1)},
        WHOLE: (step.seconds, sum(predicted for _, predicted in (*stages, *links))),
    }


def layer_splits(
    profile: PipelineProfile, layers: Sequence[int], most: Sequence[int] = ()
) -> tuple[LayerSplit, LayerSplit]:
    """Return the layers of the stages as they are, and the split with the least bottleneck.

    Both are for a step of `ROWS` rows. A layer is taken to need its share of its stage's seconds,
    the constant part included. A box that is left out passes hidden states on.

    Args:
        profile: seconds of stages and links.
        layers: layers of each stage with which these were measured.
        most: layers that the memory of each box can hold; empty: any number.

    Raises:
        ConfigurationError: the numbers do not fit the stages, or no split fits.
    """
    stages, whole = len(profile.stages), sum(layers)
    if len(layers) != stages or len(most) not in (0, stages) or min(*layers, *most) < 1:
        raise ConfigurationError(
            f"{stages} stages need {stages} numbers of layers, each at least 1, not"
            f" {','.join(map(str, layers))}{' and ' if most else ''}{','.join(map(str, most))}"
        )
    layers_s = [
        [stage.step_s(ROWS) / number] * whole
        for stage, number in zip(profile.stages, layers, strict=True)
    ]
    sent_s = [0.0, *accumulate(link.transfer_s(ROWS) for link in profile.links)]
    links_s = [[after - before for after in sent_s] for before in sent_s]
    return (
        split_layers(layers_s, links_s, layers, profile.blocking),
        split_layers(layers_s, links_s, most or None, profile.blocking),
    )


def split_sentences(
    profile: Profile | PipelineProfile, layers: Sequence[int], most: Sequence[int] = ()
) -> list[str]:
    """Return what the measured split and the best one take, for users; see `layer_splits`.

    Raises:
        ConfigurationError: the profile has no stages, or as `layer_splits`.
    """
    if not isinstance(profile, PipelineProfile):
        raise ConfigurationError("layers are split for an engine with known times of its stages")
    now, best = layer_splits(profile, layers, most)
    return [
        f"{words}{','.join(map(str, split.layers))}: a step of {ROWS} rows keeps the busiest stage"
        f" or link for {1e3 * split.bottleneck_s:.3g} ms, and takes {1e3 * split.latency_s:.3g} ms"
        for words, split in (("Layers as measured, ", now), ("VLLM_PP_LAYER_PARTITION=", best))
    ]


def _tokens(step: MeasuredStep) -> int:
    """Return the tokens of a step; the hidden states of all of them pass each link."""
    return step.setting.rows + step.setting.chunk


def _link(steps: Sequence[MeasuredStep], times: Sequence[StageTimes], link: int) -> StageLink:
    seen = [
        (_tokens(step), max(one.link_s[link], _SHORTEST_S))
        for step, one in zip(steps, times, strict=True)
        if not step.setting.unseen
    ]
    found = relative_fit([[1.0, tokens] for tokens, _ in seen], [seconds for _, seconds in seen])
    return StageLink(*(four_digits(float(value)) for value in found))


def _blocks(times: Sequence[StageTimes]) -> bool:
    """Return whether a transfer keeps the first stage from computing."""
    shares = [one.blocked_s[0] - one.link_s[0] / 2 for one in times if one.link_s]
    return not shares or median(shares) >= 0.0
