"""The embedded engine against transformers' own generation, and what it refuses."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from test.engines.conftest import DEVICE
from timely_llm.core.errors import EngineError, ModelError
from timely_llm.core.step import StepPlan
from timely_llm.engines.sequences import EngineLimits
from timely_llm.engines.transformers.engine import TransformersEngine

PROMPTS = {
    f"r{i}": [5 + (i * 37 + place * 11) % 250 for place in range(20 + 5 * i)] for i in range(4)
}
ANSWER = 40


def generate(model: Path, prompt: list[int]) -> list[int]:
    """Return transformers' own greedy answer."""
    import torch
    from transformers import AutoModelForCausalLM

    loaded: Any = AutoModelForCausalLM.from_pretrained(
        model, dtype=torch.float32, attn_implementation="eager"
    )
    tokens = loaded.generate(
        torch.tensor([prompt]), do_sample=False, max_new_tokens=ANSWER, eos_token_id=None
    )
    answer: list[int] = tokens[0, len(prompt) :].tolist()
    return answer


def serve(engine: TransformersEngine, pinned: int = 0) -> dict[str, list[int]]:
    """Answer all prompts together, prefilled in chunks, each paused every third step."""
    prefixes = {key: engine.pin_prefix(prompt[:pinned]) for key, prompt in PROMPTS.items()}
    left = {
        key: engine.add(key, prompt, prefixes[key]).to_compute for key, prompt in PROMPTS.items()
    }
    said: dict[str, list[int]] = {key: [] for key in PROMPTS}
    turn = 0
    while any(len(answer) < ANSWER for answer in said.values()):
        turn += 1
        keys = [key for i, key in enumerate(PROMPTS) if (turn + i) % 3 and len(said[key]) < ANSWER]
        if not keys:
            continue
        engine.submit(StepPlan(tuple((key, min(left[key], 7)) for key in keys)))
        result = engine.collect()
        for key in keys:
            left[key] += len(result.tokens.get(key, ())) - result.computed[key]
            said[key] += result.tokens.get(key, ())
    return said


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("Llama", {}),
        ("Llama", {"num_key_value_heads": 4, "tie_word_embeddings": True}),
        ("Qwen2", {}),
        ("Qwen3", {"head_dim": 32}),
        ("Mistral", {"sliding_window": 9}),
        ("Phi3", {}),
        ("Gemma2", {"head_dim": 16, "sliding_window": 9, "attn_logit_softcapping": 3.0}),
        ("GPTNeoX", {}),
    ],
)
@pytest.mark.parametrize("pinned", [0, 12])
def test_same_tokens_as_generate(
    make_model: Callable[..., Path], name: str, options: dict[str, Any], pinned: int
) -> None:
    model = make_model(name, **options)
    answers = serve(TransformersEngine(model, device=DEVICE), pinned)
    assert answers == {key: generate(model, prompt) for key, prompt in PROMPTS.items()}


def test_a_pinned_prefix_goes_through_the_model_once(llama: Path) -> None:
    engine = TransformersEngine(llama, device=DEVICE)
    computed = []
    embed: Any = engine._model._model.get_input_embeddings()
    embed.register_forward_hook(
        lambda module, inputs, output: computed.append(output[..., 0].numel())
    )
    prompts = [[*range(10, 60), tail] for tail in range(60, 68)]
    for prompt in prompts:
        prefix = engine.pin_prefix(prompt[:50])
        engine.add(str(prompt), prompt, prefix)
    engine.submit(StepPlan(tuple((str(prompt), 1) for prompt in prompts)))
    assert len(engine.collect().tokens) == 8
    assert sum(computed) == 50 + 8
    assert engine._pool.free_slots == 131_072 - 8  # the prefix is not in the pool 8 times


