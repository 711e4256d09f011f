"""Byte-level BPE. Object names and round numbers are single tokens, so that a copy is one step."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from tools.tiny_planner.words import ADJECTIVES, NOUNS, NUMBERS

PAD, END = "<|pad|>", "<|end|>"
ROLES = ["<|system|>", "<|user|>", "<|assistant|>"]
CONTEXT = 2048
CHAT_TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}"
    "{% if m.role == 'user' %}{{ '\\n' }}{% endif %}"
    "{% if m.role == 'assistant' %}<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def pattern() -> str:
    """Return the regex of the pieces that BPE may not cross.

    The space before a known name is a piece of its own: the name is then the same token with and
    without it. No piece goes on after a `;`: a plan can be cut after any statement.
    """
    names = "|".join(sorted((*ADJECTIVES, *NOUNS), key=len, reverse=True))
    known = rf"(?:{names})(?![A-Za-z])"
    return rf" (?={known})|{known}| ?[A-Za-z]+|\d{{1,3}}|[^\sA-Za-z\d;]*;| ?[^\sA-Za-z\d;]+|\s+"


def train_tokenizer(texts: Iterable[str], vocabulary: int) -> PreTrainedTokenizerFast:
    """Return a tokenizer trained on `texts`.

    Raises:
        ValueError: a name or number did not become a single token.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern()), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[PAD, END, *ROLES],
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(texts, trainer)
    wrapped = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer, eos_token=END, pad_token=PAD, chat_template=CHAT_TEMPLATE,
        additional_special_tokens=ROLES, clean_up_tokenization_spaces=False,
        model_max_length=CONTEXT,
    )  # fmt: skip
    broken = split_words(wrapped)
    if broken:
        raise ValueError(
            f"these names or numbers are not single tokens, use a vocabulary above {vocabulary}: "
            f"{', '.join(broken)}"
        )
    return wrapped


def split_words(tokenizer: PreTrainedTokenizerFast) -> list[str]:
    """Return the names and numbers that are not one token, or not the same one after a space."""
    words = [*ADJECTIVES, *NOUNS, *map(str, NUMBERS)]
    broken = []
    for word in words:
        alone = tokenizer(word, add_special_tokens=False).input_ids
        spaced = tokenizer(f"the {word}.", add_special_tokens=False).input_ids
        if len(alone) != 1 or alone[0] not in spaced:
            broken.append(word)
    return broken


def save_tokenizer(tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write tokenizer files that transformers 4 and 5 and vLLM read alike."""
    tokenizer.backend_tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END,
        "pad_token": PAD,
        "additional_special_tokens": ROLES,
        "model_max_length": CONTEXT,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    text = json.dumps(settings, indent=2) + "\n"
    (folder / "tokenizer_config.json").write_text(text, encoding="utf-8")
