"""Tokenizers of Hugging Face models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from timely_llm.core.errors import ModelError, RequestError, first_line
from timely_llm.engines.contract import Message, TextStream


def max_positions(config: Any) -> int:
    """Return the most tokens of a sequence that a text model supports."""
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") == "longrope":
        # Beyond this length all positions are rotated otherwise, those in the KV too.
        return int(rope["original_max_position_embeddings"])
    return int(getattr(config, "max_position_embeddings", None) or 1 << 20)


def most_positions(model: str | Path) -> int:
    """Return the most tokens of a sequence that a model supports.

    Raises:
        ModelError: the model cannot be read.
    """
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(str(model), trust_remote_code=False)
    except Exception as error:  # a broken file or an unreachable hub can raise anything
        raise ModelError(f"cannot read the model {str(model)!r}: {first_line(error)}") from error
    return max_positions(config.get_text_config())


_INCOMPLETE = "\N{REPLACEMENT CHARACTER}"


def check_weights(model: str | Path) -> None:
    """Check that the weights of a model folder are in safetensors, which hold no code.

    A pickle, as `torch.save` writes it, runs code of its author when it is read. The engines load
    nothing else than safetensors, also from the hub.

    Raises:
        ModelError: the folder has no safetensors.
    """
    folder = Path(model)
    if not folder.is_dir() or any(folder.glob("*.safetensors")):
        return
    pickled = sorted(
        path.name for path in folder.iterdir() if path.suffix in {".bin", ".ckpt", ".pt", ".pth"}
    )
    found = f", and {pickled[0]} is a pickle, which can run code" if pickled else ""
    raise ModelError(
        f"the model {str(model)!r} has no weights in *.safetensors{found}: save it with"
        " save_pretrained of the library transformers"
    )


class HubTokenizer:
    """A model's tokenizer and chat template.

    Args:
        model: folder, or id on the Hugging Face hub.

    Raises:
        ModelError: there is no tokenizer, or it cannot be read.
    """

    def __init__(self, model: str | Path) -> None:
        from transformers import AutoTokenizer

        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(
                str(model), trust_remote_code=False
            )
        except Exception as error:  # a broken file can raise anything
            raise ModelError(
                f"cannot read the tokenizer of {str(model)!r}: {first_line(error)}"
            ) from error
        self.eos_ids = _eos_ids(str(model), self._tokenizer)
        self._control = _control(self._tokenizer, self.eos_ids)

    def __len__(self) -> int:
        return len(self._tokenizer)

    @property
    def backend(self) -> Any:
        """The tokenizer of the library transformers."""
        return self._tokenizer

    def encode_chat(self, messages: Sequence[Message]) -> list[int]:
        """Return the prompt's token ids, generation prompt included.

        The model's chat template makes the prompt. If the template has no system role, the system
        message becomes the beginning of the next message. Without a template, messages are joined.

        Raises:
            RequestError: the template does not take the messages.
        """
        chat = [dict(message) for message in messages]
        if not self._tokenizer.chat_template:
            text = "".join(message["content"] + "\n\n" for message in chat)
            return list(self._tokenizer.encode(text))
        from jinja2.exceptions import TemplateError

        try:
            return self._by_template(chat)
        except TemplateError:
            pass
        try:
            return self._by_template(_without_system(chat))
        except TemplateError as error:
            raise RequestError(
                f"the model's chat template does not take these messages: {first_line(error)}"
            ) from error

    def encode(self, text: str) -> list[int]:
        """Return the token ids of bare text; a spelled control token counts as text."""
        token_ids = list(
            self._tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
        )
        spelled = self._first_control(token_ids)
        if not spelled:
            return token_ids
        if len(text) < 2:
            return [token_id for token_id in token_ids if not self._first_control([token_id])]
        # The library splits only tokens that are marked as special. Without the spelling, a
        # normalizer of the model made it of other characters, such as a full-width bracket.
        inside = text.index(spelled) + 1 if spelled in text else len(text) // 2
        inside = min(inside, len(text) - 1)
        return self.encode(text[:inside]) + self.encode(text[inside:])

    def control_text(self, text: str) -> str | None:
        """Return the first control token that a text spells; None: it spells none.

        A text also spells one if the model's normalizer makes one of it.
        """
        found = [(text.find(spelled), spelled) for spelled in self._control.values()]
        first = min(((at, spelled) for at, spelled in found if at >= 0), default=(0, None))[1]
        return first or self._first_control(self._tokenizer.encode(text, add_special_tokens=False))

    def _first_control(self, token_ids: Sequence[int]) -> str | None:
        """Return the spelling of the first control token; an unknown character is none."""
        unknown = self._tokenizer.unk_token_id
        found = (self._control[i] for i in token_ids if i in self._control and i != unknown)
        return next(found, None)

    def stream(self) -> TextStream:
        """Return a new decoder for one generation; special tokens have no text."""
        if self._tokenizer.is_fast:
            return FastStream(self._tokenizer.backend_tokenizer)
        return SlowStream(self._tokenizer)

    def _by_template(self, chat: list[dict[str, str]]) -> list[int]:
        token_ids = self._tokenizer.apply_chat_template(
            chat, add_generation_prompt=True, tokenize=True, return_dict=False
        )
        return list(token_ids)


class FastStream:
    """Incremental decoding by the `tokenizers` library."""

    def __init__(self, tokenizer: Any) -> None:
        from tokenizers.decoders import DecodeStream

        self._tokenizer = tokenizer
        self._stream = DecodeStream(skip_special_tokens=True)

    def push(self, token_id: int) -> str:
        """Return the text that a token completes."""
        return self._stream.step(self._tokenizer, token_id) or ""


class SlowStream:
    """Incremental decoding with a tokenizer that only decodes whole texts.

    The text of a token can depend on the tokens before it, so a few of them are decoded again with
    each new token.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._token_ids: list[int] = []
        self._start = 0
        self._decoded = 0

    def push(self, token_id: int) -> str:
        """Return the text that a token completes."""
        self._token_ids.append(token_id)
        before = self._decode(self._start, self._decoded)
        now = self._decode(self._start, len(self._token_ids))
        if len(now) <= len(before) or now.endswith(_INCOMPLETE):
            return ""
        self._start, self._decoded = self._decoded, len(self._token_ids)
        return now[len(before) :]

    def _decode(self, start: int, stop: int) -> str:
        text = self._tokenizer.decode(self._token_ids[start:stop], skip_special_tokens=True)
        return str(text)


