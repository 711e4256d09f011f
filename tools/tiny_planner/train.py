"""Train the embedded language model from scratch.

    PYTHONPATH=. python -m tools.tiny_planner.train OUT --minutes 48
    PYTHONPATH=. python -m tools.tiny_planner.train OUT2 --go-on OUT --copy-steps 0

Most steps leave out the system text: they are faster, and the model then does not hang on its
exact words. The others, and all that sketch by default, run the system text once and let the whole
batch attend to its keys and values, as an engine with a shared prefix does.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections.abc import Iterator
from dataclasses import asdict, fields
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional
from transformers import (
    DynamicCache,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

from tools.tiny_planner import corpus
from tools.tiny_planner.batches import Batch, Batches, system_texts
from tools.tiny_planner.muon import Muon
from tools.tiny_planner.probe import LAYER, Probe
from tools.tiny_planner.record import RECORD, Settings, earlier_settings, streams_of
from tools.tiny_planner.shrink import shrunk
from tools.tiny_planner.tokenizer import CONTEXT, save_tokenizer, train_tokenizer

WARM_UP_STEPS = 50
BFLOAT16 = torch.backends.cpu.get_cpu_capability() in ("AVX512", "AMX")
"""Whether steps are in bfloat16; a CPU without instructions for it is slower with it."""


def tokenizer_texts(seed: int, version: int) -> Iterator[str]:
    """Yield what the tokenizer learns from; the first version's knew no arm."""
    for robot, text in system_texts().items():
        if not robot.endswith(corpus.SKETCH) and (robot != "arm" or version > 1):
            yield from [text] * 20
    for drawn in islice(corpus.stream(seed, version=version), 30_000):
        yield drawn.user
        yield drawn.answer


def make_model(tokenizer: PreTrainedTokenizerFast, settings: Settings) -> LlamaForCausalLM:
    """Return a new Llama with heads of size 64 and tied embeddings."""
    marks: dict[str, Any] = {"prose_answers": True}  # a field of ours
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=settings.hidden, intermediate_size=settings.inner,
        num_hidden_layers=settings.layers, num_attention_heads=4, num_key_value_heads=2,
        head_dim=64, max_position_embeddings=CONTEXT, tie_word_embeddings=True, rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0}, bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
        **marks,
    )  # fmt: skip
    return LlamaForCausalLM(config)


def make_optimizers(model: LlamaForCausalLM, rate: float) -> list[torch.optim.Optimizer]:
    """Return AdamW for embeddings and norms and Muon for the matrices."""
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n]
    others = [p for n, p in model.named_parameters() if p.ndim < 2 or "embed" in n]
    adamw = torch.optim.AdamW(others, lr=rate, betas=(0.9, 0.98), weight_decay=0.0, fused=True)
    return [adamw, Muon(matrices, rate)]


def loss_of(
    model: LlamaForCausalLM, batch: Batch, probe: Probe, probe_weight: float
) -> torch.Tensor:
    """Return the weighted mean cross entropy of a batch, and the probe's."""
    inputs, targets, weights = batch.rows[:, :-1], batch.rows[:, 1:], batch.weights[:, 1:]
    cache = None
    if batch.prefix:
        cache = DynamicCache(config=model.config)
        model.model(torch.tensor([batch.prefix]), past_key_values=cache, use_cache=True)
        cache.batch_repeat_interleave(len(inputs))
    out = model(
        inputs, past_key_values=cache, use_cache=cache is not None, output_hidden_states=True
    )
    entropy = functional.cross_entropy(
        out.logits.float().flatten(0, 1), targets.flatten(), reduction="none"
    )
    loss = (entropy * weights.flatten()).sum() / weights.sum()
    if probe_weight:
        loss = loss + probe_weight * probe(inputs, out.hidden_states[LAYER])
    return loss


def _tokenizer(settings: Settings) -> PreTrainedTokenizerFast:
    """Return the tokenizer of a new model."""
    if settings.tokenizer:
        found: PreTrainedTokenizerFast = PreTrainedTokenizerFast.from_pretrained(settings.tokenizer)
        return found
    texts = tokenizer_texts(settings.seed, settings.version)
    return train_tokenizer(texts, settings.vocabulary)


def _smaller(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, settings: Settings
) -> LlamaForCausalLM:
    """Return a smaller model made of a trained one, by some samples of the settings' stream."""
    batches = Batches(tokenizer, settings.seed, settings.version, settings.tokens, 0.0, 1.0)
    rows = [batch.rows for batch in batches.pool(dict.fromkeys(system_texts(), 0.0))]
    return shrunk(model, max(rows, key=len), settings.hidden, settings.inner, settings.layers)


