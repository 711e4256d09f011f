"""Measure the embedded language model on tasks that its training never saw.

    PYTHONPATH=. python -m tools.tiny_planner.evaluate models/tiny_planner

Prints a proof that test and training are disjoint, a table for each family, and some answers.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from timely_llm.skills.skill_set import SkillSet, load_skill_set
from tools.tiny_planner import corpus
from tools.tiny_planner.batches import SKILL_SET
from tools.tiny_planner.plans import plan_problem
from tools.tiny_planner.train import RECORD

TRACE_LIKE = (
    "Scene: []\nTask: [A] Could you find the cat? If so, go to it.",
    "Scene: [countertop]\nTask: [Q] Are there keys and a wallet on the countertop?",
    "Scene: [cabinet]\nTask: [A] Move up and then check the top of the cabinet, "
    "if you see a book, take a picture of it.",
    "Scene: [bed]\nTask: [A] Move down and try to find the toy under the bed.",
    "Scene: [table]\nTask: [A] Can you find scissors on the table?",
    "Scene: [robot]\nTask: [E] You provided me with plan mf(100), but I failed because a robot "
    "is approaching me. Execution history: mf(50)",
    "Scene: [dog]\nTask: [E] You provided me with plan ml(100), but I failed because a dog "
    "is trying to catch me. Execution history: ml(50)",
    "Scene: [boy]\nTask: [E] You provided me with plan mf(100), but I failed because a boy "
    "is passing by. Execution history: mf(50)",
)
CHATS = (
    "What is a drone?", "Tell me about the moon.", "Hello!", "What can you do?",
    "Tell me a story about a robot and a lamp.", "Say something funny.",
)  # fmt: skip


class Planner:
    """Greedy answers of a model folder."""

    def __init__(self, folder: Path) -> None:
        self._tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        self._model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        self._model.train(False)

    @torch.no_grad()
    def answers(self, users: list[str], system: str, limit: int = 256) -> list[str]:
        """Return the answers to user texts; work on 64 of similar length at a time."""
        out = [""] * len(users)
        order = sorted(range(len(users)), key=lambda i: len(users[i]))
        for at in range(0, len(order), 64):
            rows = order[at : at + 64]
            prompts = [self._prompt(users[i], system) for i in rows]
            inputs = self._tokenizer(
                prompts, return_tensors="pt", padding=True, padding_side="left"
            )
            full = self._model.generate(**inputs, max_new_tokens=limit, do_sample=False)
            for i, row in zip(rows, full, strict=True):
                text = self._tokenizer.decode(row[inputs.input_ids.shape[1] :])
                out[i] = text.split("<|end|>")[0]
        return out

    def _prompt(self, user: str, system: str) -> str:
        messages = [{"role": "system", "content": system}] if system else []
        messages.append({"role": "user", "content": user})
        text: str = self._tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )
        return text


@dataclass
class Score:
    """Counts of one family."""

    tasks: int = 0
    valid: int = 0
    right: int = 0

    def plus(self, other: Score) -> Score:
        """Return the sum of two scores."""
        return Score(self.tasks + other.tasks, self.valid + other.valid, self.right + other.right)

    def row(self, name: str) -> str:
        """Return a Markdown table row."""
        valid, right = self.valid / self.tasks, self.right / self.tasks
        return f"| {name} | {self.tasks} | {valid:.1%} | {right:.1%} |"


def test_samples(family: str, count: int, seed: int) -> list[corpus.Sample]:
    """Return `count` test samples of a family with different user texts."""
    rng = random.Random(f"{seed} {family}")
    samples: dict[str, corpus.Sample] = {}
    while len(samples) < count:
        one = corpus.sample(rng, "test", family)
        samples.setdefault(one.user, one)
    return list(samples.values())


def prove_disjoint(record: dict[str, Any], tests: list[corpus.Sample]) -> str:
    """Return one sentence of proof that no test key or prompt is in the training stream.

    Draws the whole training stream again, and makes sure with its recorded digest that it is the
    same one.

    Raises:
        ValueError: the stream differs from the recorded one, or a test sample is in it.
    """
    keys: set[corpus.Key] = set()
    prompts: set[bytes] = set()
    digest = hashlib.blake2b(digest_size=16)
    for one in islice(corpus.stream(record["seed"]), record["samples"]):
        keys.add(one.key)
        prompts.add(one.prompt_hash)
        digest.update(one.prompt_hash)
    if digest.hexdigest() != record["digest"]:
        raise ValueError(
            "the corpus no longer draws the samples that trained this model: "
            f"digest {digest.hexdigest()}, recorded {record['digest']}"
        )
    test_keys = {one.key for one in tests}
    test_prompts = {one.prompt_hash for one in tests}
    both_keys, both_prompts = keys & test_keys, prompts & test_prompts
    if both_keys or both_prompts:
        raise ValueError(f"{len(both_keys)} keys and {len(both_prompts)} prompts are in training")
    return (
        f"Training stream drawn again: {record['samples']:,} samples, {len(keys):,} keys, "
        f"{len(prompts):,} prompts, digest {digest.hexdigest()} as recorded. Test: {len(tests):,} "
        f"samples, {len(test_keys):,} keys, {len(test_prompts):,} prompts. "
        f"In both: {len(both_keys)} keys, {len(both_prompts)} prompts."
    )


def score(
    planner: Planner, skills: SkillSet, samples: list[corpus.Sample], system: str, show: int
) -> Score:
    """Return the counts of one family's samples; print up to `show` wrong answers."""
    result = Score()
    answers = planner.answers([one.user for one in samples], system)
    for one, answer in zip(samples, answers, strict=True):
        result.tasks += 1
        problem = plan_problem(answer, skills)
        result.valid += problem is None
        result.right += answer == one.answer
        if answer != one.answer and show > 0:
            show -= 1
            print(f"  {one.user}\n  right: {one.answer}\n  given: {answer}  {problem or ''}")
    return result


