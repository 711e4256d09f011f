from __future__ import annotations

from statistics import fmean, median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely_llm.experiments.catalog.timelyllm.chatbot import (
    LATE_TOKENS,
    READING_WORDS_PER_S,
    RULES,
    WORDS_PER_TOKEN,
    SplitRule,
    segment_tokens,
    stories,
    story,
)
from timely_llm.skills.checkers import cut
from timely_llm.skills.skill_set import SkillSet
from timely_llm.skills.stop_checker import Piece


def pieces_of(text: str, rule: SplitRule) -> list[Piece]:
    reader = SkillSet(name="reader", prompt="Tell.", language=rule, words_per_s=5.0)
    return [piece for piece in cut(reader, text) if isinstance(piece, Piece)]


@given(st.integers(0, 1000), st.integers(1, 2000))
def test_a_story_has_its_tokens_and_two_paragraphs(seed: int, tokens: int) -> None:
    text = story(np.random.default_rng(seed), tokens)
    assert len(text.split()) == max(round(tokens * WORDS_PER_TOKEN), 2)
    assert len(pieces_of(text, "paragraph")) == text.count("\n\n") + 1 >= 2
    for rule in RULES:
        assert "".join(piece.text for piece in pieces_of(text, rule)) == text


def test_sentences_end_where_they_were_made_to_end() -> None:
    text = story(np.random.default_rng(0), 20_000)
    lengths = [len(piece.text.split()) for piece in pieces_of(text, "sentence")]
    assert 13 <= median(lengths) <= 15
    assert 14 <= fmean(lengths) <= 17
    assert max(lengths) <= 45
    assert "Mr. " in text
    assert "…" in text
    assert "”" in text


@given(st.lists(st.integers(1, 60), min_size=1, max_size=30), st.integers(0, 1))
def test_all_tokens_of_a_story_are_in_its_segments(words: list[int], late: int) -> None:
    pieces = [Piece("a " * count, (), 0.0, ()) for count in words]
    tokens = segment_tokens(pieces, late)
    assert len(tokens) == len(words)
    assert min(tokens) >= 1
    assert round(sum(words) / WORDS_PER_TOKEN) <= sum(tokens) <= sum(words) / 0.5 + len(words)


@pytest.mark.parametrize("rule", RULES)
def test_people_read_what_they_asked_for(rule: SplitRule) -> None:
    trace = stories(rule, 0)
    assert len(trace.jobs) > 100
    for job in trace.jobs:
        assert len(job.segment_tokens) == len(job.skill_times) >= 2
        words = [time.seconds * READING_WORDS_PER_S for time in job.skill_times]
        assert sum(words) == pytest.approx(len(job.plan.split()))
        first = round(words[0]) / WORDS_PER_TOKEN + LATE_TOKENS[rule]
        assert job.segment_tokens[0] == pytest.approx(first, abs=1)


def test_both_rules_cut_the_same_stories_and_seeds_make_others() -> None:
    plans = [[job.plan for job in stories(rule, seed).jobs] for rule in RULES for seed in (0, 1)]
    assert plans[0] == plans[2]
    assert plans[1] == plans[3]
    assert plans[0] != plans[1]
