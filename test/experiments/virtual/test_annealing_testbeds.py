"""Step times of the testbeds of Huang et al. 2025, Figures 12 to 18."""

from __future__ import annotations

import pytest

from timely_llm.core.errors import EngineError
from timely_llm.engines.simulated import PROFILES
from timely_llm.experiments.virtual.annealing_testbeds import (
    LLAMA_7B,
    LLAMA_13B,
    PREDICTORS,
    PROFILE,
    QWEN_7B,
    QWEN_32B,
    TESTBEDS,
    DerivedTestbed,
    lmdeploy_step_s,
    predictor_of,
    profile_of,
)
from timely_llm.experiments.virtual.annealing_workload import g_row, mixed, serve
from timely_llm.policies.fcfs import Fcfs

ALL = pytest.mark.parametrize("testbed", TESTBEDS.values(), ids=map(str, TESTBEDS))


def weights(hidden: int, inner: int, layers: int, kv: int, vocabulary: int) -> int:
    """Return the parameters of a model's layers and of its output, from its `config.json`."""
    attention = 2 * hidden * hidden + 2 * hidden * kv
    return layers * (attention + 3 * hidden * inner) + hidden * vocabulary


def test_weights_follow_from_the_shapes_of_the_models() -> None:
    assert pytest.approx(weights(3584, 18944, 28, 512, 152064), rel=1e-3) == QWEN_7B
    assert pytest.approx(weights(5120, 27648, 64, 1024, 152064), rel=1e-3) == QWEN_32B
    assert pytest.approx(weights(4096, 11008, 32, 4096, 32000), rel=1e-3) == LLAMA_7B
    assert pytest.approx(weights(5120, 13824, 40, 5120, 32000), rel=1e-3) == LLAMA_13B


def test_each_figure_has_the_testbed_of_its_caption() -> None:
    captions = {figure: testbed.title for figure, testbed in TESTBEDS.items()}
    assert captions == {
        12: "Qwen2.5 7B, two V100, LMDeploy",
        13: "Qwen2.5 32B, four V100, vLLM",
        14: "Qwen2.5 32B, four V100, LMDeploy",
        15: "Qwen2.5 7B, one A800, vLLM",
        16: "Qwen2.5 7B, one A800, LMDeploy",
        17: "Qwen2.5 32B, one A800, vLLM",
        18: "Qwen2.5 32B, one A800, LMDeploy",
    }


@pytest.mark.parametrize(("figure", "tokens_per_s"), [(15, 84.28), (17, 22.13)])
def test_a_step_in_vllm_takes_as_long_as_published(figure: int, tokens_per_s: float) -> None:
    profile = TESTBEDS[figure].profile
    assert 1 / profile.step_s(1, context_tokens=1025) == pytest.approx(tokens_per_s)


def test_lmdeploys_line_passes_through_what_is_published() -> None:
    assert 1 / lmdeploy_step_s(LLAMA_7B) == pytest.approx(100.02)
    assert 1 / lmdeploy_step_s(LLAMA_13B) == pytest.approx(57.49)
    for figure, model in ((16, QWEN_7B), (18, QWEN_32B)):
        step_s = TESTBEDS[figure].profile.step_s(1, context_tokens=65)
        assert step_s == pytest.approx(lmdeploy_step_s(model))


@pytest.mark.parametrize(("lmdeploy", "vllm"), [(14, 13), (16, 15), (18, 17)])
def test_lmdeploy_is_faster_than_vllm_by_the_same_share_on_each_device(
    lmdeploy: int, vllm: int
) -> None:
    share = TESTBEDS[lmdeploy].factor / TESTBEDS[vllm].factor
    assert share == pytest.approx(0.90, abs=0.005)
    assert TESTBEDS[12].factor == pytest.approx(TESTBEDS[16].factor / TESTBEDS[15].factor)


def test_the_rule_by_weights_overstates_the_larger_model_by_a_fifth_where_both_are_published() -> (
    None
):
    published = TESTBEDS[17].factor / TESTBEDS[15].factor
    assert (QWEN_32B / QWEN_7B) / published == pytest.approx(1.19, abs=0.005)


@ALL
def test_every_time_is_that_of_table_2_times_the_factor(testbed: DerivedTestbed) -> None:
    read, made = PROFILES[PROFILE], testbed.profile
    for rows, prompt, context in ((1, 0, 0), (4, 0, 2000), (0, 300, 0), (3, 700, 900)):
        expected = testbed.factor * read.step_s(rows, prompt, context)
        assert made.step_s(rows, prompt, context) == pytest.approx(expected)
    assert made.source.startswith("derived: ")


@ALL
def test_a_request_takes_what_the_predictor_says(testbed: DerivedTestbed) -> None:
    trace = mixed(1, 3)
    (talk,) = trace.conversations
    row = g_row(serve(trace, Fcfs(), testbed.profile, 1))
    predicted_s = PREDICTORS[testbed.profile.name].exec_s(1, talk.prompt_tokens, talk.output_tokens)
    assert row["latency_s"] == pytest.approx(predicted_s, rel=0.06)


def test_a_figure_takes_the_place_of_a_profile() -> None:
    assert profile_of(PROFILE, None) is PROFILES[PROFILE]
    assert profile_of(PROFILE, 13) == TESTBEDS[13].profile
    with pytest.raises(EngineError, match="unknown profile 'none'"):
        profile_of("none", None)


def test_a_profile_without_published_coefficients_is_predicted_by_its_step_times() -> None:
    assert predictor_of(PROFILE) is PREDICTORS[PROFILE]
    known = PROFILES["rtx4090-llama3-8b"]
    decode = predictor_of("rtx4090-llama3-8b").decode
    assert decode.delta == known.base_s
    with pytest.raises(EngineError):
        predictor_of("nothing")
