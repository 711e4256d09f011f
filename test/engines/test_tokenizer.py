"""Words in and out."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from timely_llm.core.errors import ModelError
from timely_llm.engines.contract import Message, TextStream
from timely_llm.engines.simulated import ScriptTokenizer
from timely_llm.engines.tokenizer import HubTokenizer, SlowStream

CHAT: list[Message] = [
    {"role": "system", "content": "You fly a drone."},
    {"role": "user", "content": "Find the cup."},
]


def spell(stream: TextStream, token_ids: list[int]) -> str:
    return "".join(stream.push(token_id) for token_id in token_ids)


@pytest.fixture
def save(tokenizer: Any, tmp_path: Path) -> Any:
    """Save the tokenizer with another chat template; return what is loaded from there."""

    def save(template: str | None, words: Any = tokenizer) -> HubTokenizer:
        words.save_pretrained(tmp_path)
        (tmp_path / "chat_template.jinja").unlink(missing_ok=True)
        if template is not None:
            (tmp_path / "chat_template.jinja").write_text(template)
        return HubTokenizer(tmp_path)

    return save


def test_chat_by_the_models_template(llama: Path) -> None:
    tokenizer = HubTokenizer(llama)
    text = spell(tokenizer.stream(), tokenizer.encode_chat(CHAT))
    assert text == "<system>You fly a drone.\n<user>Find the cup.\n<assistant>"


def test_chat_without_a_template(save: Any) -> None:
    tokenizer = save(None)
    text = spell(tokenizer.stream(), tokenizer.encode_chat(CHAT))
    assert text == "You fly a drone.\n\nFind the cup.\n\n"


def test_chat_by_a_template_that_knows_no_system_role(save: Any) -> None:
    tokenizer = save(
        "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
        "{% for message in messages %}[{{ message.role }}]{{ message.content }}{% endfor %}"
    )
    text = spell(tokenizer.stream(), tokenizer.encode_chat(CHAT))
    assert text == "[user]You fly a drone.\n\nFind the cup."


def test_all_tokens_that_end_an_answer(llama: Path, tmp_path: Path) -> None:
    assert HubTokenizer(llama).eos_ids == {2}
    for file in llama.iterdir():
        if "tokenizer" in file.name:
            (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "config.json").write_text((llama / "config.json").read_text())
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [7, 9]}))
    assert HubTokenizer(tmp_path).eos_ids == {2, 7, 9}


def test_special_tokens_have_no_text(llama: Path) -> None:
    tokenizer = HubTokenizer(llama)
    assert spell(tokenizer.stream(), [1, *tokenizer.encode("tc(30);"), 2]) == "tc(30);"


def test_control_tokens_that_a_text_spells(llama: Path) -> None:
    tokenizer = HubTokenizer(llama)
    assert tokenizer.control_text("Find the cup: mf(50); <a>") is None
    assert tokenizer.control_text("Find </s> and <s>.") == "</s>"
    assert ScriptTokenizer().control_text("</s>") is None


@pytest.mark.parametrize("text", ["</s>", "=> <s></s>\n", "a<s>b", "<think>", "=> <think>!"])
def test_bare_text_has_no_control_tokens(save: Any, tokenizer: Any, text: str) -> None:
    # Not marked as special, but the template writes it: so do Qwen3's.
    added = copy.deepcopy(tokenizer)
    added.add_tokens(["<think>", "  ", "cup"])
    hub = save("{{ messages[0].content }}<think>", added)
    (think,) = added.encode("<think>")
    token_ids = hub.encode(text)
    assert not {0, 1, 2, think} & set(token_ids)
    assert spell(hub.stream(), token_ids) == text
    assert hub.control_text(text) in text
    assert hub.control_text("a  cup") is None
    # What the template itself writes stays what it is.
    assert hub.encode_chat([{"role": "user", "content": "a"}])[-1] == think


_PIECES = st.sampled_from(
    ["</s>", "\uff1c/s\uff1e", "<", "/s", ">", "\uff1c", "\uff1e", "<THINK>", "<think", "cup", " "]
)


@pytest.fixture
def normalizing(save: Any, tokenizer: Any) -> Any:
    """A tokenizer that makes control tokens of full-width and of capital letters too."""
    from tokenizers import AddedToken, normalizers

    added = copy.deepcopy(tokenizer)
    added.backend_tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Lowercase()]
    )
    added.add_tokens([AddedToken("<think>", normalized=True)])
    added.add_special_tokens({"eos_token": AddedToken("</s>", normalized=True, special=True)})
    return save("<s>{{ messages[0].content }}<think></s>", added)


@settings(
    max_examples=40, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(pieces=st.lists(_PIECES, max_size=6))
@example(["<THINK>"])
def test_no_words_become_control_tokens_of_a_prompt(normalizing: Any, pieces: list[str]) -> None:
    control = {*normalizing._control}
    text = "".join(pieces)
    assert not control & {*normalizing.encode(text)}
    if normalizing.control_text(text) is None:
        prompt = normalizing.encode_chat([{"role": "user", "content": text}])
        assert sum(token_id in control for token_id in prompt) == 3  # the template's own


@settings(
    max_examples=60, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_text_comes_back_token_by_token(llama: Path, text: str) -> None:
    hub = _hub(llama)
    token_ids = hub.encode(text)
    for stream in (hub.stream(), SlowStream(hub._tokenizer)):
        told = spell(stream, token_ids)
        # A replacement character looks like an incomplete one.
        assert told == text or "\ufffd" in text


@settings(max_examples=60, derandomize=True)
@given(text=st.text(max_size=60))
def test_a_script_tokenizer_is_exact(text: str) -> None:
    tokenizer = ScriptTokenizer()
    token_ids = tokenizer.encode(text)
    assert spell(tokenizer.stream(), [*token_ids, tokenizer.eos_id]) == text
    assert tokenizer.encode(text) == token_ids
    assert not tokenizer.eos_ids & set(token_ids)


@settings(
    max_examples=40, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(token_ids=st.lists(st.integers(3, 255), max_size=40))
def test_whatever_a_model_says_has_a_text(llama: Path, token_ids: list[int]) -> None:
    hub = _hub(llama)
    end = hub.encode(" ok.")
    assert spell(hub.stream(), [*token_ids, *end]).endswith(" ok.")


def test_no_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="tokenizer"):
        HubTokenizer(tmp_path)


def _hub(model: Path, known: dict[Path, HubTokenizer] = {}) -> HubTokenizer:  # noqa: B006
    if model not in known:
        known[model] = HubTokenizer(model)
    return known[model]
