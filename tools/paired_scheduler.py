"""Compare the cost of policies' decisions in two commits, by turns of both.

    python -m tools.paired_scheduler BASE [HEAD] [--policy P ...] [--generations N ...] [--rounds R]

In each round, a new process of each commit measures the pools of `timely-llm benchmark scheduler`.
BASE is first in every second round, so that other load meets both alike. The table has the
geometric mean of HEAD's CPU time over BASE's for each pool, with its 95 % interval over the rounds:
for a decision, and for a whole turn of the loop without the engine's step.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from timely_llm.core.output_file import write_json
from timely_llm.experiments.results.metrics import interval
from timely_llm.policies.registry import POLICIES
from tools.same_behaviour.errors import ComparisonError
from tools.same_behaviour.trees import Tree, export

Pool = tuple[str, int, int]
"""A policy, and the numbers of requests and of conversations among them."""
Costs = dict[Pool, tuple[float, float]]
"""CPU microseconds of a decision and of a turn, by pool."""

MEASURE = """
import json, sys
from timely_llm.benchmarks.scheduler import rows
policies, generations, turns = json.loads(sys.argv[1])
print(json.dumps(rows(policies, generations, turns=turns)))
"""


def costs(tree: Tree, policies: Sequence[str], generations: Sequence[int], turns: int) -> Costs:
    """Return what the pools cost in a tree.

    Args:
        tree: an exported source tree.
        policies: names of policies.
        generations: numbers of requests in service.
        turns: measured turns of each pool.

    Raises:
        ComparisonError: the tree cannot measure them.
    """
    asked = json.dumps([policies, generations, turns])
    return {
        (row["policy"], row["generations"], row["streams"]): (row["plan_us"], row["turn_us"])
        for row in json.loads(tree.run("-c", MEASURE, asked))
    }


def ratios(pairs: Sequence[tuple[Costs, Costs]]) -> dict[Pool, dict[str, tuple[float, ...]]]:
    """Return the ratios of each pool's costs with their 95 % intervals.

    Args:
        pairs: the costs of BASE and of HEAD, by round.

    Returns:
        By pool, for `decision` and `turn`: the geometric mean and both ends of its interval.
    """
    found: dict[Pool, dict[str, tuple[float, ...]]] = {}
    for pool in pairs[0][0]:
        if pool not in pairs[0][1]:
            continue  # only one of the commits has such pools
        found[pool] = {}
        for place, name in enumerate(("decision", "turn")):
            logs = [math.log(new[pool][place] / old[pool][place]) for old, new in pairs]
            mean, half = interval(logs)
            found[pool][name] = tuple(math.exp(x) for x in (mean, mean - half, mean + half))
    return found


def table(found: Mapping[Pool, Mapping[str, tuple[float, ...]]]) -> str:
    """Return the ratios as a Markdown table."""
    lines = ["| policy | pool | decision | turn |", "|---|---|---|---|"]
    for (policy, number, streams), cells in found.items():
        pool = f"{number - streams} + {streams}" if streams else str(number)
        pool = f"{number} streams" if streams == number else pool
        shown = ["{:.2f} ({:.2f} - {:.2f})".format(*cells[name]) for name in ("decision", "turn")]
        lines.append(f"| `{policy}` | {pool} | {shown[0]} | {shown[1]} |")
    return "\n".join(lines)


def measure(
    base: Tree, head: Tree, policies: Sequence[str], generations: Sequence[int], turns: int,
    rounds: int,
) -> list[tuple[Costs, Costs]]:  # fmt: skip
    """Return the costs of both trees by round; see `costs`."""
    pairs = []
    for number in range(rounds):
        order = (base, head) if number % 2 == 0 else (head, base)
        both = {one.folder: costs(one, policies, generations, turns) for one in order}
        pairs.append((both[base.folder], both[head.folder]))
        print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    return pairs


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.paired_scheduler", description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )  # fmt: skip
    parser.add_argument("base", metavar="BASE", help="a commit")
    parser.add_argument("head", metavar="HEAD", nargs="?",
                        help="the same; the working tree if not given")  # fmt: skip
    parser.add_argument("--policy", action="append", choices=list(POLICIES), metavar="P",
                        help=f"all if not given: {', '.join(POLICIES)}")  # fmt: skip
    parser.add_argument("--generations", action="append", type=_positive, metavar="N",
                        help="requests of a pool; 8 and 64 if not given")  # fmt: skip
    parser.add_argument("--rounds", type=_positive, default=20, metavar="R")
    parser.add_argument("--turns", type=_positive, default=100, help="measured turns of a pool")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the ratios to FILE")
    a = parser.parse_args(words)
    if a.rounds < 2:
        parser.error("an interval needs at least 2 rounds")
    try:
        with tempfile.TemporaryDirectory(prefix="paired_scheduler_") as name:
            base, head = export(a.base, Path(name, "base")), export(a.head, Path(name, "head"))
            policies, sizes = a.policy or list(POLICIES), a.generations or [8, 64]
            found = ratios(measure(base, head, policies, sizes, a.turns, a.rounds))
    except ComparisonError as error:
        print(f"paired_scheduler: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("paired_scheduler: interrupted; nothing is left behind", file=sys.stderr)
        return 130
    print(table(found))
    if a.json is not None:
        write_json(a.json, [{"pool": pool, **cells} for pool, cells in found.items()])
    return 0


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {number}")
    return number


if __name__ == "__main__":
    sys.exit(main())
