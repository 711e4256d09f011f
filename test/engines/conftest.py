"""Tiny random models, made here: nothing is downloaded."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from timely_llm.core.clock import VirtualClock
from timely_llm.engines.contract import Engine
from timely_llm.engines.profiles import step_time_profile
from timely_llm.engines.script_tokenizer import ScriptTokenizer
from timely_llm.engines.simulated import SimulatedEngine
from timely_llm.engines.track import Limits

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

MakeEngine = Callable[..., Engine]

TEMPLATE = (
    "{% for message in messages %}<{{ message.role }}>{{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
SIZES = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    """A byte-level BPE tokenizer with a chat template."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<pad>", "<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    bpe.train_from_iterator(["mf(50);tc(30);?iv('cup')==True{tp();}; find the apple"] * 20, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe, bos_token="<s>", eos_token="</s>", pad_token="<pad>"
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer


@pytest.fixture(scope="session")
def make_model(tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Make a folder with a random model of a transformers class, its weights large enough that
    it does not say the same word for ever."""

    def make(name: str, **options: Any) -> Path:
        import torch
        import transformers

        config = getattr(transformers, f"{name}Config")(
            **{**SIZES, "vocab_size": len(tokenizer), "pad_token_id": 0, "bos_token_id": 1,
               "eos_token_id": 2, **options}
        )  # fmt: skip
        torch.manual_seed(0)
        model = getattr(transformers, f"{name}ForCausalLM")(config)
        with torch.no_grad():
            for weights in model.parameters():
                if weights.dim() > 1:
                    weights.normal_(0, 0.3)
        folder = tmp_path_factory.mktemp(name)
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return folder

    return make


@pytest.fixture(scope="session")
def llama(make_model: Callable[..., Path]) -> Path:
    return make_model("Llama")


@pytest.fixture(scope="session")
def qwen2(make_model: Callable[..., Path]) -> Path:
    return make_model("Qwen2")


def babble(key: str, prompt: str) -> str:
    """Answer with words that depend on every character of the prompt."""
    seed = zlib.crc32(prompt.encode())
    return "".join(f"w{seed * (place + 1) % 997};" for place in range(80))


@pytest.fixture(scope="session", params=["simulated", "llama", "qwen2"])
def make(request: pytest.FixtureRequest) -> MakeEngine:
    """Make an engine of each kind with the given limits."""
    if request.param == "simulated":
        profile, words = step_time_profile("millisecond"), ScriptTokenizer()

        def make_simulated(**limits: int) -> Engine:
            engine = SimulatedEngine(profile, babble, VirtualClock(), Limits(**limits))
            engine.tokenizer = words  # so that two engines' token ids can be compared
            return engine

        return make_simulated
    model = request.getfixturevalue(request.param)

    def make_transformers(**limits: int) -> Engine:
        from timely_llm.engines.transformers import TransformersEngine

        return TransformersEngine(model, device="cpu", limits=Limits(**limits))

    return make_transformers
