"""Random rules of all that rules may be written with, used on long texts: what do they cost?

A process of its own, so that its memory is that of the rules: `python
test/skills/rule_fuzz.py NUMBER SEED` prints one line of JSON.
"""

from __future__ import annotations

import json
import random
import resource
import sys
import time
import warnings

from timely_llm.core.errors import PlanError
from timely_llm.skills.rule_checker import MAX_STATEMENT
from timely_llm.skills.rules import MAX_RULE_CHARACTERS, Budget, Rule

ATOMS = (
    "a", "b", "ab", ".", r"\w", r"\d", r"\s", "[ab]", "[^c]", r"\X", r"\p{L}", r"\b", "^", "$", "",
    "(?i)", "(?s)", "(?i:a)", "ß", r"\1", "(?P=n)", r"[[:alpha:]]", r"[\p{L}--[a]]", r"\R", r"\K",
    r"\G", "(?#x)", r"\N{LATIN SMALL LETTER A}", "{", "a{e}", "(?&n)", "(?R)", r"\L<n>", "(?1)",
)  # fmt: skip
GROUPS = (
    "(%s)", "(?:%s)", "(?P<n>%s)", "(?=%s)", "(?!%s)", "(?<=%s)", "(?<!%s)", "(?>%s)", "(?|%s|(b))",
    "(?(1)%s|b)", "(?(?=a)%s|b)", "(?if:%s)", "(?V1)%s",
)  # fmt: skip
COUNTS = (
    "", "", "", "*", "+", "?", "*?", "+?", "??", "*+", "++", "?+", "{3}", "{2,5}", "{,4}",
    "{0,9999}", "{100}", "{1000}", "{5000}?", "{20}+", "{1,999999}",
)  # fmt: skip
TEXTS = ("a", "ab", "abc", "a b;", "ß", "(a)", "\n", "a\u0301")


def pattern(chance: random.Random, size: int) -> str:
    """Return a random pattern."""
    if size <= 1:
        return chance.choice(ATOMS[:20] if chance.random() < 0.97 else ATOMS)
    kind = chance.random()
    if kind < 0.45:
        inner = pattern(chance, size - 1)
        group = chance.choice(GROUPS[:11] if chance.random() < 0.98 else GROUPS)
        return group % inner + chance.choice(COUNTS)
    cut = chance.randint(1, size - 1)
    join = "|" if kind < 0.6 else ""
    return pattern(chance, cut) + join + pattern(chance, size - cut)


def main(number: int, seed: int) -> dict[str, float]:
    """Return the seconds of the costliest of `number` patterns."""
    warnings.simplefilter("ignore")
    chance = random.Random(seed)
    Rule(0, "a")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    taken = slow = 0
    compiled_s = matched_s = 0.0
    for _ in range(number):
        text = pattern(chance, chance.choice((2, 4, 8, 16, 40))) * chance.choice((1, 1, 1, 5))
        began_s = time.thread_time()
        try:
            rule = Rule(1, text[:MAX_RULE_CHARACTERS])
        except ValueError:
            rule = None
        compiled_s = max(compiled_s, time.thread_time() - began_s)
        if rule is None:
            continue
        taken += 1
        said = (chance.choice(TEXTS) * MAX_STATEMENT)[: MAX_STATEMENT - 1] + chance.choice(";a!")
        for match in (rule.match, rule.may_go_on):
            budget = Budget()
            budget.begin()
            began_s = time.thread_time()
            try:
                match(said, budget)
            except PlanError:
                slow += 1
            matched_s = max(matched_s, time.thread_time() - began_s)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {
        "rules": taken, "slow": slow, "grown_mb": grown / 1024, "compiled_s": compiled_s,
        "matched_s": matched_s,
    }  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]), int(sys.argv[2]))))
