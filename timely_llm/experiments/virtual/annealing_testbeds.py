"""The testbeds of Huang et al. 2025: Table 2 is read, those of Figures 12 to 18 are derived.

The paper has step times of one testbed. Each time of another one is that of Table 2 times a factor:
the ratio of the other testbed's decode step of one row to that of Table 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from timely_llm.engines.paces import step_time_profile
from timely_llm.engines.simulated import Profile
from timely_llm.policies.annealing.latency import (
    V100X2_QWEN25_7B,
    BatchTime,
    LatencyPredictor,
)

PROFILE = "v100x2-qwen2.5-7b"
"""Profile of the testbed of §5.1, from Table 2."""

RULE = (
    "each time is that of Table 2 times a factor, the ratio of a decode step of one row to that of"
    " Table 2"
)

QWEN_7B, QWEN_32B = 7.07e9, 31.98e9
LLAMA_7B, LLAMA_13B = 6.61e9, 12.85e9
"""Weights that a token reads, by the shapes of Qwen2.5 and Llama 2: all but the input embedding."""

_VLLM_S: Mapping[float, float] = {QWEN_7B: 1 / 84.28, QWEN_32B: 1 / 22.13}
"""Seconds of a decode step of one row on an A100 80GB in vLLM 0.6.3, bfloat16, by weights.

Read in Qwen 2024: prompts of 1 token and answers of 2,048. The 32B model ran without CUDA graphs.
"""
_VLLM_CONTEXT = 1025
"""Mean context of a step in it, tokens."""

_LMDEPLOY_S: Mapping[float, float] = {LLAMA_7B: 1 / 100.02, LLAMA_13B: 1 / 57.49}
"""The same in LMDeploy 0.1.0a1, float16, of Llama 2.

Read in LMDeploy 2023: batch 1, prompts of 1 token and answers of 128.
"""
_LMDEPLOY_CONTEXT = 65
"""Mean context of a step in it, tokens."""


def lmdeploy_step_s(weights: float) -> float:
    """Return seconds of a decode step in LMDeploy: the line through its two models on one A100."""
    (least, first_s), (most, last_s) = _LMDEPLOY_S.items()
    return first_s + (last_s - first_s) * (weights - least) / (most - least)


def _over_table_2(step_s: float, context: int) -> float:
    """Return a step of one row over that of Table 2 with the same context."""
    return step_s / step_time_profile(PROFILE).step_s(1, context_tokens=context)


@dataclass(frozen=True)
class DerivedTestbed:
    """A model on a device in an engine.

    Attributes:
        figure: the figure that it was used for.
        model, device, engine: for people.
        factor: its times over those of Table 2.
        source: origin of the factor.
    """

    figure: int
    model: str
    device: str
    engine: str
    factor: float
    source: str

    @property
    def title(self) -> str:
        """What it is, for people."""
        return f"{self.model}, {self.device}, {self.engine}"

    @property
    def profile(self) -> Profile:
        """Its step times."""
        read = step_time_profile(PROFILE)
        return replace(
            read,
            name=f"huang-figure-{self.figure}",
            source=f"derived: {self.title}: Huang et al. 2025, Table 2, times {self.factor:.3f}, "
            + self.source,
            base_s=self.factor * read.base_s,
            row_s=self.factor * read.row_s,
            prefill_token_s=self.factor * read.prefill_token_s,
            context_token_s=self.factor * read.context_token_s,
            prefill_s=self.factor * read.prefill_s,
        )

    @property
    def predictor(self) -> LatencyPredictor:
        """Its predicted times."""
        read = V100X2_QWEN25_7B
        return LatencyPredictor(*(_scaled(one, self.factor) for one in (read.prefill, read.decode)))


def _scaled(time: BatchTime, factor: float) -> BatchTime:
    return BatchTime(*(factor * one for one in (time.alpha, time.beta, time.gamma, time.delta)))


def _testbeds() -> Mapping[int, DerivedTestbed]:
    """Return the testbeds by their figures."""
    small, large = "Qwen2.5 7B", "Qwen2.5 32B"
    of_a_gpu = (QWEN_32B / 4) / (QWEN_7B / 2)
    on_a800 = {w: _over_table_2(s, _VLLM_CONTEXT) for w, s in _VLLM_S.items()}
    lmdeploy = {w: _over_table_2(lmdeploy_step_s(w), _LMDEPLOY_CONTEXT) for w in on_a800}
    ratio = {w: lmdeploy[w] / on_a800[w] for w in on_a800}
    by_ratio = "by LMDeploy's step over vLLM's on one A100"
    by_weights = "by the weights that each GPU reads"
    by_qwen = "by {:g} tokens a second, read in Qwen 2024, on one A100 in vLLM 0.6.3"
    by_line = (
        "by the line over weights through 100.02 and 57.49 tokens a second of Llama 2 7B and 13B,"
        " read in LMDeploy 2023, on one A100"
    )
    made = (
        DerivedTestbed(12, small, "two V100", "LMDeploy", ratio[QWEN_7B], by_ratio),
        DerivedTestbed(13, large, "four V100", "vLLM", of_a_gpu, by_weights),
        DerivedTestbed(
            14, large, "four V100", "LMDeploy", of_a_gpu * ratio[QWEN_32B],
            f"{by_weights}, and {by_ratio}",
        ),
        DerivedTestbed(15, small, "one A800", "vLLM", on_a800[QWEN_7B], by_qwen.format(84.28)),
        DerivedTestbed(16, small, "one A800", "LMDeploy", lmdeploy[QWEN_7B], by_line),
        DerivedTestbed(17, large, "one A800", "vLLM", on_a800[QWEN_32B], by_qwen.format(22.13)),
        DerivedTestbed(18, large, "one A800", "LMDeploy", lmdeploy[QWEN_32B], by_line),
    )  # fmt: skip
    return {one.figure: one for one in made}


TESTBEDS = _testbeds()
"""Testbeds of Figures 12 to 18. One A800 is taken to be as fast as one A100 80GB: they differ in
the links between GPUs."""

PREDICTORS: Mapping[str, LatencyPredictor] = {
    PROFILE: V100X2_QWEN25_7B,
    **{one.profile.name: one.predictor for one in TESTBEDS.values()},
}
"""Predictors by profile, those of Table 2 and derived from it."""


def profile_of(name: str, figure: int | None) -> Profile:
    """Return the step times of a figure's testbed, or without one those of a profile.

    Raises:
        EngineError: there is no profile of that name.
    """
    return step_time_profile(name) if figure is None else TESTBEDS[figure].profile


def predictor_of(profile: str) -> LatencyPredictor:
    """Return the predictor of a profile: one of `PREDICTORS`, or that of its step times.

    Raises:
        EngineError: there is no profile of that name.
    """
    if profile in PREDICTORS:
        return PREDICTORS[profile]
    known = step_time_profile(profile)
    return LatencyPredictor.of_step(
        (known.base_s, known.row_s, known.prefill_token_s, known.context_token_s)
    )
