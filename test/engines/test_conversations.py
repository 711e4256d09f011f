"""Turns of a conversation on a real model, with the chat templates that models come with."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from test.engines.conftest import DEVICE
from test.serving.scripted import PublishingLoop, Recorder
from timely_llm.core.clock import WallClock
from timely_llm.core.request import ChatMessage, ErrorCode, StreamRequest
from timely_llm.policies.fcfs import Stream

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAMA_3 = (
    "{{ '<s>' }}{% for m in messages %}<|im_start|>{{ m.role }}<|im_end|>\n\n"
    "{{ m.content | trim }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant<|im_end|>\n\n{% endif %}"
)
MISTRAL = (
    "{{ '<s>' }}{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]"
    "{% elif m.role == 'system' %}{{ raise_exception('no system') }}"
    "{% else %} {{ m.content | trim }}</s>{% endif %}{% endfor %}"
)
GEMMA = (
    "{% for m in messages %}"
    "{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}"
    "<|im_start|>{{ 'model' if m.role == 'assistant' else m.role }}\n{{ m.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>model\n{% endif %}"
)
FORGETFUL = (  # earlier turns are written in another way, as models that think do it
    "{% for m in messages %}{{ '*' if m.role == 'assistant' else '' }}{{ m.content }}\n{% endfor %}"
    "assistant says: "
)


class Conversing:
    """A loop on a real model with a chat template; tests read its sequences."""

    def __init__(self, model: Path, template: str) -> None:
        from timely_llm.engines.transformers.engine import TransformersEngine

        self.engine = TransformersEngine(model, device=DEVICE)
        self.words: Any = self.engine.tokenizer.backend
        self.words.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
        self.words.chat_template = template
        self.sink = Recorder()
        self.loop = PublishingLoop(self.engine, Stream(), self.sink, WallClock())
        self.said: list[dict[str, str]] = []

    def turn(self, text: str) -> str:
        """Say something; return the text that the model saw and continued."""
        turn = sum(m["role"] == "user" for m in self.said)
        key = f"turn {turn}"
        self.said.append({"role": "user", "content": text})
        self.loop.admit(
            StreamRequest(key, "ann", (ChatMessage("user", text),), conversation="c", turn=turn,
                          max_tokens=12)
        )  # fmt: skip
        seen = ""
        while self.loop.generations:
            seen = self.words.decode(self.engine._sequences[key].token_ids)
            self.loop.turn()
        result = self.sink.answers[key]
        assert result.error_code is ErrorCode.NONE, result.error_msg
        self.kept = result.kept_tokens
        self.said.append({"role": "assistant", "content": result.text})
        return str(seen)

    def written(self) -> str:
        """Return what the template makes of all messages before the last answer."""
        text = self.words.apply_chat_template(
            self.said[:-1], add_generation_prompt=True, tokenize=False
        )
        return str(text)


def printed(text: str) -> str:
    """Return the ink of a text: a random model says bytes that are no characters, too."""
    return re.sub(r"[^\x21-\x7e]", "", text)


@pytest.fixture
def converse(make_model: Callable[..., Path]) -> Callable[[str], Conversing]:
    model = make_model("Llama", vocab_size=420)
    return lambda template: Conversing(model, template)


@pytest.mark.parametrize("template", [CHATML, LLAMA_3, GEMMA], ids=["chatml", "llama", "gemma"])
def test_the_model_sees_what_its_template_writes(
    converse: Callable[[str], Conversing], template: str
) -> None:
    talk = converse(template)
    talk.turn("Find the apple.")
    for text in ("And the cup?", "Why?"):
        seen = talk.turn(text)
        assert talk.kept > 0
        assert printed(seen).startswith(printed(talk.written()))


def test_a_template_that_writes_answers_differently_is_honoured(
    converse: Callable[[str], Conversing],
) -> None:
    talk = converse(FORGETFUL)
    talk.turn("Find the apple.")
    seen = talk.turn("And the cup?")
    assert talk.kept == 0
    assert seen.startswith(talk.written())


def test_messages_that_the_template_does_not_take_are_refused(
    converse: Callable[[str], Conversing],
) -> None:
    talk = converse(GEMMA)
    twice = (ChatMessage("user", "one"), ChatMessage("user", "two"))
    talk.loop.admit(StreamRequest("r", "ann", twice))
    result = talk.sink.answers["r"]
    assert result.error_code is ErrorCode.INVALID_REQUEST
    assert result.error_msg == (
        "the model's chat template does not take these messages: roles must alternate"
    )


def test_a_system_message_is_folded_where_there_is_no_such_role(
    converse: Callable[[str], Conversing],
) -> None:
    talk = converse(MISTRAL)
    messages = (ChatMessage("system", "Be brief."), ChatMessage("user", "Hello"))
    talk.loop.admit(StreamRequest("r", "ann", messages, max_tokens=2))
    while talk.loop.generations:
        talk.loop.turn()
    assert talk.sink.answers["r"].error_code is ErrorCode.NONE