@pytest.mark.parametrize("where", ["_model.forward", "_sampler.choose"])
def test_a_step_that_breaks_down_loses_nothing(
    llama: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    engine = TransformersEngine(llama, device=DEVICE, limits=EngineLimits(kv_tokens=60))
    engine.add("a", list(range(10, 40)))
    engine.add("b", list(range(10, 50)))
    plan = StepPlan((("a", 30),))
    engine.submit(plan)
    token = engine.collect().tokens["a"]
    engine.append("a", [5])

    def fail(*_: Any) -> None:
        raise RuntimeError("out of memory")

    with monkeypatch.context() as broken:
        owner, method = where.split(".")
        broken.setattr(getattr(engine, owner), method, fail)
        with pytest.raises(RuntimeError, match="memory"):
            engine.submit(StepPlan((("b", 40),), evictable=("a",)))
    assert engine.capacity.free_tokens == engine._pool.free_slots == 60
    engine.submit(StepPlan((("a", 30),)))
    result = engine.collect()
    assert result.evicted == ("a",)  # reported although the step before had no result
    assert result.recomputed == {"a": 30}
    engine.submit(StepPlan((("a", 2),)))
    assert "a" in engine.collect().tokens
    assert token


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision(llama: Path, dtype: str) -> None:
    answers = serve(TransformersEngine(llama, dtype=dtype, device=DEVICE), 12)
    assert all(len(answer) == ANSWER for answer in answers.values())


def test_a_model_made_for_shorter_sequences(llama: Path) -> None:
    engine = TransformersEngine(llama, device=DEVICE, limits=EngineLimits(max_model_len=100_000))
    with pytest.raises(EngineError, match="512"):
        engine.add("a", [5] * 512)
    assert engine.add("a", [5] * 511).to_compute == 511


def test_close_frees_the_memory(llama: Path) -> None:
    engine = TransformersEngine(llama, device=DEVICE)
    engine.add("a", [5] * 9, engine.pin_prefix([5, 5]))
    engine.close()
    assert engine._pool.free_slots == 0


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("Mamba", {"state_size": 4}, "not supported"),
        ("Bloom", {}, "attention interface"),
        ("Falcon", {"alibi": False}, "attention interface"),
        ("T5", {}, "encoder-decoder|decoder"),
        ("GptOss", {"num_local_experts": 2, "num_experts_per_tok": 1, "head_dim": 16}, "s_aux"),
    ],
)
def test_models_that_are_not_supported(
    tmp_path: Path, tokenizer: Any, name: str, options: dict[str, Any], reason: str
) -> None:
    import transformers

    config = getattr(transformers, f"{name}Config")(
        **{"vocab_size": len(tokenizer), "hidden_size": 64, "num_hidden_layers": 2,
           "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2, **options}
    )  # fmt: skip
    kind = "ForConditionalGeneration" if name == "T5" else "ForCausalLM"
    getattr(transformers, name + kind)(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=reason) as error:
        TransformersEngine(tmp_path, device=DEVICE)
    assert "\n" not in str(error.value)


def test_an_encoder_is_no_decoder(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "vit"}))
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(ModelError, match="cannot load"):
        TransformersEngine(tmp_path, device=DEVICE)


def test_missing_models(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no model folder"):
        TransformersEngine(tmp_path / "nowhere")
    with pytest.raises(ModelError, match="no model folder"):
        TransformersEngine("./models/nowhere")
    with pytest.raises(ModelError, match=r"config\.json"):
        TransformersEngine(tmp_path)
    with pytest.raises(ModelError, match="way to the hub"):
        TransformersEngine("nobody/nothing")


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("config.json", "{"),
        ("model.safetensors", "not weights"),
        ("model.safetensors", None),
        ("tokenizer.json", "{}"),
    ],
)
def test_broken_files(llama: Path, tmp_path: Path, file: str, content: str | None) -> None:
    model = tmp_path / "model"
    shutil.copytree(llama, model)
    if content is None:
        (model / file).unlink()
    else:
        (model / file).write_text(content)
    with pytest.raises(ModelError) as error:
        TransformersEngine(model, device=DEVICE)
    assert str(model) in str(error.value)
    assert "\n" not in str(error.value)


def test_pickled_weights_are_refused_unread(llama: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    model = tmp_path / "model"
    shutil.copytree(llama, model)
    (model / "model.safetensors").unlink()
    (model / "pytorch_model.bin").write_bytes(f"cos\nsystem\n(S'touch {ran}'\ntR.".encode())
    with pytest.raises(ModelError, match=r"pytorch_model\.bin is a pickle, which can run code"):
        TransformersEngine(model, device=DEVICE)
    assert not ran.exists()


@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json"])
def test_code_that_comes_with_a_model_never_runs(llama: Path, tmp_path: Path, file: str) -> None:
    ran = tmp_path / "ran"
    model = tmp_path / "model"
    shutil.copytree(llama, model)
    (model / "theirs.py").write_text(f"import pathlib; pathlib.Path({str(ran)!r}).touch()")
    config = json.loads((model / file).read_text())
    config |= {"model_type": "theirs", "tokenizer_class": "Theirs"}
    config["auto_map"] = {"AutoConfig": "theirs.Theirs", "AutoTokenizer": ["theirs.Theirs", None]}
    (model / file).write_text(json.dumps(config))
    with contextlib.suppress(ModelError):
        TransformersEngine(model, device=DEVICE)
    assert not ran.exists()


def test_impossible_options(llama: Path) -> None:
    import torch

    with pytest.raises(EngineError, match="dtype"):
        TransformersEngine(llama, dtype="int4", device=DEVICE)
    with pytest.raises(EngineError, match="choose auto, cpu or cuda"):
        TransformersEngine(llama, device="tpu")
    with pytest.raises(EngineError, match="threads"):
        TransformersEngine(llama, threads=0)
    with pytest.raises(EngineError, match="lower kv_tokens"):
        TransformersEngine(llama, device=DEVICE, limits=EngineLimits(kv_tokens=1 << 50))
    if not torch.cuda.is_available():
        with pytest.raises(EngineError, match="CUDA"):
            TransformersEngine(llama, device="cuda")
