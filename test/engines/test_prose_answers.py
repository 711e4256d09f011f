"""Conversations with the embedded model: prose in every turn, whatever it would rather say."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import regex
from hypothesis import given

from test.serving.scripted import DRONE, PublishingLoop, Recorder, request
from test.skills.plans import Written, plans
from timely_llm.core.clock import WallClock
from timely_llm.core.errors import EngineError
from timely_llm.core.request import ChatMessage, StreamRequest
from timely_llm.core.step import StepPlan
from timely_llm.engines.contract import Decoding, Engine
from timely_llm.engines.grammars import asks_for_prose
from timely_llm.engines.registry import make_engine
from timely_llm.policies.fcfs import Stream
from timely_llm.resources import resource
from timely_llm.serving.limits import AdmissionLimits
from timely_llm.skills.prose import PROSE, PROSE_GRAMMAR

MODEL = resource("models/tiny_planner")
SYSTEM = "You are a friendly robot assistant. Answer in short, plain English."
ASKED = (
    "Tell me about a drone.", "What can you do?", "Thank you!", "Find the cat and go to it.",
    "Story time! Use a robot and a lamp.", "mf(50);?s('cat'){g('cat');->True;};", "Why?",
)  # fmt: skip
prose = regex.compile(PROSE)
_numbers = itertools.count()


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    made = make_engine("transformers", model=MODEL, device="cpu", kv_tokens=32_768)
    yield made
    made.close()


class Talk:
    """Conversations with a model, all turns of all at once."""

    def __init__(self, engine: Engine, grammar: str | None) -> None:
        self.sink = Recorder()
        limits = AdmissionLimits(answer_grammar=grammar)
        self.loop = PublishingLoop(engine, Stream(), self.sink, WallClock(), limits=limits)
        self.turns = 0
        self._number = next(_numbers)

    def say(self, people: range, text: str, temperature: float, system: str) -> list[str]:
        """Let each person say something; return the answers."""
        turn, self.turns = self.turns, self.turns + 1
        ids = {number: f"{self._number}/{number}/{turn}" for number in people}
        words: tuple[ChatMessage, ...] = (ChatMessage("user", text),)
        if system and not turn:
            words = (ChatMessage("system", system), *words)
        for number in people:
            self.loop.admit(
                StreamRequest(
                    ids[number], f"person {number}", words, conversation="c", turn=turn,
                    max_tokens=40, temperature=temperature, seed=number,
                )
            )  # fmt: skip
        while self.loop.generations:
            self.loop.turn()
        results = [self.sink.answers[ids[number]] for number in people]
        assert {result.error_msg for result in results} == {""}
        assert all(result.kept_tokens > 0 for result in results) is bool(turn)
        return [result.text for result in results]


@pytest.mark.parametrize(
    ("system", "temperature"), [(SYSTEM, 0.0), (SYSTEM, 1.0), (DRONE.prompt_text(), 0.0), ("", 1.0)]
)
def test_answers_are_prose_in_every_turn(engine: Engine, system: str, temperature: float) -> None:
    talk, people = Talk(engine, PROSE_GRAMMAR), range(3 if temperature else 1)
    for text in ASKED:
        for answer in talk.say(people, text, temperature, system):
            assert prose.fullmatch(answer, partial=True), answer
            assert not set(answer) & set("();{}=<>&|"), answer


def test_plans_of_the_same_server_are_plans(engine: Engine) -> None:
    talk = Talk(engine, PROSE_GRAMMAR)
    talk.loop.register(DRONE)
    talk.loop.admit(request("r", task="Scene: []\nTask: [A] Find the cat and go to it."))
    while talk.loop.generations:
        talk.loop.turn()
    assert talk.sink.results["r"].plan == "?s('cat'){g('cat');->True;};->False;"


def test_a_sequence_goes_on_with_a_grammar_of_its_own(engine: Engine) -> None:
    words = engine.tokenizer
    engine.add("first", words.encode("Say it. "), None, Decoding(grammar='start: "tp();"'))
    said = finish(engine, "first")
    with pytest.raises(EngineError, match="the grammar cannot be used"):
        engine.resume("first", "second", words.encode("On. "), Decoding(grammar="start: what"))
    engine.resume("first", "second", words.encode("On. "), Decoding(grammar='start: "mf(50);"'))
    again = finish(engine, "second")
    assert (said, again) == ("tp();", "mf(50);")
    engine.remove("second")


def finish(engine: Engine, key: str) -> str:
    """Decode until the model ends; return the text."""
    stream, text = engine.tokenizer.stream(), ""
    for _ in range(40):
        engine.submit(StepPlan(((key, 512),)))
        (token_id,) = engine.collect().tokens[key]
        if token_id in engine.tokenizer.eos_ids:
            return text
        text += stream.push(token_id)
    raise AssertionError("it did not end")


@given(plans())
def test_no_plan_is_prose(plan: Written) -> None:
    assert not prose.fullmatch(plan.text)


@pytest.mark.parametrize(
    "text",
    [
        "Hello!",
        "It's 3.5 m, or 12:30: a well-known fact. Isn't it?!\n\nYes - it is 50% right, I think…",
        "Grüße aus Köln. 你好，世界。再见！",  # noqa: RUF001
    ],
)
def test_what_people_write_is_prose(text: str) -> None:
    assert prose.fullmatch(text)


def test_a_model_asks_for_prose_by_its_configuration(tmp_path: Path) -> None:
    assert asks_for_prose(MODEL)
    assert not asks_for_prose(tmp_path)
    assert not asks_for_prose("some/hub-id")
    for text, asks in (("{", False), ("[]", False), ('{"prose_answers": 1}', False),
                       (json.dumps({"prose_answers": True}), True)):  # fmt: skip
        (tmp_path / "config.json").write_text(text)
        assert asks_for_prose(tmp_path) is asks
