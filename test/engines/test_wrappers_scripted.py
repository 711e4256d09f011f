"""A script's words on another engine: the same books, other words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from test.engines.conftest import KINDS
from timely_llm.core.errors import EngineError
from timely_llm.core.step import SequenceProgress, StepPlan
from timely_llm.engines.contract import Decoding, Engine
from timely_llm.engines.simulated import ScriptTokenizer
from timely_llm.engines.wrappers import ScriptedEngine

if TYPE_CHECKING:
    from timely_llm.conformance.engines.driver import Driver

ANSWERS = {"a": ["mf", "(50)", ";"], "b": ["tc(30);"], "c": []}
VOCABULARY = 97

# Simulated engines have a script of their own.
REAL = [kind for kind in KINDS if not kind.startswith(("simulated", "paced"))]
pytestmark = pytest.mark.parametrize("make", REAL, indirect=True, scope="session")


@pytest.fixture
def scripted(engine: Engine) -> ScriptedEngine:
    return ScriptedEngine(engine, VOCABULARY, ANSWERS.__getitem__, ScriptTokenizer())


def said(scripted: ScriptedEngine, token_ids: list[int]) -> str:
    return scripted.tokenizer.decode(token_ids)


def driver_of(scripted: ScriptedEngine, drive: type[Driver]) -> Driver:
    """Drive it with the blocks of the engine that it serves on."""
    driver = drive(scripted)
    driver.block_tokens = getattr(scripted._engine, "block_tokens", 1)
    return driver


def test_each_sequence_says_its_words_and_then_ends(
    scripted: ScriptedEngine, drive: type[Driver]
) -> None:
    driver = driver_of(scripted, drive)
    for key in ANSWERS:
        driver.add(key, f"Task {key}: find the apple and the cup.", decoding=Decoding(1.0, 3, "x"))
    while len(driver.said["a"]) < 5:
        driver.step(dict.fromkeys(ANSWERS, 7))
    eos = scripted.tokenizer.eos_id
    assert said(scripted, driver.said["a"]) == "mf(50);"
    assert set(driver.said["a"][3:]) == {eos}
    assert said(scripted, driver.said["b"]) == "tc(30);"
    assert set(driver.said["b"][1:]) | set(driver.said["c"]) == {eos}
    driver.remove_all()


def test_prompts_of_it_are_computed_and_shared(
    scripted: ScriptedEngine, drive: type[Driver], fixed: str
) -> None:
    driver, shared = driver_of(scripted, drive), scripted.tokenizer.encode(fixed)
    prefix = scripted.pin_prefix(shared)
    left = driver.add("a", fixed + "Turn!", prefix)
    whole = driver.whole_blocks(len(shared))
    assert left == len(scripted.tokenizer.encode(fixed + "Turn!")) - whole
    driver.answer("a", 3)
    assert driver.computed["a"] == left + 2
    driver.remove_all()


def test_tool_output_does_not_change_the_script(
    scripted: ScriptedEngine, drive: type[Driver]
) -> None:
    driver = driver_of(scripted, drive)
    driver.add("a", "find the apple")
    driver.answer("a", 1)
    driver.append("a", "it is True")
    assert said(scripted, driver.answer("a", 3)) == "mf(50);"
    assert driver.computed["a"] > len(scripted.tokenizer.encode("find the apple it is True"))
    driver.remove_all()


def test_words_of_several_steps_in_flight_come_in_order(scripted: ScriptedEngine) -> None:
    steps = scripted.in_flight if scripted.async_scheduling else 1
    tokens = scripted.add("a", scripted.tokenizer.encode("find the apple")).to_compute
    for number in (tokens, *[1] * (steps - 1)):
        scripted.submit(StepPlan((("a", number),)))
    told = [token for _ in range(steps) for token in scripted.collect().tokens["a"]]
    assert said(scripted, told) == "".join(ANSWERS["a"][:steps])
    scripted.remove("a")


def test_words_that_were_taken_back_come_again(
    scripted: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = scripted.add("a", scripted.tokenizer.encode("find the apple")).to_compute
    scripted.submit(StepPlan((("a", tokens),)))
    first = scripted.collect().tokens["a"]
    # Only engines that guess take anything back.
    monkeypatch.setattr(scripted._engine, "take_back", lambda key, tokens: SequenceProgress(1))
    assert scripted.take_back("a", 1).to_compute == 1
    scripted.submit(StepPlan((("a", 1),)))
    assert scripted.collect().tokens["a"] == first
    scripted.remove("a")


def test_a_conversation_goes_on_with_the_next_turn_s_words(
    scripted: ScriptedEngine, drive: type[Driver]
) -> None:
    driver = driver_of(scripted, drive)
    driver.add("a", "find the apple")
    driver.answer("a", 2)
    driver.resume("a", "b", "and then?")
    assert said(scripted, driver.answer("b", 1)) == "tc(30);"
    driver.remove_all()
    scripted.remove("b")


def test_a_model_without_words_is_refused(engine: Engine) -> None:
    with pytest.raises(EngineError, match="at least one token, not 0"):
        ScriptedEngine(engine, 0, ANSWERS.__getitem__, ScriptTokenizer())
