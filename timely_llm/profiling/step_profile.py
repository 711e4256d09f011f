"""Step-time profiles: their fit to measured steps, whole or a stage at a time, and their files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path
from statistics import median

import numpy as np
import yaml
from numpy.typing import NDArray

from timely_llm.core.errors import ConfigurationError
from timely_llm.core.output_file import YAML, write_text
from timely_llm.core.step import StageTimes
from timely_llm.engines.paces import MEASURED
from timely_llm.engines.pipeline_profiles import LayerSplit, split_layers
from timely_llm.engines.pipelined import PipelineProfile, StageLink
from timely_llm.engines.simulated import LONG_PROMPT, Profile
from timely_llm.profiling.engine_steps import MeasuredStep

Array = NDArray[np.float64]

KNOTS = (0, 1, 2, 4, 8, 16, 32, 64, 128)
"""Rows between which step time is linear. The last is the most that `measure` measures."""

TURNS = 20
_HUBER = 1.345

WHOLE = "whole step"
"""Name of a step's way through all stages."""

ROWS = 16
"""Decoding sequences of the step for which layers are split."""

_SHORTEST_S = 1e-9
"""Least seconds of a transfer, so that errors relative to it exist."""


@dataclass(frozen=True)
class StepFit:
    """A profile and its errors.

    Attributes:
        profile: fitted to the seen steps.
        steps: all measured steps.
        median_error, p95_error: quantiles of |predicted - measured| / measured of unseen steps.
    """

    profile: Profile
    steps: tuple[MeasuredStep, ...]
    median_error: float
    p95_error: float


def fit_profile(steps: Sequence[MeasuredStep], name: str, source: str) -> StepFit:
    """Return the profile that fits the steps best; no coefficient is negative.

    Errors are relative to the step time. Huber's weights bound the influence of disturbed steps.

    Args:
        steps: measured steps, some of them unseen.
        name: name of the profile.
        source: text about the measurement; the errors are appended.

    Raises:
        ConfigurationError: there are no seen or no unseen steps.
    """
    seen = [step for step in steps if not step.setting.unseen]
    unseen = [step for step in steps if step.setting.unseen]
    if not seen or not unseen:
        raise ConfigurationError("a profile needs steps to fit and other steps to test it with")
    profile = _profile(
        relative_fit([_terms(step) for step in seen], [step.seconds for step in seen]), name, source
    )
    middle, high = error_quantiles(relative_error(profile, step) for step in unseen)
    source += f"; error on unseen steps: median {middle:.1%}, 95th percentile {high:.1%}"
    return StepFit(replace(profile, source=source), tuple(steps), middle, high)


def predicted_s(profile: Profile, step: MeasuredStep) -> float:
    """Return the predicted seconds of a step."""
    return profile.step_s(step.setting.rows, step.setting.chunk, step.context_tokens)


def relative_error(profile: Profile, step: MeasuredStep) -> float:
    """Return (predicted - measured) / measured."""
    return predicted_s(profile, step) / step.seconds - 1.0


def error_quantiles(errors: Iterable[float]) -> tuple[float, float]:
    """Return the median and the 95th percentile of absolute errors."""
    median, p95 = np.quantile(np.abs(list(errors)), (0.5, 0.95))
    return float(median), float(p95)


def profile_values(profile: Profile | PipelineProfile) -> dict[str, object]:
    """Return a profile as it stands in a file."""
    if isinstance(profile, Profile):
        return {**vars(profile), "table_s": list(profile.table_s)}
    stages = [profile_values(stage) for stage in profile.stages]
    for stage in stages:
        del stage["name"], stage["source"]
    return {
        **vars(profile),
        "stages": stages,
        "links": [vars(link) for link in profile.links],
        "kv_tokens": list(profile.kv_tokens),
    }


def write_profile(profile: Profile | PipelineProfile, path: Path) -> None:
    """Write a profile as YAML for `engines.paces.pace_profile`.

    Raises:
        OutputFileError: the file cannot be written, or exists and is not YAML.
    """
    values = profile_values(profile)
    text = yaml.safe_dump(
        values, sort_keys=False, allow_unicode=True, default_flow_style=None, width=100
    )
    head = f"# Seconds of an engine's steps. Wherever a profile is named: {MEASURED}FILE\n"
    write_text(path, YAML, head + text)