class Training:
    """A model in training, its progress and its record."""

    def __init__(self, settings: Settings) -> None:
        torch.set_num_threads(settings.threads)
        torch.manual_seed(settings.seed)
        self._settings = settings
        self._before: dict[str, Any] = {}
        self._streams: list[dict[str, Any]] = []
        if settings.go_on:
            self._before = json.loads((Path(settings.go_on) / RECORD).read_text(encoding="utf-8"))
            self._streams = streams_of(self._before)
            self._tokenizer = PreTrainedTokenizerFast.from_pretrained(settings.go_on)
            self._model = LlamaForCausalLM.from_pretrained(settings.go_on, dtype=torch.float32)
            if settings.shrink:
                self._model = _smaller(self._model, self._tokenizer, settings)
        else:
            self._tokenizer = _tokenizer(settings)
            self._model = make_model(self._tokenizer, settings)
        self._probe = Probe(self._tokenizer, self._model.config.hidden_size)
        self._optimizers = make_optimizers(self._model, settings.learning_rate)
        self._optimizers.append(torch.optim.AdamW(self._probe.parameters(), weight_decay=0.0))
        self._batches = Batches(
            self._tokenizer, settings.seed, settings.version, settings.tokens,
            settings.prompt_weight, settings.first_weight,
        )  # fmt: skip
        same = {"version": settings.version, "seed": settings.seed}
        if self._streams and same.items() <= self._streams[-1].items():
            self._batches.draw(self._streams.pop()["samples"])
        self._start = time.monotonic()
        self._steps = 0
        self._tokens = 0
        self._loss = math.nan

    @property
    def minutes(self) -> float:
        """Return the time since the first step."""
        return (time.monotonic() - self._start) / 60

    @property
    def done(self) -> float:
        """Return the share of the run that is over, from 0 to 1."""
        if self._settings.steps:
            return min(1.0, self._steps / self._settings.steps)
        return min(1.0, self.minutes / self._settings.minutes)

    @property
    def record(self) -> dict[str, Any]:
        """Return what the evaluation needs to draw the same samples again, and figures."""
        stream = {
            "version": self._settings.version,
            "seed": self._settings.seed,
            "samples": self._batches.samples,
            "digest": self._batches.digest.hexdigest(),
        }
        return {
            "streams": [*self._streams, stream],
            "steps": self._steps + self._before.get("steps", 0),
            "tokens": self._tokens + self._before.get("tokens", 0),
            "parameters": sum(p.numel() for p in self._model.parameters()),
            "loss": round(self._loss, 4),
            "settings": asdict(self._settings) | {"go_on": Path(self._settings.go_on).name},
            "before": earlier_settings(self._before),
        }

    def steps(self) -> Iterator[Batch]:
        """Yield batches until the run is over; the first ones only copy, the next only compare."""
        chosen = self._settings
        shares = dict.fromkeys(system_texts(), chosen.with_system)
        shares["arm"] = chosen.arm_system
        shares |= {robot: chosen.sketch_system for robot in shares if robot.endswith(corpus.SKETCH)}
        yield from self._batches.copies(chosen.copy_steps)
        yield from self._batches.members(chosen.member_steps)
        while True:
            batches = self._batches.pool(shares)
            count = len(batches)
            batches += self._batches.members(round(chosen.members * count))
            batches += self._batches.searches(round(chosen.searches * count))
            random.Random(self._steps).shuffle(batches)
            for batch in batches:
                if self.done >= 1.0:
                    return
                yield batch

    def step(self, batch: Batch) -> None:
        """Update the model with one batch; the rate follows a cosine over the run."""
        rate = self._settings.learning_rate * min(1.0, (self._steps + 1) / WARM_UP_STEPS)
        rate *= 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * self.done))
        with torch.autocast("cpu", torch.bfloat16, enabled=BFLOAT16):
            loss = loss_of(self._model, batch, self._probe, self._settings.probe_weight)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(self._model.parameters(), 1.0)
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
            optimizer.zero_grad()
        self._steps += 1
        self._tokens += int((batch.weights > 0).sum()) + len(batch.prefix)
        last = self._loss if self._steps > 1 else loss.item()
        self._loss = last + 0.03 * (loss.item() - last)

    def progress(self) -> str | None:
        """Return a line of progress every 100 steps."""
        if self._steps % 100:
            return None
        speed = self._tokens / self.minutes / 60
        return (
            f"{self.minutes:.1f} min, step {self._steps}, loss {self._loss:.4f}, "
            f"{speed:.0f} tokens/s"
        )

    def save(self, folder: Path) -> None:
        """Write the model in bfloat16, so that transformers 4 and 5 and vLLM read it alike."""
        copy: Any = LlamaForCausalLM(self._model.config)
        copy.load_state_dict(self._model.state_dict())
        copy.to(torch.bfloat16).save_pretrained(folder)
        save_tokenizer(self._tokenizer, folder)
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        config["rope_theta"] = config["rope_parameters"]["rope_theta"]
        config["torch_dtype"] = config["dtype"]
        generation = {
            "do_sample": False,
            "eos_token_id": self._tokenizer.eos_token_id,
            "pad_token_id": self._tokenizer.pad_token_id,
        }
        files = {
            "config.json": config, "generation_config.json": generation, RECORD: self.record,
        }  # fmt: skip
        for name, value in files.items():
            (folder / name).write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def run(settings: Settings, out: Path) -> dict[str, Any]:
    """Train a model, write it to `out` and snapshots to `out`-1, `out`-2 ...; return its record."""
    training, snapshots = Training(settings), 0
    for batch in training.steps():
        training.step(batch)
        if line := training.progress():
            print(line, flush=True)
        every = settings.snapshot_minutes
        if every and training.minutes > (snapshots + 1) * every:
            snapshots += 1
            training.save(out.with_name(f"{out.name}-{snapshots}"))
    training.save(out)
    return training.record


def main() -> None:
    """Run the command line: an option for each setting."""
    parser = argparse.ArgumentParser(description="Train the embedded language model from scratch.")
    parser.add_argument("out", type=Path)
    for field in fields(Settings):
        kind = type(field.default)
        option = f"--{field.name.replace('_', '-')}"
        parser.add_argument(option, type=kind, default=field.default)
    values = vars(parser.parse_args())
    out = values.pop("out")
    print(json.dumps(run(Settings(**values), out), indent=2))


if __name__ == "__main__":
    main()
