"""A model under a grammar says nothing else, whatever its weights would like to say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from timely_llm.core.errors import EngineError
from timely_llm.engines.contract import Decoding
from timely_llm.engines.grammars import Grammars
from timely_llm.engines.tokenizer import HubTokenizer
from timely_llm.engines.transformers.engine import TransformersEngine
from timely_llm.resources import resource
from timely_llm.skills.minispec.checker import MiniSpecChecker, check_plan
from timely_llm.skills.minispec.grammar import plan_grammar
from timely_llm.skills.skill_set import SkillSet, load_skill_set

if TYPE_CHECKING:
    from timely_llm.conformance.engines.driver import Driver

DRONE = load_skill_set(resource("config/skill_sets/drone.yaml"))
SEEN = {"description": "x", "duration": {"polynomial": [1.0]}, "returns": "boolean"}
SCOUT = SkillSet.model_validate(
    {"name": "scout", "prompt": "x", "skills": {"see": SEEN, "look": {**SEEN, "blocking": True}}}
)


@pytest.fixture(scope="module")
def engine(llama: Path) -> TransformersEngine:
    return TransformersEngine(llama, device="cpu")


@pytest.fixture(scope="module")
def grammars(llama: Path) -> Grammars:
    words = HubTokenizer(llama)
    return Grammars(words.backend, words.eos_ids, 400)


def spell(engine: TransformersEngine, token_ids: list[int]) -> str:
    stream = engine.tokenizer.stream()
    return "".join(stream.push(token_id) for token_id in token_ids)


# So hot that all tokens that are allowed are about as likely: paths that no model would take.
@pytest.mark.parametrize("temperature", [0.0, 1.0, 1e6])
def test_a_random_model_says_well_formed_plans(
    engine: TransformersEngine, driver: Driver, temperature: float
) -> None:
    grammar = plan_grammar(DRONE)
    keys = [str(seed) for seed in range(40 if temperature else 1)]
    for key in keys:
        driver.add(key, "Find the cup. ", None, Decoding(temperature, int(key), grammar))
    while keys:
        driver.step(dict.fromkeys(keys, 50))
        keys = [
            key for key in keys if len(driver.said[key]) < 120 and driver.said[key][-1] not in {2}
        ]
    ended = 0
    for said in driver.said.values():
        text, whole = spell(engine, said), said[-1] == 2
        if whole:
            check_plan(DRONE, text)
            ended += 1
        else:
            MiniSpecChecker(DRONE).feed(text)  # the beginning of one
    assert ended or temperature < 1e6


def test_tool_output_is_no_part_of_the_plan(engine: TransformersEngine, driver: Driver) -> None:
    """As serving does: `look` ends a segment, its value is put after it, whatever came with it."""
    grammar, dropped = plan_grammar(SCOUT), 0
    for seed in range(12):
        key, told = str(seed), ""
        driver.add(key, "What is there? ", None, Decoding(1e6, seed, grammar))
        for _ in range(150):
            driver.step({key: 50})
            newest = driver.said[key][-1]
            if newest in engine.tokenizer.eos_ids:
                check_plan(SCOUT, told)
                break
            text = told + spell(engine, [newest])
            call = text.rfind("look();") + len("look();")
            if call > max(len(told), len("look();") - 1):
                rest = text[call:]
                kept = text[len(told) : call] if rest else ""
                driver.append(key, kept + "=> True\n", drop=int(bool(rest)))
                dropped += bool(rest)
                text = text[:call]
            told = text
            MiniSpecChecker(SCOUT).feed(told)
    assert dropped


def test_only_an_end_comes_after_the_end(llama: Path, grammars: Grammars) -> None:
    words, matcher = HubTokenizer(llama), grammars.matcher('start: "é" "x"?')
    for token in words.encode("éx"):
        assert not matcher.forbidden()[token]
        matcher.take(token)
    for _ in range(3):
        assert set((~matcher.forbidden()).nonzero()[0]) == {2}
        matcher.take(2)


def test_a_character_can_be_spelled_over_tokens(llama: Path, grammars: Grammars) -> None:
    words = HubTokenizer(llama)
    token_ids = words.encode("🤖")
    assert len(token_ids) > 1
    matcher = grammars.matcher("start: /[^a]{1}/")
    for token in token_ids:
        assert not matcher.forbidden()[token]
        matcher.take(token)
    assert set((~matcher.forbidden()).nonzero()[0]) == {2}


def test_what_a_replaced_token_and_the_words_begin_with_is_kept(
    llama: Path, grammars: Grammars
) -> None:
    words, grammar = HubTokenizer(llama), 'start: "tp" "();" ("};" | "é")'
    for instead, then in (("();=> 1", "}"), ("=> 1", "(")):
        matcher = grammars.matcher(grammar)
        *_, newest = token_ids = words.encode("tp();};")
        assert words.stream().push(newest) == "();};"
        for token_id in token_ids:
            matcher.take(token_id)
        matcher.replace(newest, words.encode(instead))
        assert not matcher.forbidden()[words.encode(then)[0]]


@pytest.mark.parametrize("grammar", ["start: what", "start: /(/", "plan: 'a'", ""])
def test_a_grammar_that_is_none(driver: Driver, grammar: str) -> None:
    with pytest.raises(EngineError, match="the grammar cannot be used") as error:
        driver.add("a", "tc(30);", decoding=Decoding(grammar=grammar))
    assert "\n" not in str(error.value)
    driver.add("a", "tc(30);")


def test_without_the_library(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = HubTokenizer(llama)
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(EngineError, match=r"pip install 'timely_llm\[server\]'"):
        Grammars(words.backend, words.eos_ids, 400).matcher('start: "a"')


def test_models_that_have_no_end_or_another_kind_of_tokenizer(llama: Path) -> None:
    words = HubTokenizer(llama)
    with pytest.raises(EngineError, match="end-of-text"):
        Grammars(words.backend, frozenset(), 400).matcher('start: "a"')
    with pytest.raises(EngineError, match="tokenizer"):
        Grammars([], frozenset({2}), 400).matcher('start: "a"')


def test_the_import_comes_with_the_first_grammar(llama: Path) -> None:
    code = (
        "import sys; from timely_llm.engines.transformers.engine import TransformersEngine;"
        f"TransformersEngine({str(llama)!r}, device='cpu').add('a', [5]);"
        "sys.exit('llguidance' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])