def non_negative(columns: Array, target: Array) -> Array:
    """Return the x >= 0 with the least |columns @ x - target| (Lawson and Hanson 1974, NNLS).

    Args:
        columns: shape (equations, unknowns); no column is all 0.
        target: shape (equations,).
    """
    scale = np.linalg.norm(columns, axis=0)
    a = columns / scale
    x: Array = np.zeros(a.shape[1])
    free = np.zeros(len(x), bool)
    for _ in range(3 * len(x)):
        gain = np.where(free, -np.inf, a.T @ (target - a @ x))
        if np.max(gain) <= 1e-10 * np.linalg.norm(target):
            break
        free[np.argmax(gain)] = True
        while np.min((trial := _solved(a, target, free))[free], initial=np.inf) <= 0:
            below = free & (trial <= 0)
            x += np.min(x[below] / (x[below] - trial[below])) * (trial - x)
            free &= x > 1e-12
            x[~free] = 0.0
        x = trial
    return np.asarray(x / scale, float)


def relative_fit(terms: Sequence[Sequence[float]], seconds: Sequence[float]) -> Array:
    """Return the seconds of each term, none negative; errors are relative to the seconds.

    Args:
        terms: factors of the terms in each step.
        seconds: of each step, above 0.
    """
    shares = np.array(terms) / np.array(seconds)[:, None]
    weights = np.ones(len(shares))
    found = non_negative(shares, np.ones(len(shares)))
    for _ in range(TURNS):
        away = np.abs(1.0 - shares @ found)
        unit = 1.4826 * float(np.median(away))
        if unit <= 1e-9:
            break
        weights = np.minimum(1.0, _HUBER * unit / np.maximum(away, 1e-300))
        root = np.sqrt(weights)
        found = non_negative(shares * root[:, None], root)
    return found


def _solved(a: Array, target: Array, free: NDArray[np.bool_]) -> Array:
    """Return the least-squares solution with 0 for all unknowns that are not free."""
    x: Array = np.zeros(a.shape[1])
    x[free] = np.linalg.lstsq(a[:, free], target, rcond=None)[0]
    return x


def _terms(step: MeasuredStep) -> list[float]:
    """Return the factors of the coefficients.

    They are 1, whether the step computes a prompt, its first `LONG_PROMPT` prompt tokens and those
    after them, its context tokens, and its rows between each two knots.
    """
    rows, chunk = step.setting.rows, step.setting.chunk
    between = [min(max(rows - low, 0), high - low) for low, high in pairwise(KNOTS)]
    first = min(chunk, LONG_PROMPT)
    return [1.0, float(chunk > 0), first, chunk - first, step.context_tokens, *between]


def _profile(coefficients: Array, name: str, source: str) -> Profile:
    base_s, prefill_s, token_s, long_token_s, context_token_s, *slopes = map(float, coefficients)
    rows = np.arange(1, KNOTS[-1] + 1)
    table = np.interp(rows, KNOTS, np.cumsum([base_s, *np.multiply(slopes, np.diff(KNOTS))]))
    # Readers without the table use a line: the one with the least relative error.
    lever = rows / table
    row_s = float(lever @ (1.0 - base_s / table) / (lever @ lever))
    return Profile(
        name, source, four_digits(base_s), four_digits(row_s), four_digits(token_s),
        four_digits(context_token_s), four_digits(prefill_s), tuple(map(four_digits, table)),
        four_digits(slopes[-1]), long_prefill_token_s=four_digits(long_token_s),
    )  # fmt: skip


def four_digits(value: float) -> float:
    """Return a number rounded to four digits."""
    return float(f"{value:.4g}")


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
    step. Transfers block if one keeps the first stage for at least half of its time. The overhead
    is the median of what whole steps take longer than their stages and links.

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
        name, source, tuple(fit.profile for fit in stages), links, _blocks(times),
        overhead_s=_overhead(steps),
    )  # fmt: skip
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

    The predicted whole step is the sum of all stages and links, and the overhead.
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
        WHOLE: (
            step.seconds,
            profile.overhead_s + sum(predicted for _, predicted in (*stages, *links)),
        ),
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


def _overhead(steps: Sequence[MeasuredStep]) -> float:
    """Return the seconds of a step that are in no stage and on no link."""
    left = [
        step.seconds - sum((*step.stages.stage_s, *step.stages.link_s))
        for step in steps
        if step.stages is not None and not step.setting.unseen
    ]
    return four_digits(max(median(left), 0.0))


def _blocks(times: Sequence[StageTimes]) -> bool:
    """Return whether a transfer keeps the first stage from computing."""
    shares = [one.blocked_s[0] - one.link_s[0] / 2 for one in times if one.link_s]
    return not shares or median(shares) >= 0.0
