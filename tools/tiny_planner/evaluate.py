"""Measure the embedded language model on tasks that its training never saw.

    PYTHONPATH=. python -m tools.tiny_planner.evaluate models/tiny_planner

Prints a proof that test and training are disjoint, a table of all families, and some answers.
Where a plan looks, the evaluation plays the server and appends what the robot sees.
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

from timely_llm.skills.skill_set import SkillSet, load_skill_set
from tools.tiny_planner import corpus
from tools.tiny_planner.answers import outside_words, own_words
from tools.tiny_planner.batches import SKILL_SETS, system_texts
from tools.tiny_planner.planner import Planner
from tools.tiny_planner.plans import plan_problem
from tools.tiny_planner.record import RECORD, streams_of
from tools.tiny_planner.talks import is_right

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
ARM_TRACE_LIKE = (
    "Scene: []\nTask: [A] Stack the red box, the blue box and the green box.",
    "Scene: [desk]\nTask: [A] Clean the desk: put everything into the box.",
    "Scene: []\nTask: [A] Sort the fruit and the vegetables: fruit into the red bowl, vegetables "
    "into the blue bowl.",
    "Scene: []\nTask: [Q] What is on the table?",
)
MOST_TALKS = 100
"""Answers to people that are scored: different questions about few topics run out."""
ON_THE_TABLE = "=> red cup, apple, carrot, blue ball\n"
CHATS = (
    "What is a drone?", "Tell me about the moon.", "Hello!", "What can you do?",
    "Tell me a story about a robot and a lamp.", "Say something funny.",
)  # fmt: skip


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

    Draws all training streams again, that of the earlier weights too, and makes sure with their
    recorded digests that they are the same ones.

    Raises:
        ValueError: a stream differs from the recorded one, or a test sample is in it.
    """
    keys: set[corpus.Key] = set()
    prompts: set[bytes] = set()
    drawn = []
    for stream in streams_of(record):
        digest = hashlib.blake2b(digest_size=16)
        samples = corpus.stream(stream["seed"], "train", stream["version"])
        for one in islice(samples, stream["samples"]):
            keys.add(one.key)
            prompts.add(one.prompt_hash)
            digest.update(one.prompt_hash)
        if digest.hexdigest() != stream["digest"]:
            raise ValueError(
                f"the corpus no longer draws the samples of stream {stream['version']}: "
                f"digest {digest.hexdigest()}, recorded {stream['digest']}"
            )
        drawn.append(
            f"version {stream['version']}, {stream['samples']:,} samples, digest "
            f"{digest.hexdigest()} as recorded"
        )
    test_keys = {one.key for one in tests}
    test_prompts = {one.prompt_hash for one in tests}
    both_keys, both_prompts = keys & test_keys, prompts & test_prompts
    if both_keys or both_prompts:
        raise ValueError(f"{len(both_keys)} keys and {len(both_prompts)} prompts are in training")
    return (
        f"Training streams drawn again: {'; '.join(drawn)}; {len(keys):,} keys, "
        f"{len(prompts):,} prompts. Test: {len(tests):,} samples, {len(test_keys):,} keys, "
        f"{len(test_prompts):,} prompts. "
        f"In both: {len(both_keys)} keys, {len(both_prompts)} prompts."
    )


def score(
    planner: Planner, skills: SkillSet, samples: list[corpus.Sample], system: str, show: int
) -> Score:
    """Return the counts of one family's samples; print up to `show` wrong answers."""
    result = Score()
    seen = [outside_words(one.answer) for one in samples]
    answers = planner.answers([one.user for one in samples], system, seen)
    for one, answer in zip(samples, answers, strict=True):
        result.tasks += 1
        problem = plan_problem(own_words(answer), skills)
        result.valid += problem is None
        result.right += answer == one.answer
        if answer != one.answer and show > 0:
            show -= 1
            print(f"  {one.user}\n  right: {one.answer!r}\n  given: {answer!r}  {problem or ''}")
    return result


def talk_row(planner: Planner, family: str, count: int, seed: int) -> str:
    """Return a Markdown row: how many answers to people are about what was asked last."""
    samples = test_samples(family, count, seed)
    answers = planner.answers([one.user for one in samples], corpus.CHAT_SYSTEM)
    right = sum(is_right(one, answer) for one, answer in zip(samples, answers, strict=True))
    return f"| {family} | {count} | {right / count:.1%} |"


def print_samples(planner: Planner, systems: dict[str, str]) -> None:
    """Print the answers to tasks like those of LRTrace and to chat questions."""
    print("\nTasks like those of LRTrace:")
    for robot, users in (("drone", TRACE_LIKE), ("arm", ARM_TRACE_LIKE)):
        answers = planner.answers(users, systems[robot], [[ON_THE_TABLE]] * len(users))
        for user, answer in zip(users, answers, strict=True):
            print(f"  {user.replace(chr(10), ' ')}\n    {answer.replace(chr(10), ' ')}")
    print("\nChat:")
    for user, answer in zip(CHATS, planner.answers(CHATS, corpus.CHAT_SYSTEM), strict=True):
        print(f"--- {user}\n{answer}")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Measure the embedded language model.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=300, help="test tasks of each family")
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--family", action="append", help="only this family; can be repeated")
    parser.add_argument("--show", type=int, default=0, help="wrong answers to print of each family")
    parser.add_argument("--no-system", action="store_true", help="leave out the system text")
    parser.add_argument("--no-proof", action="store_true", help="do not draw the training again")
    parser.add_argument("--threads", type=int, default=2)
    a = parser.parse_args()
    torch.set_num_threads(a.threads)
    planner = Planner(a.folder)
    systems = {} if a.no_system else system_texts()
    families = a.family or list(corpus.FAMILIES)
    tests = {family: test_samples(family, a.count, a.seed) for family in families}
    if not a.no_proof:
        record = json.loads((a.folder / RECORD).read_text(encoding="utf-8"))
        print(prove_disjoint(record, [one for group in tests.values() for one in group]) + "\n")
    total, rows = Score(), []
    for family, samples in tests.items():
        robot = samples[0].robot
        skills = load_skill_set(SKILL_SETS[robot])
        result = score(planner, skills, samples, systems.get(robot, ""), a.show)
        rows.append(result.row(family))
        total = total.plus(result)
    print("| family | tasks | grammar and arguments right | exactly right |\n|---|---|---|---|")
    print("\n".join([*rows, total.row("**all**")]), flush=True)
    print("\n| answers to people | questions | about what was asked |\n|---|---|---|")
    for family in (corpus.CHAT, corpus.TALK):
        print(talk_row(planner, family, min(a.count, MOST_TALKS), a.seed), flush=True)
    print_samples(planner, system_texts())


if __name__ == "__main__":
    main()