def print_samples(planner: Planner, system: str) -> None:
    """Print the answers to tasks like those of LRTrace and to chat questions."""
    print("\nTasks like those of LRTrace:")
    for user, answer in zip(TRACE_LIKE, planner.answers(list(TRACE_LIKE), system), strict=True):
        print(f"  {user.replace(chr(10), ' ')}\n    {answer}")
    print("\nChat:")
    answers = planner.answers(list(CHATS), corpus.CHAT_SYSTEM)
    for user, answer in zip(CHATS, answers, strict=True):
        print(f"--- {user}\n{answer}")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Measure the embedded language model.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=300, help="test tasks of each family")
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--show", type=int, default=0, help="wrong answers to print of each family")
    parser.add_argument("--no-system", action="store_true", help="leave out the system text")
    parser.add_argument("--no-proof", action="store_true", help="do not draw the training again")
    parser.add_argument("--threads", type=int, default=2)
    a = parser.parse_args()
    torch.set_num_threads(a.threads)
    skills = load_skill_set(SKILL_SET)
    planner = Planner(a.folder)
    tests = {family: test_samples(family, a.count, a.seed) for family in corpus.FAMILIES}
    if not a.no_proof:
        record = json.loads((a.folder / RECORD).read_text(encoding="utf-8"))
        print(prove_disjoint(record, [one for group in tests.values() for one in group]) + "\n")
    system = "" if a.no_system else skills.prompt_text()
    total, rows = Score(), []
    for family, samples in tests.items():
        result = score(planner, skills, samples, system, a.show)
        rows.append(result.row(family))
        total = total.plus(result)
    print("| family | tasks | grammar and arguments right | exactly right |\n|---|---|---|---|")
    print("\n".join([*rows, total.row("**all**")]), flush=True)
    print_samples(planner, system)


if __name__ == "__main__":
    main()
