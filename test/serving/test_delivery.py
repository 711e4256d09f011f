"""What a token says beyond a blocking call is taken back."""

from collections.abc import Sequence

from test.serving.scripted import ARM, request
from timely_llm.core.generation import PlanGeneration, State
from timely_llm.engines.contract import Message
from timely_llm.serving.delivery import PlanDelivery
from timely_llm.skills.checkers import make_checker
from timely_llm.skills.skill_set import SkillSet, parse_skill_set


class Words:
    """A tokenizer of given words; encoding gives letters."""

    eos_ids = frozenset({0})

    def __init__(self, *words: str) -> None:
        self._words = ("", *words)

    def encode_chat(self, messages: Sequence[Message]) -> list[int]:
        return [1]

    def encode(self, text: str) -> list[int]:
        return [ord(char) for char in text]

    def control_text(self, text: str) -> str | None:
        return None

    def stream(self) -> "Words":
        return self

    def push(self, token_id: int) -> str:
        return self._words[token_id]


def delivery(*words: str, skill_set: SkillSet = ARM) -> PlanDelivery:
    generation = PlanGeneration("r", request("r"), 0.0, 10, 10, max_tokens=99)
    return PlanDelivery(generation, Words(*words), make_checker(skill_set), whole=False)


def test_a_token_that_ends_with_the_call_stays() -> None:
    made = delivery("look(", ");")
    assert made.push(1, 0.0) == []
    (segment,) = made.push(2, 0.1)
    assert segment.text == "look();"
    assert made.generation.state is State.BLOCKED
    token_ids, drop = made.answer("=> cup\n")
    assert (bytes(token_ids).decode(), drop) == ("=> cup\n", 0)


def test_a_token_that_says_more_is_replaced_by_what_belongs_to_the_call() -> None:
    made = delivery("look(", ");pick('", "place('cup');")
    made.push(1, 0.0)
    (segment,) = made.push(2, 0.1)
    assert segment.text == "look();"
    token_ids, drop = made.answer("=> cup\n")
    assert (bytes(token_ids).decode(), drop) == (");=> cup\n", 1)
    (again,) = made.push(3, 0.2)
    assert again.text == "place('cup');"


ARROWS = """
name: arrows
language: regex
prompt: Answer with calls and arrows.
rules: ['(?P<skill>[a-z]+)\\((?P<arguments>[^()]*)\\)( *->)?']
skills:
  look: {description: look, returns: text, blocking: true, duration: {polynomial: [0.5]}}
  pick:
    description: take
    arguments: [{name: object, type: text}]
    duration: {polynomial: [3.6]}
"""


def test_a_token_that_belongs_only_to_what_comes_after_is_replaced_as_a_whole() -> None:
    made = delivery("look()", "pick(", skill_set=parse_skill_set(ARROWS))
    assert made.push(1, 0.0) == []  # an arrow may follow
    (segment,) = made.push(2, 0.1)
    assert segment.text == "look()"
    token_ids, drop = made.answer("=> cup\n")
    assert (bytes(token_ids).decode(), drop) == ("=> cup\n", 1)
