from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from timely_llm.core.errors import EngineError
from timely_llm.engines.paces import read_profile, step_time_profile
from timely_llm.engines.simulated import PROFILES, Profile

GOOD = {"name": "mine", "source": "a test", "base_s": 0.01, "row_s": 0.001, "prefill_token_s": 1e-4}


def written(folder: Path, values: object) -> Path:
    file = folder / "profile.yaml"
    file.write_text(values if isinstance(values, str) else yaml.safe_dump(values))
    return file


def test_a_file_is_a_profile_wherever_a_name_is_one(tmp_path: Path) -> None:
    file = written(tmp_path, {**GOOD, "table_s": [0.02, 0.03], "beyond_s": 0.5})
    profile = step_time_profile(f"measured:{file}")
    assert profile == Profile(
        "mine", "a test", 0.01, 0.001, 1e-4, table_s=(0.02, 0.03), beyond_s=0.5
    )
    assert profile.step_s(rows=4, prefill_tokens=10) == pytest.approx(0.03 + 2 * 0.5 + 0.001)


def test_the_released_step_times_are_those_of_the_code() -> None:
    released = step_time_profile("rtx4060ti-released")
    milliseconds = [round(1e3 * released.step_s(rows), 6) for rows in (1, 7, 8, 9, 10, 15, 200)]
    assert milliseconds == [14, 83, 125, 126, 123, 124, 124]
    assert "FindJob" in released.source


@pytest.mark.parametrize("profile", PROFILES.values(), ids=list(PROFILES))
def test_a_profile_says_which_constants_are_read_and_which_are_not(profile: Profile) -> None:
    measured = profile.source.startswith("measured by timely-llm profile")
    if not measured and profile.name != "millisecond":
        assert "read" in profile.source
        assert (
            "derived" in profile.source
            or "this package's" in profile.source
            or ("as on" in profile.source)
        )


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"row_s": -0.1}, "row_s: must be at least 0, not -0.1"),
        ({"row_s": float("nan")}, "row_s: must be a finite number"),
        ({"row_s": float("inf")}, "row_s: must be a finite number"),
        ({"row_s": "fast"}, "row_s: must be a number, not 'fast'"),
        ({"base_s": 3601}, "base_s: must be at most 3600, not 3601"),
        ({"speed": 1}, "unknown field 'speed'"),
        ({"table_s": [0.1] * 4097}, "table_s: must have at most 4096 entries, not 4097"),
        ({"table_s": [0.1, -1]}, "table_s.1: must be at least 0, not -1"),
        ({"name": ""}, "name: must not be empty"),
        ({"source": "red \x1b[31m"}, "the text at source holds '\\x1b' at place 4"),
        ({"source": "two\nlines"}, "source: must be one line of printable characters"),
        ({"base_s": 0, "row_s": 0}, "every step must take some time"),
        ({"table_s": [0.1, 0.0]}, "every step must take some time"),
        ({"base_s": 0, "prefill_token_s": 0}, "every step must take some time"),
    ],
)
def test_what_is_no_profile_gets_one_sentence(
    tmp_path: Path, change: dict[str, object], complaint: str
) -> None:
    file = written(tmp_path, {**GOOD, **change})
    with pytest.raises(EngineError) as caught:
        read_profile(file)
    assert str(caught.value).startswith(str(file))
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["/dev/zero", "", "none.yaml", "a" * 5000, "nu\0ll"])
def test_what_is_no_file_gets_one_sentence(name: str) -> None:
    with pytest.raises(EngineError, match="is no file of at most 65536 bytes"):
        step_time_profile(f"measured:{name}")


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    file = written(tmp_path, "name: x # " + "x" * 70_000)
    with pytest.raises(EngineError, match="is no file of at most 65536 bytes"):
        read_profile(file)


@given(st.text() | st.dictionaries(st.sampled_from([*GOOD, "table_s"]), st.floats() | st.text()))
def test_nothing_but_a_profile_or_one_sentence_comes_of_a_file(
    tmp_path_factory: pytest.TempPathFactory, values: object
) -> None:
    file = written(tmp_path_factory.mktemp("any"), values)
    with pytest.raises(EngineError) as caught:
        read_profile(file)
    assert str(file) in str(caught.value)


@pytest.mark.parametrize("profile", PROFILES.values(), ids=list(PROFILES))
def test_named_profiles_say_where_they_come_from(profile: Profile) -> None:
    assert profile.source
    assert step_time_profile(profile.name) is profile
    assert profile.step_s(1) > 0


def test_phi_3_mini_as_in_the_papers_table() -> None:
    profile = PROFILES["rtx4090-phi3-mini"]
    assert profile.step_s(rows=0, prefill_tokens=2884) == pytest.approx(0.563, rel=0.02)
    assert profile.step_s(rows=1) == pytest.approx((0.02224 + 0.02099 + 0.022) / 3, rel=0.02)


@pytest.mark.parametrize(
    ("rows", "prompt", "context", "measured_s"),
    [
        (1, 0, 65, 0.00801), (8, 0, 488, 0.00832), (64, 0, 4008, 0.01101), (128, 0, 7933, 0.0138),
        (54, 0, 15_290, 0.01156), (0, 64, 0, 0.00906), (0, 256, 0, 0.0104), (0, 512, 0, 0.01413),
        (0, 1024, 0, 0.02399), (9, 65, 9505, 0.01053), (63, 416, 17_921, 0.01834),
    ],
)  # fmt: skip
def test_llama_3_8b_on_an_h100_as_measured(
    rows: int, prompt: int, context: int, measured_s: float
) -> None:
    profile = PROFILES["h100-llama3-8b"]
    assert profile.step_s(rows, prompt, context) == pytest.approx(measured_s, rel=0.1)


@pytest.mark.parametrize(
    ("name", "rows", "seconds"),
    [
        ("a100x4-llama3-70b", 1, 500 / 18.82), ("a100x4-llama3-70b", 20, 20 * 60 / 16.33),
        ("a100x4-qwen2.5-1.5b", 1, 500 / 183.33), ("a100x4-llama3-8b", 36, 28.57),
        ("orin-llama3-8b", 1, 39.8), ("orin-qwen2.5-7b", 1, 35.9), ("orin-qwen2.5-1.5b", 1, 11.3),
    ],
)  # fmt: skip
def test_an_answer_of_500_tokens_takes_what_the_tables_of_pice_say(
    name: str, rows: int, seconds: float
) -> None:
    assert 500 * PROFILES[name].step_s(rows) == pytest.approx(seconds, rel=0.003)


def test_gemma_4_12b_on_a_thor_as_in_the_table_of_its_maker() -> None:
    profile = PROFILES["thor-gemma4-12b"]
    assert 1 / profile.step_s(rows=1) == pytest.approx(10.1, rel=0.003)
    assert 8 / profile.step_s(rows=8) == pytest.approx(74.4, rel=0.003)
    assert profile.step_s(rows=0, prefill_tokens=2048) == pytest.approx(0.6228, rel=0.003)


@pytest.mark.parametrize("model", ["llama3-8b", "qwen2.5-7b"])
def test_an_orin_takes_about_as_long_as_its_memory_for_the_weights(model: str) -> None:
    billions = {"llama3-8b": 8.0, "qwen2.5-7b": 7.6}[model]
    step_s = PROFILES[f"orin-{model}"].step_s(1)
    assert step_s == pytest.approx(2e9 * billions / 204.8e9, rel=0.05)
