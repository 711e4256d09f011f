"""Training batches: what has weight, and in which tokens."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from tools.tiny_planner.batches import Batches  # noqa: E402
from tools.tiny_planner.drills import SEARCHES  # noqa: E402
from tools.tiny_planner.probe import Probe  # noqa: E402

MODEL = Path(__file__).parents[2] / "models" / "tiny_planner"
SHARES = {"drone": 0.5, "arm": 0.5, "chat": 0.5}


def test_tool_output_is_context_without_weight() -> None:
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(MODEL)
    batches = Batches(
        tokenizer, seed=1, version=2, tokens=2048, prompt_weight=0.1, first_weight=4.0
    )
    looks = 0
    for batch in batches.pool(SHARES):
        for row, weights in zip(batch.rows, batch.weights, strict=True):
            text = tokenizer.decode(row[weights != 0.1])
            ask = tokenizer.decode(row[weights == 0.1])
            assert ask.startswith("<|user|>")
            assert ask.endswith("<|assistant|>")
            own = tokenizer.decode(row[weights >= 1.0])
            assert own.endswith("<|end|>")
            assert weights.max() == 4.0
            if "look();=> " in text:
                looks += 1
                at = text.index("=> ")
                outside = text[at : text.index("\n", at) + 1]
                assert tokenizer.decode(row[weights == 0.0]).split("<|pad|>")[0] == outside
                assert "=>" not in own
    assert looks > 100


def test_the_same_robot_shares_a_batch_and_its_system_text() -> None:
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(MODEL)
    batches = Batches(
        tokenizer, seed=1, version=2, tokens=2048, prompt_weight=0.1, first_weight=1.0
    )
    for batch in batches.pool(dict.fromkeys(SHARES, 1.0)):
        system = tokenizer.decode(batch.prefix)
        assert system.startswith("<|system|>You ")
        if "pick('" in tokenizer.decode(batch.rows[0]):
            assert "table-top robot arm" in system


def test_members_are_marked_by_whether_the_list_has_them() -> None:
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(MODEL)
    batches = Batches(tokenizer, seed=1, version=2, tokens=256, prompt_weight=0.1, first_weight=4.0)
    marks = []
    for batch in batches.members(5):
        for row, weights in zip(batch.rows, batch.weights, strict=True):
            listed = tokenizer.decode(row[weights == 0.1])
            words = [tokenizer.decode([token]) for token in row[weights != 0.1]]
            for name, mark in pairwise(words):
                if mark in ("g", "?"):
                    assert (mark == "g") == (name in listed)
                    marks.append(mark)
    assert {"g", "?"} == set(marks)


def test_searches_are_decided_by_the_scene() -> None:
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(MODEL)
    batches = Batches(tokenizer, seed=1, version=2, tokens=512, prompt_weight=0.1, first_weight=1.0)
    for batch in batches.searches(5):
        for row, weights in zip(batch.rows, batch.weights, strict=True):
            text = tokenizer.decode(row)
            scene = text.split("[")[1].split("]")[0].split(", ")
            answers = [part[0] for part in text.split("<|assistant|>")[1:]]
            assert [tokenizer.decode([token]) for token in row[weights == 1.0]] == answers
            assert len(answers) == SEARCHES
            for task, answer in zip(text.split("Task: [A] ")[1:], answers, strict=True):
                named = [name for name in scene if f"the {name}" in task]
                assert named or answer == "?"


def test_the_probe_asks_which_nouns_were_named_before() -> None:
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(MODEL)
    row = tokenizer("cat, cup and cat", return_tensors="pt").input_ids
    nouns = {tokenizer("cat").input_ids[0], tokenizer("cup").input_ids[0]}
    states = torch.zeros(1, row.shape[1], 4)
    probe = Probe(tokenizer, hidden=4)
    probe.requires_grad_(False)
    unsure = probe(row, states).item()
    seen: set[int] = set()
    for place, token in enumerate(row[0].tolist()):
        if token in nouns:
            states[0, place] = torch.sign(probe._head.weight[0]) * (9.0 if token in seen else -9.0)
            seen.add(token)
    assert probe(row, states).item() < unsure
    assert probe(row[:, :0], states[:, :0]).item() == 0.0
