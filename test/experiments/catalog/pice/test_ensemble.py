"""Rules that pick among expansions."""

from __future__ import annotations

import pytest

from test.experiments.catalog.pice.short import short
from timely_llm.core.errors import TimelyError


def test_no_rule_is_better_than_the_oracle_and_the_confidence_is_better_than_the_smallest() -> None:
    made = short("pice-ensemble", minutes=0.5)
    quality = {row["policy"]: row["rouge_1"] for row in made.rows if row["category"] == "all"}
    assert max(quality, key=lambda name: float(str(quality[name]))) == "oracle"
    assert float(str(quality["confidence"])) > float(str(quality["qwen2.5-1.5b"]))


def test_an_unknown_rule_or_weight_is_refused_in_one_sentence() -> None:
    for policy, words in (
        ("luck", "unknown rule 'luck': choose one of"),
        ("confidence:speed=1", "'speed=1' is no option of confidence"),
        ("confidence:probability=1", "their sum must be at most 1"),
    ):
        with pytest.raises(TimelyError, match=words):
            short("pice-ensemble", policies=(policy,))
