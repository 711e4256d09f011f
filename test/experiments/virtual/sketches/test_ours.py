"""Pipelined sketches by worth, on a few questions."""

from __future__ import annotations

from statistics import fmean

import pytest

from timely_llm.experiments.virtual.sketches.bench import Bench, ShownAnswer, SiteCall
from timely_llm.experiments.virtual.sketches.edges import ModelEdge
from timely_llm.experiments.virtual.sketches.methods import EdgeOnly, EdgeRules
from timely_llm.experiments.virtual.sketches.ours import (
    SAID_TOKENS,
    Ours,
    OursRules,
)
from timely_llm.experiments.virtual.sketches.questions import BenchQuestion, questions
from timely_llm.experiments.virtual.sketches.testbed import FAR_MODELS, Devices
from timely_llm.progressive.settings import HelpSettings


def answers(
    rules: OursRules, asked: list[BenchQuestion], far: str = "llama3-70b"
) -> list[ShownAnswer]:
    bench = Bench(asked)
    return bench.run(Ours(bench, Devices(FAR_MODELS[far]), rules))


def one(tokens: int, category: str = "stem") -> list[BenchQuestion]:
    return [BenchQuestion("q", category, 0.0, tokens, 1.0, 7)]


EAGER = OursRules(horizon_s=60.0, share=0.4)


def test_the_first_sentence_is_expanded_while_the_others_are_sketched() -> None:
    made = [
        answers(OursRules(60.0, share=0.4, pipelined=on, opening=False), one(500))[0]
        for on in (False, True)
    ]
    whole, piped = (answer.shown_s[0] for answer in made)
    assert made[1].sketch_tokens > 150
    assert piped < 0.2 * whole


def test_every_token_of_the_answer_is_written_once() -> None:
    (answer,) = answers(EAGER, one(500))
    assert answer.opening is not None
    said = answer.opening.tokens
    assert said > 0
    assert answer.edge_tokens == len(answer.shown_s) == said + 500
    assert answer.cloud_tokens == answer.sketch_tokens


def first_words_s(answer: ShownAnswer) -> float:
    return answer.shown_s[0] - answer.question.at_s


@pytest.mark.parametrize("rpm", [5.0, 30.0, 60.0])
def test_first_words_come_no_later_than_from_edges_alone_at_any_load(rpm: float) -> None:
    asked = questions(rpm, 0, 40)
    bench = Bench(asked)
    alone = bench.run(EdgeOnly(bench, Devices(), EdgeRules(rows=8)))
    ours = answers(OursRules(), asked)
    pairs = zip(ours, alone, strict=True)
    assert all(first_words_s(mine) <= first_words_s(theirs) for mine, theirs in pairs)


def test_an_opening_is_short_and_ends_with_its_sentence_when_the_answer_follows() -> None:
    for answer in answers(OursRules(), questions(30.0, 0, 20)):
        assert answer.opening is not None
        said = answer.opening.tokens
        assert said <= HelpSettings.opening_tokens
        assert said == HelpSettings.opening_tokens or said % SAID_TOKENS == 0
        assert answer.first_part == 1


def test_an_opening_has_no_more_tokens_than_its_option_allows() -> None:
    for answer in answers(OursRules(opening_tokens=7), questions(30.0, 0, 20)):
        assert answer.opening is not None
        assert answer.opening.tokens == 7


@pytest.mark.parametrize(("reserved", "waits"), [(0, True), (2, False)])
def test_parts_leave_the_reserved_rows_of_an_edge_to_openings(reserved: int, waits: bool) -> None:
    words: list[tuple[str, float]] = []
    edge = ModelEdge("edge", Bench([]), Devices(), 8, reserved=reserved)

    def call(name: str) -> SiteCall:
        return SiteCall(50, 60, lambda number, at_s: words.append((name, at_s)), edge.turn)

    for _ in range(12):
        edge.call(call("part"), 0.0)
    edge.begin(call("opening"), 0.0)
    while edge.site.calls:
        edge.site.poll(edge.site.next_s)
    names = [name for name, _ in words]
    assert names.count("part") == 12 * 50
    assert (names.index("opening") > 8 * 50) == waits


def test_a_patient_user_gets_the_clouds_own_words() -> None:
    (answer,) = answers(OursRules(horizon_s=100_000.0), one(500))
    assert (answer.sketch_tokens, answer.model, answer.cloud_tokens) == (0, "", 500)


def test_a_price_of_the_clouds_tokens_makes_sketches_shorter() -> None:
    asked = questions(30.0, 0, 20)
    free, paid = (
        fmean(a.cloud_tokens for a in answers(OursRules(token_price=price), asked))
        for price in (0.0, 0.002)
    )
    assert paid < 0.8 * free


def test_edges_answer_alone_only_where_that_is_allowed() -> None:
    paid = OursRules(token_price=0.1)
    assert answers(paid, one(500))[0].cloud_tokens > 0
    (alone,) = answers(OursRules(token_price=0.1, alone=True), one(500))
    assert alone.opening is not None
    assert (alone.cloud_tokens, alone.edge_tokens) == (0, alone.opening.tokens + 500)


def test_a_cloud_without_smaller_models_answers_itself_at_no_further_cost() -> None:
    (answer,) = answers(OursRules(), one(500), "qwen2.5-1.5b")
    assert (answer.cloud_tokens, answer.opening) == (500, None)
