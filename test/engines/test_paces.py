from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from timely_llm.core.clock import VirtualClock
from timely_llm.core.errors import EngineError
from timely_llm.engines.paces import STAGED, pace_profile
from timely_llm.engines.pipelined import PipelinedEngine, PipelineProfile, StageLink
from timely_llm.engines.registry import make_engine
from timely_llm.engines.simulated import PROFILES, Profile

STAGE = {"base_s": 0.01, "row_s": 0.001, "prefill_token_s": 1e-4}
GOOD: dict[str, Any] = {
    "name": "mine", "source": "a test", "stages": [STAGE, {**STAGE, "base_s": 0.02}],
    "links": [{"message_s": 0.001, "token_s": 1e-5}], "blocking": False,
}  # fmt: skip


def written(folder: Path, values: object) -> str:
    file = folder / "profile.yaml"
    file.write_text(values if isinstance(values, str) else yaml.safe_dump(values))
    return f"measured:{file}"


def test_a_file_with_stages_is_a_model_in_stages(tmp_path: Path) -> None:
    profile = pace_profile(written(tmp_path, GOOD))
    assert profile == PipelineProfile(
        "mine", "a test",
        (
            Profile("mine, stage 1", "a test", 0.01, 0.001, 1e-4),
            Profile("mine, stage 2", "a test", 0.02, 0.001, 1e-4),
        ),
        (StageLink(0.001, 1e-5),), blocking=False,
    )  # fmt: skip


def test_a_file_without_stages_and_each_name_are_profiles_as_before(tmp_path: Path) -> None:
    assert isinstance(
        pace_profile(written(tmp_path, {**STAGE, "name": "n", "source": "s"})), Profile
    )
    assert all(pace_profile(name) is profile for name, profile in PROFILES.items())


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"stages": []}, "stages: must not be empty"),
        ({"links": []}, "2 stages and 0 links"),
        ({"kv_tokens": [5]}, "KV limits of 1 stages, not of 2"),
        ({"kv_tokens": [5, 0]}, "kv_tokens.1: must be at least 1, not 0"),
        ({"stages": [STAGE, {**STAGE, "row_s": -1}]}, "stages.1.row_s: must be at least 0, not -1"),
        ({"stages": [STAGE, {**STAGE, "base_s": 0, "row_s": 0}]}, "every step must take some time"),
        ({"links": [{"message_s": 0.1}]}, "token_s"),
        ({"speed": 1}, "unknown field 'speed'"),
    ],
)
def test_what_is_no_model_in_stages_gets_one_sentence(
    tmp_path: Path, change: dict[str, object], complaint: str
) -> None:
    name = written(tmp_path, {**GOOD, **change})
    with pytest.raises(EngineError) as caught:
        pace_profile(name)
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


@given(st.text() | st.dictionaries(st.sampled_from([*GOOD]), st.none() | st.floats() | st.text()))
def test_nothing_but_one_sentence_comes_of_a_wrong_file(
    tmp_path_factory: pytest.TempPathFactory, values: object
) -> None:
    with pytest.raises(EngineError) as caught:
        pace_profile(written(tmp_path_factory.mktemp("any"), values))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("profile", STAGED.values(), ids=list(STAGED))
def test_named_profiles_say_where_they_come_from(profile: PipelineProfile) -> None:
    assert profile.source and profile.name not in PROFILES
    assert pace_profile(profile.name) is profile
    assert "this package's" in profile.source or "measured" in profile.source


def test_an_unknown_name_gets_all_that_are_known() -> None:
    with pytest.raises(EngineError, match="two-boxes"):
        pace_profile("abacus")


def test_the_simulated_engine_has_the_stages_of_its_pace() -> None:
    engine = make_engine("simulated", pace="two-boxes", clock=VirtualClock())
    assert isinstance(engine, PipelinedEngine)
    assert (engine.capacity.stages, engine.capacity.micro_batches) == (2, 2)
    more = make_engine("simulated", pace="two-boxes", clock=VirtualClock(), micro_batches=5)
    assert more.capacity.micro_batches == more.in_flight == 5


@pytest.mark.parametrize(
    ("name", "options", "complaint"),
    [
        (
            "simulated",
            {"pace": "two-boxes", "micro_batches": 1},
            "at least the number of stages, 2",
        ),
        ("simulated", {"micro_batches": 2}, "only 0 is allowed; paces with stages: two-boxes"),
        ("transformers", {"micro_batches": 2}, "the engine transformers has one stage, so only 0"),
        ("vllm", {"pace": "two-boxes"}, "choose a pace of one stage"),
        ("vllm", {"micro_batches": 2, "pace": "millisecond"}, "one step at a time with a pace"),
        ("a_module:Engine", {"pace": "two-boxes"}, "choose a pace of one stage"),
        ("a_module:Engine", {"micro_batches": 3}, "only 0 is allowed"),
        ("simulated", {"pace": "two-boxes", "process": True}, "needs no process"),
    ],
)
def test_other_engines_have_one_stage(name: str, options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(EngineError, match=complaint):
        make_engine(name, **options)