def _without_system(chat: list[dict[str, str]]) -> list[dict[str, str]]:
    """Return the chat with a first system message folded into the message after it."""
    if len(chat) < 2 or chat[0]["role"] != "system":
        return chat
    content = f"{chat[0]['content']}\n\n{chat[1]['content']}"
    return [{**chat[1], "content": content}, *chat[2:]]


def _eos_ids(model: str, tokenizer: Any) -> frozenset[int]:
    """Return all tokens that end an answer: the tokenizer's and the generation config's."""
    from transformers import GenerationConfig

    try:
        eos = GenerationConfig.from_pretrained(model).eos_token_id
    except OSError:  # a model need not have one
        eos = None
    ids = {eos} if isinstance(eos, int) else set(eos or ())
    if tokenizer.eos_token_id is not None:
        ids.add(tokenizer.eos_token_id)
    return frozenset(ids)


def _control(tokenizer: Any, eos_ids: frozenset[int]) -> dict[int, str]:
    """Return the text of control tokens by id.

    These are the tokens that are marked as special, that end an answer, or that the chat template
    writes.
    """
    template = str(tokenizer.chat_template or "")
    return {
        token_id: added.content
        for token_id, added in tokenizer.added_tokens_decoder.items()
        if added.content.strip()
        and (added.special or token_id in eos_ids or added.content in template)
    }
