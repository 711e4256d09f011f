"""Whether answers to people are about what was asked last."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from tools.tiny_planner import corpus
from tools.tiny_planner.chat_tasks import AFTER_ANSWER, AFTER_QUESTION
from tools.tiny_planner.talks import is_right


def drawn(family: str, count: int = 300) -> list[corpus.Sample]:
    rng = Random(8)
    return [corpus.sample(rng, "train", family) for _ in range(count)]


@pytest.mark.parametrize("family", [corpus.CHAT, corpus.TALK])
def test_the_corpus_answers_what_was_asked_last(family: str) -> None:
    samples = drawn(family)
    assert all(is_right(one, one.answer) for one in samples)
    lucky = sum(is_right(one, other.answer) for one, other in pairwise(samples))
    assert lucky < len(samples) / 5, "another question's answer is another one"
    assert not any(is_right(one, "?s('cat'){g('cat');->True;}") for one in samples)


def test_a_talk_is_written_as_the_chat_template_writes_it() -> None:
    transformers = pytest.importorskip("transformers")
    from timely_llm.resources import resource

    tokenizer = transformers.AutoTokenizer.from_pretrained(resource("models/tiny_planner"))
    for one in drawn(corpus.TALK, 20):
        said = [turn.split(AFTER_QUESTION) for turn in one.user.split(AFTER_ANSWER)]
        messages = [
            {"role": role, "content": text}
            for turn in said
            for role, text in zip(("user", "assistant"), turn, strict=False)
        ]
        assert 2 <= len(said) <= 4
        written = tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )
        assert written == f"<|user|>{one.user}\n<|assistant|>"
