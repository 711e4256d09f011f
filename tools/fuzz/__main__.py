"""Tries random inputs: python -m tools.fuzz [--inputs 10000] [--seconds 60] [--first-seed 0].

Each input is made from a corpus in test/corpus. One that breaks its reader is written to a file of
--found, with which `--replay FILE` tries it again. Exit status 1: one was found.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import math
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tools.fuzz.mutations import mutated
from tools.fuzz.targets import CORPUS, TARGETS, problem_of

SLOWEST_S = 2.0
"""Longest time of the processor for one input, seconds."""


@dataclass
class ReaderTally:
    """What the inputs of a target did."""

    tried: int = 0
    refused: int = 0
    slowest_s: float = 0.0
    problems: Counter[str] = field(default_factory=Counter)


def corpus_of(name: str) -> list[bytes]:
    """Return the kept inputs of a target, in the order of their names."""
    return [path.read_bytes() for path in sorted((CORPUS / name).iterdir())]


def tried(name: str, data: bytes, tally: ReaderTally) -> str:
    """Try one input; return what is wrong, in words; empty: nothing is."""
    target, began_s, problem = TARGETS[name], time.thread_time(), ""
    try:
        target.read(data)
    except Exception as error:
        problem = problem_of(target, error)
        tally.refused += not problem
    took_s = time.thread_time() - began_s
    tally.tried += 1
    tally.slowest_s = max(tally.slowest_s, took_s)
    return problem or (f"it took {took_s:.1f} s" if took_s > SLOWEST_S else "")


def fuzz(
    names: Sequence[str], inputs: int, seconds: float, first_seed: int, found: Path
) -> dict[str, ReaderTally]:
    """Try inputs, one of each target in turn; return what they did, by target.

    Args:
        names: of the targets.
        inputs: number of all of them.
        seconds: ends after this time.
        first_seed: of the first input; each has a seed of its own.
        found: folder for the inputs that break something.
    """
    corpora = {name: corpus_of(name) for name in names}
    tallies = {name: ReaderTally() for name in names}
    end_s = time.monotonic() + seconds
    for number in range(inputs):
        if time.monotonic() >= end_s:
            break
        name = names[number % len(names)]
        chance = random.Random(f"{name} {first_seed + number}")
        data = mutated(chance, corpora[name])
        if problem := tried(name, data, tallies[name]):
            known = tallies[name].problems
            known[problem] += 1
            if known[problem] == 1:
                found.mkdir(parents=True, exist_ok=True)
                path = found / f"{name}-{hashlib.sha256(data).hexdigest()[:12]}"
                path.write_bytes(data)
                print(f"{name}: {problem}\n  replay: python -m tools.fuzz --replay {path}")
    return tallies


def main(words: Sequence[str] | None = None) -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.fuzz", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--inputs", type=int, default=10_000, help="number of inputs")
    parser.add_argument(
        "--seconds", type=float, default=math.inf, help="longest time; without it, none"
    )
    parser.add_argument("--first-seed", type=int, default=0, help="seed of the first input")
    parser.add_argument("--targets", default=",".join(TARGETS), help="names, with commas between")
    parser.add_argument("--found", type=Path, default=Path("fuzz_found"), help="folder")
    parser.add_argument("--replay", type=Path, help="a file of an earlier run")
    asked = parser.parse_args(words)
    names = asked.targets.split(",")
    if unknown := set(names) - TARGETS.keys():
        parser.error(f"unknown: {', '.join(sorted(unknown))}; choose of {', '.join(TARGETS)}")
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # a journal that is set aside is logged
    try:
        return _replay(asked.replay) if asked.replay else _fuzz(names, asked)
    finally:
        logging.disable(before)


def _replay(path: Path) -> int:
    name = path.name.split("-")[0]
    problem = tried(name, path.read_bytes(), ReaderTally())
    print(f"{name}: {problem or 'nothing is wrong'}")
    return bool(problem)


def _fuzz(names: Sequence[str], asked: argparse.Namespace) -> int:
    tallies = fuzz(names, asked.inputs, asked.seconds, asked.first_seed, asked.found)
    for name, tally in tallies.items():
        print(
            f"{name:10s} {tally.tried:8d} inputs, {tally.refused:8d} refused,"
            f" slowest {tally.slowest_s:6.3f} s, {len(tally.problems)} problems"
        )
    tries = sum(tally.tried for tally in tallies.values())
    problems = sum(len(tally.problems) for tally in tallies.values())
    print(f"{tries} inputs from seed {asked.first_seed}: {problems} problems")
    return problems > 0


if __name__ == "__main__":
    sys.exit(main())
